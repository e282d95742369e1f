"""Kernel machines, solved in their dual."""
