"""Minimising f + g to a proven distance: solvers, certificates, derivatives of solutions."""
