"""The small tables of the tutorials."""

import numpy as np

from suffice.datasets import load_rand_hie, load_rossi


def test_rossi_has_114_arrests_within_a_year():
    data = load_rossi()
    assert data.X.shape == (432, 7) and data.names[0] == "fin"
    assert int((data.y > 0).sum()) == 114 and np.all(data.y[data.y < 0] == -52.0)


def test_visits_vary_more_than_poissons():
    data = load_rand_hie()
    assert data.X.shape == (1010, 9) and data.names[0] == "lncoins"
    assert data.y.var() > 5.0 * data.y.mean() and np.array_equal(data.y, np.round(data.y))
