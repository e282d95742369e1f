"""Smooth terms f: losses of rows, the linear models they make, and what is minimised out of these."""
