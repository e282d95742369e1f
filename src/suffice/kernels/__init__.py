"""Kernel machines, solved in their dual, with proofs.

functions   kernels, their matrices, and how far these are from exact ones
machines    support vector machines by their duality gap, kernel ridge regression by its residual
"""
