"""Terms g with a cheap prox, and what certificates and Newton's method know of them.

- `prox`: what a g has to offer; l1 penalties and bounds of single variables, elastic nets, a user's own terms
- `groups`: norms of groups of variables, with or without an l1 penalty
"""
