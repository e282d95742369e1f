"""Linear models on devices, and in the precision that these are fast in.

- `columns`: many models that share X, as columns of matrices
- `batched_columns`: FISTA for them, on any device; `memory`: many steps as one graph of CUDA's
- `newton_columns`: Newton's method for them, on arrays of torch
- `mixed`: FISTA in float32, proofs in float64
"""
