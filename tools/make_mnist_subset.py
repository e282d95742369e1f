"""Build src/suffice/datasets/data/mnist_12000.npz from the four MNIST idx files.

    python tools/make_mnist_subset.py FOLDER

FOLDER holds the idx files, plain or .gz. The archive has X (12000 x 784, uint8) and y (12000, uint8): rows
0..9999 of the training file, then rows 0..1999 of the test file. The same zlib gives the same bytes, whatever
the date. Prints the SHA-256, to be recorded in datasets/__init__.py and in data/README.md.
"""

import argparse
import hashlib
import io
import zipfile
from pathlib import Path

import numpy as np
from suffice_paper.idx import load_mnist_full

ARCHIVE = Path(__file__).parents[1] / "src/suffice/datasets/data/mnist_12000.npz"


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the archive of MNIST images that ships with suffice.")
    parser.add_argument("folder", type=Path, help="where the four idx files are, plain or .gz")
    mnist = load_mnist_full(parser.parse_args().folder)
    arrays = {
        "X": np.concatenate([mnist.X_train[:10_000], mnist.X_test[:2000]]).astype(np.uint8),
        "y": np.concatenate([mnist.y_train[:10_000], mnist.y_test[:2000]]).astype(np.uint8),
    }
    # Not np.savez_compressed: this compresses harder, and ZipInfo's fixed date keeps the bytes reproducible.
    with zipfile.ZipFile(ARCHIVE, "w") as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.save(member, array)
            info = zipfile.ZipInfo(f"{name}.npy")
            archive.writestr(info, member.getvalue(), zipfile.ZIP_DEFLATED, compresslevel=9)
    content = ARCHIVE.read_bytes()
    print(f"{ARCHIVE.name}: {len(content)} bytes, SHA-256 {hashlib.sha256(content).hexdigest()}")


if __name__ == "__main__":
    main()
