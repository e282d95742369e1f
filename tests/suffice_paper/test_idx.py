import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from suffice_paper.idx import load_mnist_full, read_idx


def idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return {
        "train-images-idx3-ubyte": rng.integers(0, 256, (7, 28, 28), dtype=np.uint8),
        "train-labels-idx1-ubyte": rng.integers(0, 10, 7, dtype=np.uint8),
        "t10k-images-idx3-ubyte": rng.integers(0, 256, (3, 28, 28), dtype=np.uint8),
        "t10k-labels-idx1-ubyte": rng.integers(0, 10, 3, dtype=np.uint8),
    }


def write(folder: Path, arrays, compressed=False):
    for name, array in arrays.items():
        if compressed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
        else:
            (folder / name).write_bytes(idx(array))


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gz"])
def test_full_reads_idx_files(tmp_path, arrays, compressed):
    write(tmp_path, arrays, compressed)
    mnist = load_mnist_full(tmp_path)
    for read, written in zip((mnist.X_train, mnist.y_train, mnist.X_test, mnist.y_test), arrays.values(), strict=True):
        np.testing.assert_array_equal(read, written.reshape(read.shape))
    assert mnist.X_train.shape == (7, 784) and mnist.X_train.dtype == np.float64
    assert mnist.y_test.dtype == np.int64
    np.testing.assert_array_equal(load_mnist_full(str(tmp_path), 255.0).X_test, mnist.X_test / 255)


def test_full_lists_missing_files(tmp_path, arrays):
    write(tmp_path, arrays)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError, match=r"t10k-labels-idx1-ubyte \(plain or .gz\) not found") as caught:
        load_mnist_full(tmp_path)
    assert "train-images" not in str(caught.value)


def test_full_refuses_unequal_numbers_of_images_and_labels(tmp_path, arrays):
    arrays["t10k-labels-idx1-ubyte"] = arrays["t10k-labels-idx1-ubyte"][:2]
    write(tmp_path, arrays)
    with pytest.raises(ValueError, match="3 test images but 2 test labels"):
        load_mnist_full(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty", b"", "not an idx file"),
        ("text", b"not idx at all", "not an idx file"),
        ("floats", struct.pack(">HBBI", 0, 0x0D, 1, 0), "not an idx file of unsigned bytes"),
        ("header", struct.pack(">HBBI", 0, 8, 3, 1), "truncated"),
        ("short", idx(np.zeros(9, np.uint8))[:-1], "truncated"),
        ("long", idx(np.zeros(9, np.uint8)) + b"\0", "trailing"),
        ("text.gz", b"not gzip", "not a complete gzip file"),
        ("short.gz", gzip.compress(idx(np.arange(99, dtype=np.uint8)), mtime=0)[:-20], "not a complete gzip file"),
    ],
)
def test_damaged_idx_files_are_named(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)
