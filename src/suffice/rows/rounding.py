r"""What floating-point arithmetic can do to a sum, at worst.

With u = 2^-53, every operation of float64 errs by at most u relative to its result, and a product that underflows by at
most `TINY` more. In a sum of n products, added in any order, a term passes at most n roundings, so that

    |fl(sum_i a_i b_i) - sum_i a_i b_i|  <=  gamma_n sum_i |a_i b_i|  (+ n TINY),      gamma_n = n u / (1 - n u)

(Higham, Accuracy and Stability of Numerical Algorithms, sections 3.1 and 4.2), with fused multiply-adds or without.
Where all terms are alike, as in the product with a column of ones, the error does grow like n: a bound that grows like
sqrt(n) "with high probability" is wrong there. What grows like sqrt(n) for certain is a sum in two stages. Of n rows
cut into c blocks of at most B, a term passes at most B roundings in its block and c in the sum of the blocks:

    gamma_{B + c},        least at about B = c = sqrt(n).
"""

from __future__ import annotations

import math

import numpy as np

from suffice.arrays import EPS, Array, norm
from suffice.arrays import TINY as TINY

U = 0.5 * EPS
ROOT_TINY = 2.3e-162  # what the root of a sum loses if one of its terms does underflow
SHORTEST_BLOCK = 128  # rows: shorter ones cost more time than they save rounding


def gamma(n: float) -> float:
    """gamma_n: the relative error of n roundings, one upon the other; infinite where nothing is left to be proven."""
    return n * U / (1.0 - n * U) if n * U < 0.5 else math.inf


def block_length(n: int) -> int:
    """B for a sum of n terms; n itself where one stage will do."""
    return n if n <= 2 * SHORTEST_BLOCK else max(SHORTEST_BLOCK, math.isqrt(n))


def roundings(n: int) -> int:
    """How many roundings a term of a sum of n in two stages passes at most."""
    B = block_length(n)
    return min(n, B + math.ceil(n / B) + 1)


def norm_rounding(residuals: Array, share: float = 1.0, terms: int = 0) -> float:
    """How far the computed norm of residuals, each a few roundings off, may be from that of the exact ones, also if it
    is the root of `share` times a sum of squares or losses, of as many `terms` or residuals, some of which underflow.
    """
    lost = 8.0 * (max(residuals.size, terms) + 16) * max(share, 1.0)
    return 2.0 * gamma(residuals.size + 16) * norm(residuals) + math.sqrt(lost) * ROOT_TINY


def dot(a: Array, b: Array) -> float:
    """sum_i a_i b_i in two stages: it errs by at most gamma(roundings(n)) sum_i |a_i b_i|."""
    n, B = len(a), block_length(len(a))
    if n == B:
        return float(a @ b)
    whole = n - n % B
    parts = np.matmul(a[:whole].reshape(-1, 1, B), b[:whole].reshape(-1, B, 1))
    return float(parts.sum()) + float(a[whole:] @ b[whole:])


def dense_product(X: Array, r: Array, B: int) -> Array:
    """X^T r in blocks of B rows."""
    N, d = X.shape
    if B >= N:
        return X.T @ r
    whole = N - N % B
    columns = r.reshape(N, -1)
    stack = X[:whole].reshape(-1, B, d).transpose(0, 2, 1)
    result: Array = np.matmul(stack, columns[:whole].reshape(-1, B, columns.shape[1])).sum(axis=0)
    if whole < N:
        result += X[whole:].T @ columns[whole:]
    return result.reshape(d, *r.shape[1:])
