"""Kernel machines.

machines    kernels and their matrices with bounds on errors; support vector machines and kernel ridge regression
"""
