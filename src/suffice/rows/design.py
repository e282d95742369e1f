"""A design matrix X with sample weights a: norms of its rows and columns, products with their rounding, wherever it
lies. Bounds on its spectral norm are proven in `suffice.rows.norms`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from suffice.arrays import EPS, Array, host, like, lives_elsewhere, namespace, norm, whole_number
from suffice.lazy import cached_property
from suffice.rows.blocks import Blocked
from suffice.rows.given import _in_blocks
from suffice.rows.gram import arrays_of, chosen_columns, gram
from suffice.rows.margins import Known, Rider
from suffice.rows.memory import InMemory
from suffice.rows.norms import DENSE_GRAM_SIZE, Surveyed, _gram_bound, _largest, blocks_norm_bound, squared_norm_bound
from suffice.rows.rounding import TINY, gamma
from suffice.rows.sums import Chosen

KEPT_GRAM = 0.7  # of the memory of X: the largest Gram matrix that is kept
OF_FACTORS = 8  # roundings of a_i, of psi', of their product, and of what is added to the sum
MEMORY = 3.0  # times X: the most that all matrices of a Newton step, or of a verification, take together,
LARGE = 1 << 33  # bytes: no more of a matrix in blocks counts there
SMALL = 1 << 23  # bytes, unless it is no more than that


@dataclass(frozen=True, eq=False)
class Design:
    """X (dense, scipy.sparse, blocks of rows here or on a cluster, or an array of torch, CuPy or JAX; float64) and
    non-negative weights a that sum to 1.

    Vectors w are NumPy arrays wherever X lives; margins, weights and targets live with X.
    """

    X: Any
    weights: Any

    @classmethod
    def of(cls, X: Any, sample_weight: Any = None) -> Design:
        """Checked and converted; X is not copied when it already is float64, C- or F-ordered, or CSR. A design, such as
        that of another problem, is shared."""
        if isinstance(X, Design) and sample_weight is None:
            return X
        X = _in_blocks(X)
        if isinstance(X, Blocked):
            finite = True  # it is looked at with all else that takes a pass over X
        elif sp.issparse(X):
            X = X.tocsr().astype(np.float64, copy=False)
            if not X.has_canonical_format:  # an entry that is a sum has a rounding of its own
                X = X.copy()
                X.sum_duplicates()
            finite = bool(np.isfinite(X.data).all())
        elif lives_elsewhere(X):
            xp = namespace(X)
            X = xp.astype(X, xp.float64, copy=False)
            if X.dtype != xp.float64:
                raise TypeError(
                    "X must be in float64, which JAX offers after jax.config.update('jax_enable_x64', True)"
                )
            finite = X.ndim == 2 and bool(xp.all(xp.isfinite(X)))
        else:
            try:
                X = np.asarray(X, dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise TypeError(f"X must be a matrix of real numbers, got {type(X).__name__}") from error
            if not (X.flags.c_contiguous or X.flags.f_contiguous):
                X = np.ascontiguousarray(X)
            finite = X.ndim == 2 and bool(np.isfinite(X).all())
        if X.ndim != 2 or 0 in X.shape:
            raise ValueError(f"X must be a matrix with at least one row and column, got shape {X.shape}")
        if not finite:
            raise ValueError("X must be finite, got NaN or infinite entries")
        rows = X.shape[0]
        if isinstance(X, Blocked) and sample_weight is None:
            sample_weight = Chosen(rows, rows)
        if isinstance(sample_weight, Chosen):  # a rule, of blocks
            return cls(X, sample_weight)._surveyed()
        if sample_weight is None:
            return cls(X, like(np.full(rows, 1.0 / rows), X))
        try:
            a = np.asarray(sample_weight, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(f"sample_weight must be numeric, got {type(sample_weight).__name__}") from error
        if a.shape != (rows,):
            raise ValueError(f"sample_weight must have shape ({rows},), got {a.shape}")
        if not (np.isfinite(a).all() and (a >= 0).all() and a.any()):
            raise ValueError("sample_weight must be finite, non-negative and not all zero")
        a = a / a.max()
        a = a / math.fsum(a)
        return cls(X, X.rows_of(a))._surveyed() if isinstance(X, Blocked) else cls(X, like(a, X))

    def matrix_of(self, Y: Any) -> tuple[Any, int]:
        """Y, an array or a `dask.array` of N x t, to go with the rows of X, and t."""
        Y = np.ascontiguousarray(Y, dtype=np.float64)
        if Y.ndim != 2 or Y.shape[1] < 1 or Y.shape[0] != self.shape[0]:
            raise ValueError(f"Y must be finite, with one of {self.shape[0]} rows for each of X, got {Y.shape}")
        if not np.isfinite(Y).all():
            raise ValueError("Y must be finite, got NaN or infinite entries")
        return self.rows.rows_of(Y), int(Y.shape[1])

    def columns(self, these: Any) -> Design:
        """The same rows with these columns, in the order in which X is stored."""
        X, full = self.X, self.rows.full
        part = np.asarray(chosen_columns(X, these), order="C" if X.flags.c_contiguous else "F") if full else X[:, these]
        return Design(part, self.weights)

    def with_weights_here(self) -> Design:
        """The same rows with weights in main memory, for models whose margins are NumPy's wherever X lives."""
        return Design(self.X, host(self.weights)) if lives_elsewhere(self.X) else self

    def of_rows(self, values: Array) -> Any:
        """Numbers that go with the rows, where the weights live; those that several problems share are held once."""
        return self.X.targets(values, np.asarray) if isinstance(self.X, Blocked) else like(values, self.weights)

    def here(self, values: Any) -> Array:
        """Numbers that go with the rows as an array of NumPy's."""
        return self.X.gathered(values) if isinstance(self.X, Blocked) else host(values)

    def _surveyed(self) -> Design:
        if not math.isfinite(self.survey.largest):
            raise ValueError("X must be finite, got NaN or infinite entries")
        return self

    @cached_property
    def survey(self) -> Surveyed:
        """What a pass over all rows has found, for these weights; of blocks, once for all that have them."""
        if not isinstance(self.X, Blocked):
            return Surveyed.of(self, None)
        known: dict[Any, tuple[Any, Surveyed]] = self.X.__dict__.setdefault("_surveys", {})
        key = self.weights if isinstance(self.weights, Chosen) else id(self.weights)  # held, so that it stays its own
        if key not in known:
            known[key] = self.weights, Surveyed.of(self, next((found for _, found in known.values()), None))
        return known[key][1]

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.X.shape
        return int(rows), int(columns)

    def margins(self, w: Any) -> Any:
        """X w, where X lives, for a vector or a matrix w."""
        return self.X @ like(w, self.X)

    @cached_property
    def rows(self) -> Blocked:
        """X as blocks of rows over which jobs are run: itself, or one block of all that is at hand."""
        return self.X if isinstance(self.X, Blocked) else InMemory(self.X, self.weights)

    @cached_property
    def known(self) -> Known:
        """What was found out about all rows."""
        return Known()

    @cached_property
    def riders(self) -> list[Callable[[Any], Rider]]:
        """What else is found out about margins in the pass that gives a gradient there."""
        return []

    @cached_property
    def pull(self) -> Any:
        """r -> X^T r where X lives, for a vector or a matrix r."""
        return self.rows.adjoint

    def adjoint(self, r: Any) -> Array:
        """X^T r as a NumPy array, from an r that lives with X or is NumPy's."""
        return host(self.pull(like(r, self.X)))

    def margin_rounding(self, w: Array) -> float:
        """c with |fl(x_i . w) - x_i . w| <= c ||x_i|| ||w||: what a weight of 0 adds is exact."""
        return gamma(min(self.row_length, int(np.count_nonzero(w))))

    @cached_property
    def row_norms_there(self) -> Any:
        """Norms of rows where weights are."""
        return like(self.row_norms, self.weights)

    def spread(self, w: Array) -> float:
        """A bound on ||diag(a)^(1/2) (fl(X w) - X w)||, but for underflow."""
        return self.margin_rounding(w) * self.frobenius_norm * norm(w)

    @cached_property
    def pull_rounding(self) -> float:
        """c with ||fl(X^T a r) - X^T a r|| <= c ||diag(a)^(1/2) r||, for entries of a and r that err by a few units
        each, and a last sum with a term of the size of the result."""
        sizes = self.pull_gammas * self.column_norms
        return norm(sizes) * (1.0 + gamma(sum(self.shape)))

    @cached_property
    def pull_gammas(self) -> Array:
        """gamma of all roundings that a term of X^T (a psi') passes, for every column."""
        counts, place = np.unique(self.pull.roundings, return_inverse=True)
        return np.array([gamma(float(count) + OF_FACTORS) for count in counts])[place]

    @property
    def underflow(self) -> float:
        """A bound on what underflows in X^T (a r), for r of moderate size."""
        N, d = self.shape
        return 4.0 * TINY * N * math.sqrt(d) * (1.0 + self.largest_row)

    @property
    def largest_row(self) -> float:
        """max ||x_i||."""
        return self.survey.largest_row

    @property
    def reach(self) -> float:
        """max ||x_i|| over rows that count."""
        return self.survey.reach

    @cached_property
    def squared_norm(self) -> float:
        """A proven upper bound on ||diag(a)^(1/2) X||_2^2."""
        if isinstance(self.X, Blocked):
            return blocks_norm_bound(self)
        known = vars(self).get("gram")
        known = self._made_gram() if known is None else known
        if known is not None:
            return _gram_bound(known, *self.shape)
        return squared_norm_bound(self._weighted())

    @cached_property
    def gram(self) -> Array | None:
        """X^T diag(a) X, the Hessian of least squares for any targets and penalties; None where it is too large to be
        kept, or leaves the range of floats. It is kept once it was asked for; `squared_norm` makes and forgets it."""
        return self._made_gram()

    def _made_gram(self) -> Array | None:
        X, (rows, columns) = self.X, self.shape
        if isinstance(X, Blocked):
            return self.survey.gram if self.survey.unit == 1.0 and columns <= rows else None
        if not self.rows.at_hand or columns > min(rows, DENSE_GRAM_SIZE) or 8 * columns**2 > KEPT_GRAM * bytes_of(X):
            return None
        if not 1e-100 < _largest(X) < 1e100:
            return None
        return gram(X, scale=np.sqrt(self.weights))[0]

    @cached_property
    def least_curvature(self) -> float:
        """A proven lower bound on the least eigenvalue of X^T diag(a) X; 0 where that matrix is not kept."""
        if self.gram is None:
            return 0.0
        trace = float(np.trace(self.gram))
        rounding = (max(self.shape) + 10 * min(self.shape)) * EPS  # as in `_gram_bound`
        return max(float(np.linalg.eigvalsh(self.gram)[0]) - rounding * trace, 0.0)

    @cached_property
    def frobenius_norm(self) -> float:
        """||diag(a)^(1/2) X||_F."""
        return norm(self.column_norms)

    @property
    def row_norms(self) -> Array:
        """||x_i|| of every row; they stay with the rows."""
        return self.survey.row_norms

    @cached_property
    def column_norms(self) -> Array:
        """||diag(a)^(1/2) X_j|| of every column; what may have underflowed in squares counts."""
        with np.errstate(over="ignore"):
            return np.sqrt(self.survey.columns + self.shape[0] * TINY) * self.survey.unit

    @cached_property
    def row_length(self) -> int:
        """The largest number of entries in a row."""
        return int(np.diff(self.X.tocsr().indptr).max(initial=0)) if sp.issparse(self.X) else self.shape[1]

    @property
    def mean(self) -> Array:
        """sum_i a_i x_i."""
        return self.survey.means

    def _weighted(self) -> Any:
        root = like(namespace(self.weights).sqrt(self.weights), self.X)[:, None]
        return self.X.multiply(root).tocsr() if sp.issparse(self.X) else root * self.X


def bytes_of(X: Any) -> int:
    """What X takes, if its entries are in float64."""
    return sum(part.nbytes for part in arrays_of(X)) or 8 * math.prod(X.shape)


def largest_matrix(design: Design, outputs: int = 1) -> int:
    """The side of the largest square matrices of which four fit into MEMORY times X, once for every output, or are
    SMALL."""
    size = bytes_of(design.X)
    if design.rows.dear:  # X is larger than this machine, not its matrices
        size = min(size, LARGE)
    return math.isqrt(max(int(0.75 * MEMORY * size * outputs), SMALL) // 32)


def row_folds(X: Any, folds: int, *, interleaved: bool = False) -> list[tuple[Design, Design]]:
    """(training rows, held-out rows) of every fold, as views of one X in blocks of rows: a `dask.array`, a
    `numpy.memmap`, a `suffice.terms.RowBlocks`, or the `design` of a problem. Each is to be given to problems and
    losses in place of X, together with the targets of all rows; no row is copied.

    Held-out rows are neighbours, as scikit-learn's KFold without shuffling has them or, interleaved, every `folds`-th.
    """
    X = X if isinstance(X, Design) else _in_blocks(X)
    if isinstance(X, Blocked):  # weights that are a rule take no memory
        X = Design(X, Chosen(X.shape[0], X.shape[0]))._surveyed()
    elif not isinstance(X, Design) or not isinstance(X.X, Blocked):
        raise TypeError("a view of rows goes with X in blocks of rows: suffice.terms.RowBlocks, or a dask.array")
    N, rows = X.shape[0], X.rows
    if whole_number(folds, "folds", least=1) < 2 or folds > N:
        raise ValueError(f"folds must be at least 2 and at most the number of rows, {N}, got {folds!r}")
    counts = [len(range(k, N, folds)) for k in range(folds)]
    held = np.arange(N) % folds if interleaved else np.repeat(np.arange(folds), counts)
    numbers = rows.rows_of(held.astype(np.int32))
    return [
        (Design(rows, Chosen(N, N - count, numbers, k, complement=True)), Design(rows, Chosen(N, count, numbers, k)))
        for k, count in enumerate(counts)
    ]
