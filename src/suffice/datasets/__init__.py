"""Data to try suffice on. Nothing is read before a loader is called."""

from suffice.datasets._mnist import Mnist, load_mnist, load_mnist_full

__all__ = ["Mnist", "load_mnist", "load_mnist_full"]
