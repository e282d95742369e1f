"""Proofs beyond strong convexity: verified minimisers, held-out losses, stationarity."""
