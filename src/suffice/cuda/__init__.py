"""Linear models on devices.

- `columns`: many models that share X, as columns of matrices
- `newton_columns`: Newton's method for them, on arrays of torch
"""
