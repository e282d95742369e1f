import numpy as np
import pytest

from suffice import datasets
from suffice.datasets import load_mnist


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


def test_unknown_arguments_are_named():
    with pytest.raises(ValueError, match=r"part.*'test'"):
        load_mnist("test")
    with pytest.raises(ValueError, match=r"pixels.*'float'"):
        load_mnist(pixels="float")


def test_damaged_archive_is_refused(tmp_path, monkeypatch):
    content = bytearray(datasets._ARCHIVE.read_bytes())
    content[len(content) // 2] ^= 1
    damaged = tmp_path / "mnist_12000.npz"
    damaged.write_bytes(content)
    monkeypatch.setattr(datasets, "_ARCHIVE", damaged)
    with pytest.raises(OSError, match=r"mnist_12000\.npz is damaged.*SHA-256"):
        load_mnist()
