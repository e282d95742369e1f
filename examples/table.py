"""A table to try `suffice tune` on: scikit-learn's diabetes data as a CSV file, in their own units.

442 patients; `progression` is how far the disease has gone a year later, s1 to s6 are measurements of blood serum.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sklearn.datasets import load_diabetes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/diabetes.csv"), help="the file (%(default)s)")
    out: Path = parser.parse_args().out
    data = load_diabetes(scaled=False)
    sex = {1.0: "female", 2.0: "male"}
    lines = [",".join([*data.feature_names, "progression"])]
    for row, progression in zip(data.data, data.target, strict=True):
        cells = [
            sex[value] if name == "sex" else f"{value:.6g}" for name, value in zip(data.feature_names, row, strict=True)
        ]
        lines.append(",".join([*cells, f"{progression:g}"]))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{out}: {len(data.target)} rows; predict progression from {len(data.feature_names)} columns")


if __name__ == "__main__":
    main()
