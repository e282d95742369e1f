"""Which files of the repository a process has loaded, its children included: `all_results.py` puts this folder on their
path, and they write it down when they end."""

import atexit
import os
import sys


def write_down() -> None:
    root, environment = os.environ["RESULTS_ROOT"] + os.sep, sys.prefix + os.sep  # which may lie inside
    paths = {str(getattr(module, "__file__", None)) for module in list(sys.modules.values())}
    paths |= {os.path.abspath(name) for name in sys.argv[:1] if name.endswith(".py")}  # __main__ forgets its own
    own = [path for path in sorted(paths) if path.startswith(root) and not path.startswith(environment)]
    with open(os.environ["RESULTS_LOADED"], "a", encoding="utf-8") as out:
        out.writelines(f"{path[len(root) :]}\n" for path in own)


if "RESULTS_LOADED" in os.environ:
    atexit.register(write_down)
