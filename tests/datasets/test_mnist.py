import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from suffice.datasets import _mnist, load_mnist, load_mnist_full


@pytest.fixture(scope="module")
def tuning():
    return load_mnist()


@pytest.fixture(scope="module")
def validation():
    return load_mnist("validation")


@pytest.mark.parametrize("part", ["tuning", "validation"])
def test_shapes_and_types(part, request):
    mnist = request.getfixturevalue(part)
    assert mnist.X_train.shape == (5000, 784) and mnist.X_train.dtype == np.float64
    assert mnist.X_test.shape == (1000, 784) and mnist.X_test.dtype == np.float64
    assert mnist.y_train.shape == (5000,) and mnist.y_train.dtype == np.int64
    assert mnist.y_test.shape == (1000,) and mnist.y_test.dtype == np.int64
    assert mnist.X_train.min() == 0 and mnist.X_train.max() == 255


def test_published_first_labels(tuning):
    assert tuning.y_train[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert tuning.y_test[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]


def test_label_counts(tuning, validation):
    assert np.bincount(tuning.y_train).tolist() == [479, 563, 488, 493, 535, 434, 501, 550, 462, 495]
    assert np.bincount(tuning.y_test).tolist() == [85, 126, 116, 107, 110, 87, 87, 99, 89, 94]
    assert np.bincount(validation.y_train).tolist() == [522, 564, 503, 539, 445, 429, 513, 520, 482, 483]
    assert np.bincount(validation.y_test).tolist() == [90, 108, 103, 100, 107, 92, 91, 106, 103, 100]


def test_known_facts_of_the_tuning_images(tuning):
    X = tuning.X_train
    assert np.linalg.norm(X, 2) ** 2 / (4 * len(X)) == pytest.approx(9.41455 * 255**2, rel=1e-6)
    assert np.count_nonzero(np.ptp(X, axis=0)) == 663
    assert np.count_nonzero(X) / X.size == pytest.approx(0.19, abs=0.005)


def test_parts_share_no_image(tuning, validation):
    images = [{row.tobytes() for row in np.vstack([part.X_train, part.X_test])} for part in (tuning, validation)]
    assert len(images[0]) == len(images[1]) == 6000
    assert images[0].isdisjoint(images[1])


def test_unit_pixels_are_raw_over_255(tuning):
    unit = load_mnist("tuning", "unit")
    np.testing.assert_array_equal(unit.X_train, tuning.X_train / 255)
    np.testing.assert_array_equal(unit.X_test, tuning.X_test / 255)
    np.testing.assert_array_equal(unit.y_train, tuning.y_train)


def test_unknown_arguments_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"part.*'test'"):
        load_mnist("test")
    with pytest.raises(ValueError, match=r"pixels.*'float'"):
        load_mnist(pixels="float")
    with pytest.raises(ValueError, match=r"pixels.*'float'"):
        load_mnist_full(tmp_path, pixels="float")


def test_damaged_archive_is_refused(tmp_path, monkeypatch):
    content = bytearray(_mnist._ARCHIVE.read_bytes())
    content[len(content) // 2] ^= 1
    damaged = tmp_path / "mnist_12000.npz"
    damaged.write_bytes(content)
    monkeypatch.setattr(_mnist, "_ARCHIVE", damaged)
    with pytest.raises(OSError, match=r"mnist_12000\.npz is damaged.*SHA-256"):
        load_mnist()


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
    np.testing.assert_array_equal(load_mnist_full(str(tmp_path), "unit").X_test, mnist.X_test / 255)


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
        _mnist.read_idx(path)
    assert str(path) in str(caught.value)
