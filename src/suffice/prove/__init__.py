"""Proofs beyond strong convexity: verified minimisers, held-out losses, models without a row.

- `verified`: the exact minimiser near w, exhibited on its signed support; `verified_rows` asks rows
  with one output, or several, what that takes
- `factor`: the factor of a Hessian that is good for proofs
- `held_out`: held-out losses, and how far the error of weights, or a verification, can move them; `scores`: their phi
- `loss_at`: what any upper-level loss is at one w
- `left_out`: all models without one row, or one group of rows; `left_out_bounds`: what is proven of points near them;
  `downdated`: their Hessians; `left_out_slopes`: how they move with the penalties
- `left_out_dual`: the same of ridges of more columns than rows
"""
