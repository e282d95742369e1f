"""Files of fitted models: a file that comes from anybody is a model, or is refused in one sentence.

A file of skops is a zip archive: `schema.json`, a tree whose nodes say of which type they are, and arrays, which nodes
name as their `file`. skops unpacks a member for every node that names it, as much as the archive claims, and sparse
arrays are archives themselves. Therefore, before skops sees the bytes:

- members are stored or deflated. Of these Python unpacks no more than the archive's directory claims; other methods
  have no such bound;
- the schema claims `SCHEMA` bytes at most, and all that nodes name, counted once for each of them, `files.DATA`.

What skops says to bytes that are damaged has no end of kinds (zipfile's errors, recursion, attributes that are not
there): each of them is the file's fault, and so is what a model says that loads and then cannot be used.
"""

from __future__ import annotations

import io
import json
import os
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from suffice import files
from suffice.tabular.entries import TableError

SAVED = ("model.skops", "model.joblib")
TRUSTED = {"numpy.dtype", "suffice.sklearn.glm.ElasticNetGLM"}  # unknown to skops, and harmless in our models
SCHEMA = 1 << 26  # bytes: some 250,000 levels of categories, and 1.5 GB of Python's objects at worst
UNASKED = ("torch", "jax", "cupy", "dask", "ndonnx", "sparse")  # for which scikit-learn has a compatible namespace
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def model_file(folder: Path) -> Path:
    """Where the model of a run's folder is; ValueError if it has none."""
    for name in SAVED:
        if (folder / name).exists():
            return folder / name
    raise ValueError(f"{folder} holds no model: `suffice resume {folder}` makes one of an unfinished run")


def load_file(path: Path, *, trust: bool = False) -> Any:
    """The model in a file of skops or, if it may run code, of joblib or pickle; ValueError where it may not, or where
    the file holds something else."""
    if path.suffix != ".skops":
        if not trust:
            raise ValueError(f"loading {path} runs code that it contains: --trust does, if you made it yourself")
        import joblib

        with os.fdopen(files.open_regular(path), "rb") as file, blamed(path):
            return joblib.load(file)
    try:
        skops_io = _skops_io()
    except ImportError as error:
        raise ValueError(f"{path} needs skops: pip install 'suffice[skops]'") from error
    content = files.read_bounded(path, files.DATA)
    with blamed(path):
        types = untrusted_types(content)
    if not trust and not set(types) <= TRUSTED:
        strange = ", ".join(sorted(set(types) - TRUSTED))
        raise ValueError(f"{path} holds types that are not known to be harmless, {strange}: --trust loads it")
    with blamed(path):
        return skops_io.loads(content, trusted=types)


def _skops_io() -> Any:
    """`skops.io`. It asks scikit-learn for all estimators, which looks into every package below scikit-learn, and so
    imports whatever is installed of `UNASKED`, for seconds; here they are as if they were not there."""
    hidden = [name for name in UNASKED if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: `import` says that there is none
    try:
        return import_module("skops.io")
    finally:
        for name in hidden:
            del sys.modules[name]


@contextmanager
def blamed(path: Path) -> Iterator[None]:
    """Whatever fails inside, but for a table that does not fit, is told as a fault of this file."""
    try:
        yield
    except TableError:
        raise
    except ValueError as error:
        raise ValueError(f"{path} cannot be used: {shortened(str(error))}") from error
    except Exception as error:
        what = shortened(one_line(error))
        raise ValueError(f"{path} is damaged, or holds no model that this version can use ({what})") from error


def as_note(warning: str) -> str:
    """What a search warns of, for those who have given it no space and know no steps of a pipeline."""
    text = shortened(warning).replace("model__", "")
    return text.replace(" of its space,", " of its range,").replace(", widen it", "")


def shortened(text: str) -> str:
    """In one line, not too long."""
    text = " ".join(text.split())
    return text if len(text) <= 200 else f"{text[:197]}..."


def untrusted_types(content: bytes) -> list[str]:
    """The types in a file of skops that it does not trust by itself; ValueError if the file claims to be too large."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        sizes = _claimed(archive)
        if sizes.get("schema.json", 0) > SCHEMA:
            raise ValueError(f"its schema would unpack to more than {SCHEMA:,} bytes")
        waiting, named = [json.loads(archive.read("schema.json"))], Counter[str]()
        while waiting:
            node = waiting.pop()
            if isinstance(node, dict) and isinstance(node.get("file"), str):
                named[node["file"]] += 1
            waiting += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        for name in named.keys() & sizes:
            with archive.open(name) as member:
                packed = member.read(2) == b"PK"
            if packed:
                with zipfile.ZipFile(io.BytesIO(archive.read(name))) as inner:
                    sizes[name] += sum(_claimed(inner).values())
        _bounded(sum(count * sizes.get(name, 0) for name, count in named.items()))
    return list(_skops_io().get_untrusted_types(data=content))


def _claimed(archive: zipfile.ZipFile) -> dict[str, int]:
    """How large the members of an archive are, by its directory."""
    if any(item.compress_type not in METHODS for item in archive.infolist()):
        raise ValueError("it is packed by a method without a bound: use skops.io.dump(model, file)")
    _bounded(sum(item.file_size for item in archive.infolist()))
    return {item.filename: item.file_size for item in archive.infolist()}


def _bounded(size: int) -> None:
    if size > files.DATA:
        raise ValueError(f"it would unpack to {size:,} bytes, and {files.DATA:,} are the most")


def one_line(error: BaseException) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def save(model: Any, folder: Path) -> tuple[tuple[Path | None, tuple[str, ...]], list[str]]:
    """The fitted model in a file: skops if there is one, else joblib; with the types in it that skops does not trust by
    itself, and what went wrong. A kill leaves the old file or the new one."""
    failures: list[str] = []
    for name in SAVED if find_spec("skops") is not None else SAVED[1:]:
        try:
            content, types = _dumped(model, name)
            files.replace_atomically(folder / name, content)
            return (folder / name, types), failures
        except Exception as error:
            failures.append(f"the model could not be saved as {name}: {one_line(error)}")
    return (None, ()), failures


def _dumped(model: Any, name: str) -> tuple[bytes, tuple[str, ...]]:
    if name.endswith(".skops"):
        content = _skops_io().dumps(model)
        return content, tuple(untrusted_types(content))
    import joblib

    buffer = io.BytesIO()
    joblib.dump(model, buffer)
    return buffer.getvalue(), ()
