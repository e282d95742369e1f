"""Minimising f + g to a proven distance: solvers, certificates, derivatives of solutions.

- `problem`, `certificate`, `solution`: what is asked, what is proven, what a solve and a method offer
- `solver`, `many`: the loop for one problem, and for several at a time; `auto` chooses the method
- `newton`: prox-Newton; its Hessians (`hessian`) in their forms (`quadratic`), the minimiser of a step's model
  (`minimise`), and the `line_search`
- `fista`: FISTA and gradient descent
- `sensitivity`: how minimisers move with parameters
- `unproven`: minimisers for many penalties in a row, without proofs
"""
