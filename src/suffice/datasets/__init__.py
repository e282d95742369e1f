"""Data to try suffice on: images of digits (`_mnist`), small tables (`_tables`). Nothing is read before a loader is
called."""

from suffice.datasets._mnist import Mnist, load_mnist
from suffice.datasets._tables import Numbers, load_rand_hie, load_rossi

__all__ = ["Mnist", "Numbers", "load_mnist", "load_rand_hie", "load_rossi"]
