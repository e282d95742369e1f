r"""Prox-Newton for many linear models that share an X of torch, on its device: column j of every matrix is problem j.

A step is that of `suffice.solvers.newton`, made for all columns at a time: the model

    q(v) = <grad f(w), v - w> + 1/2 (v - w)^T H (v - w) + l1 ||v||_1,        H = X^T C X + l2,    C = diag(a psi'')

on the variables that are not at their optimum, all of them, and H of all rows: on such a device a Hessian costs as much
as a few products with X. Where an intercept is minimised out (`suffice.cuda.columns`), H is that of X less its
mean by C. Columns have their own variables, so that matrices are padded with ones on the diagonal to the size of the
largest. Its minimiser is sought with the signs of w first, and then, for the columns where these are not the
minimiser's, by ADMM with R = 0.3 diag(H),

    s = (H + R)^-1 (b + R v - y),   s' = 1.6 s - 0.6 v,   v = soft(s' + y/R, l1/R),   y = R (s' + y/R - v),

b = H w - g, after which the signs of v are tried. Along v - w values of Phi decide, and where they differ by little
more than their rounding its derivatives (`suffice.solvers.line_search`): both need margins only, X once per step.

Radii are estimated by the gap at w; proofs are made from the gradient at w, one column at a time.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.arrays import EPS, Array, host, like
from suffice.cuda.columns import ColumnProblems, are_alike, column
from suffice.models.intercept import Intercepted
from suffice.penalties.prox import L1, l1_least_subgradient
from suffice.rows.design import Design
from suffice.solvers.certificate import certify_step
from suffice.solvers.hessian import LEAST_RIDGE, hessians_of
from suffice.solvers.minimise import admm_step
from suffice.solvers.newton import NewtonState
from suffice.solvers.problem import Composite
from suffice.solvers.solution import Outcome, Solution

MOST_COLUMNS = 8192  # of X, so that a Hessian of each problem fits
GIGABYTES = 8.0  # of Hessians at a time
SEEK, ROUNDS = 40, 4  # iterations of ADMM before signs are tried, and how often
CLOSE = 0.2  # by which the minimiser of q shortens q's least subgradient
HALVINGS = 30
BLURRED = 1e-6  # of Phi: smaller differences of values need not be more than their rounding
LEAST_SUM = 1e-300  # of C, which divides
SEEN = 0.9  # a step in the dark of rounding has to shorten the least subgradient to this share

_least: Callable[..., Any] = l1_least_subgradient  # arrays of torch have more methods than it says


@dataclass(frozen=True)
class NewtonColumns:
    """What moves: weights, shifted margins, gradients and lengths of the least subgradient; which columns cannot get
    on."""

    W: Any
    M: Any
    G: Any
    length: Any
    made: Any
    ended: Any

    def only(self, kept: list[int]) -> NewtonColumns:
        return NewtonColumns(*(value[..., kept] for value in vars(self).values()))


@dataclass(frozen=True)
class NewtonBatch:
    """Linear models of one X and one psi, with an intercept or without, X an array of torch, as columns of matrices;
    immutable like a state. Folds have weights of their own."""

    shared: ColumnProblems
    columns: NewtonColumns

    @classmethod
    def holds(cls, problems: Sequence[Composite]) -> bool:
        """Whether these can be one batch."""
        if not are_alike([problem.smooth for problem in problems]):
            return False
        penalised = all(isinstance(problem.prox, L1) and problem.mu > 0.0 for problem in problems)
        X: Any = problems[0].smooth.design.X  # type: ignore[attr-defined]
        return penalised and type(X).__module__.partition(".")[0] == "torch" and X.shape[1] <= MOST_COLUMNS

    @classmethod
    def of(cls, starts: Sequence[Solution]) -> NewtonBatch:
        """A batch that goes on from these."""
        shared = ColumnProblems.of([start.problem for start in starts])  # type: ignore[misc]
        W = like(np.stack([start.x for start in starts], axis=1), shared.l2)
        made = like(np.array([float(start.state.k) for start in starts]), shared.l2)
        ended = like(np.array([float(start.state.ended) for start in starts]), shared.l2) > 0.5
        return cls(shared, _at(shared, W, shared.design.margins(W), made, ended))

    def advanced(self, steps: int) -> NewtonBatch:
        """The batch after so many further steps."""
        columns = self.columns
        for _ in range(steps):
            columns = _step(self.shared, columns)
        return replace(self, columns=columns)

    def estimates(self) -> Array:
        """The radii that would be proven, but for rounding."""
        return host(self.shared.gaps(self.columns.W, self.columns.G))

    def ended(self) -> npt.NDArray[np.bool_]:
        """Which problems no step can bring on, or have left the range of floats."""
        return np.asarray(host(self.columns.ended | ~self.columns.W.isfinite().all(0)), dtype=np.bool_)

    def solution(self, j: int, start: Solution) -> Solution:
        """Where problem j is, with its proof; `start` is where it came from."""
        s, problem = self.columns, self.shared.problems[j]
        x = column(s.W, j)
        if not np.isfinite(x).all():
            return start
        hessians, own = hessians_of(problem.canonical), isinstance(problem.smooth, Intercepted)
        assert hessians is not None
        # proofs know the error of the host's own intercept
        image = problem.canonical.f.image(x) if own else s.M[:, j].clone()
        evidence = hessians.evidence(x, image, None if own else column(s.G, j))
        proof = certify_step(problem.canonical, x, image, evidence, "free")
        state = NewtonState(x, int(s.made[j]), ended=bool(s.ended[j]), image=image, evidence=evidence)
        return replace(start, x=x, certificate=proof, outcome=Outcome.STEPS, state=state, problem=problem)

    def only(self, kept: list[int]) -> NewtonBatch:
        """The batch without the others."""
        return replace(self, shared=self.shared.only(kept), columns=self.columns.only(kept))


def _at(shared: ColumnProblems, W: Any, M: Any, made: Any, ended: Any) -> NewtonColumns:
    m = shared.losses.shifted(M)
    G = shared.gradients(W, m)
    return NewtonColumns(W, m, G, _least(shared.l1, W, G).norm(dim=0), made, ended)


def _step(shared: ColumnProblems, s: NewtonColumns) -> NewtonColumns:
    """One step of every column that has not ended."""
    torch = _torch()
    least = _least(shared.l1, s.W, s.G)
    moving = ~s.ended & (s.length > 0.0)
    if not bool(moving.any()):
        return replace(s, ended=s.ended | (s.length == 0.0))
    target = _targets(shared, s, least, moving)
    t, M_target, hidden = _lengths(shared, s, target)
    t = torch.where(moving, t, 0.0)
    W = torch.where(t == 1.0, target, s.W + t * (target - s.W))
    W = torch.where(t == 0.0, s.W, W)
    M = M_target if bool((t == 1.0).all()) else shared.design.margins(W)
    there = _at(shared, W, M, s.made + (t > 0.0), s.ended)
    worse = (t == 0.0) | (hidden & ~(there.length < s.length))
    ended = s.ended | worse | (hidden & (there.length > SEEN * s.length)) | (there.length == 0.0)
    pairs = zip(vars(s).values(), vars(there).values(), strict=True)
    return replace(NewtonColumns(*(torch.where(worse, old, new) for old, new in pairs)), ended=ended)


def _targets(shared: ColumnProblems, s: NewtonColumns, least: Any, moving: Any) -> Any:
    """The minimisers of q, columns that do not move left where they are."""
    torch = _torch()
    target = s.W.clone()
    numbers = [int(j) for j in torch.nonzero(moving).ravel()]
    counts = ((s.W != 0.0) | (least != 0.0)).sum(0)
    size = int(counts.max())
    at_once = _at_once(size)
    for first in range(0, len(numbers), at_once):
        these = numbers[first : first + at_once]
        size = int(counts[these].max())
        free, padding = _variables(s.W[:, these], least[:, these], size)
        losses = shared.losses.only(these)
        C = losses.curvature(s.M[:, these])
        H = _hessians(shared.design, C, shared.l2[these][:, None], free, padding, losses.origins is not None)
        w, g = (torch.where(padding, 0.0, A[:, these].T.gather(1, free)) for A in (s.W, s.G))
        v = _minimise(H, g, w, torch.where(padding, 0.0, shared.l1[these][:, None].expand_as(w)))
        columns = target[:, these].T.contiguous()
        columns.scatter_(1, free, torch.where(padding, columns.gather(1, free), v))
        target[:, these] = columns.T
    return target


def _variables(W: Any, least: Any, size: int) -> tuple[Any, Any]:
    """For every column the numbers of the variables that move, and which of them are padding (others, that do not)."""
    torch = _torch()
    moves = ((W != 0.0) | (least != 0.0)).T
    order = torch.sort(moves.to(torch.int8), dim=1, descending=True, stable=True)
    return order.indices[:, :size], order.values[:, :size] == 0


def _hessians(design: Design, C: Any, ridge: Any, free: Any, padding: Any, centred: bool) -> Any:
    """X^T diag(c) X + ridge on some variables, for every column c of C, X less its mean by c if it is to be `centred`;
    1 on the diagonal where there is padding."""
    torch, X = _torch(), design.X
    least = LEAST_RIDGE * design.frobenius_norm**2 / design.shape[1]
    H = torch.empty((len(free), free.shape[1], free.shape[1]), dtype=X.dtype, device=X.device)
    for k in range(len(free)):
        A = X if free.shape[1] == X.shape[1] else X.index_select(1, free[k])
        scaled = A * C[:, k, None]
        whole = scaled.T @ A
        if centred:
            pulled = scaled.sum(0)
            whole -= torch.outer(pulled, pulled / C[:, k].sum().clamp(min=LEAST_SUM))
        H[k] = whole[free[k]][:, free[k]] if A is X else whole
    H.masked_fill_(padding[:, :, None] | padding[:, None, :], 0.0)
    diagonal = torch.diagonal(H, dim1=1, dim2=2)
    diagonal += torch.where(padding, 1.0, ridge.clamp(min=least))
    return H


def _at_once(size: int) -> int:
    """How many Hessians of this size, with what is made of them, fit."""
    return max(1, int(GIGABYTES * 2.0**30 / (5 * 8 * size * size)))


def _minimise(H: Any, g: Any, w: Any, l1: Any) -> Any:
    """The minimisers of q, one per row: with the signs of w where these are right, else sought by ADMM."""
    torch = _torch()
    if not bool((l1 > 0.0).any()):
        return w - _solve(H, g)
    goal = CLOSE * _least(l1, w, g).norm(dim=1)
    v, found = _with_signs_of(w, g, H, g, w, l1, goal)
    v = torch.where(found[:, None], v, w)
    left = torch.nonzero(~found).ravel()
    if len(left) == 0:
        return v
    H, g, w, l1, goal = H[left], g[left], w[left], l1[left], goal[left]
    v[left] = _sought(H, g, w, l1, goal)
    return v


def _sought(H: Any, g: Any, w: Any, l1: Any, goal: Any) -> Any:
    torch = _torch()
    R = 0.3 * torch.diagonal(H, dim1=1, dim2=2)
    inverse = torch.cholesky_inverse(_cholesky(H + torch.diag_embed(R)))
    b, threshold = _times(H, w) - g, l1 / R
    v, y = w, (-g).clamp(-l1, l1)
    best, found = w, torch.zeros(len(w), dtype=torch.bool, device=w.device)
    for _ in range(ROUNDS):
        for _ in range(SEEK):
            v, y = admm_step(v, y, b, R, threshold, partial(_times, inverse))
        at_v = g + _times(H, v - w)
        exact, fits = _with_signs_of(v, at_v, H, g, w, l1, goal)
        near = _least(l1, v, at_v).norm(dim=1) <= goal
        new = ~found & (fits | near)
        best = torch.where(new[:, None], torch.where(fits[:, None], exact, v), best)
        found = found | new
        if bool(found.all()):
            return best
    return torch.where(found[:, None], best, v)


def _with_signs_of(v: Any, at_v: Any, H: Any, g: Any, w: Any, l1: Any, goal: Any) -> tuple[Any, Any]:
    """The minimisers of q among points with the signs of v, and which of them have these and are as good as wanted."""
    torch = _torch()
    signs = torch.where(v != 0.0, v.sign(), -_least(l1, v, at_v).sign())
    free = signs != 0.0
    start = torch.where(free, w, 0.0)
    b = torch.where(free, g + _times(H, start - w) + l1 * signs, 0.0)
    both = free[:, :, None] & free[:, None, :]
    exact = start - _solve(torch.where(both, H, 0.0) + torch.diag_embed((~free).to(H.dtype)), b)
    right = ~((exact * signs < 0.0).any(1))
    close = _least(l1, exact, g + _times(H, exact - w)).norm(dim=1) <= goal
    return exact, right & close


def _lengths(shared: ColumnProblems, s: NewtonColumns, target: Any) -> tuple[Any, Any, Any]:
    """The share of the way to the target that every column goes, the targets' margins, and whose decrease is hidden by
    rounding."""
    torch = _torch()
    direction, M_target = target - s.W, shared.design.margins(target)
    along = M_target - s.M
    value = _values(shared, s.W, s.M)
    slope = ((s.G * direction).sum(0) + shared.l1 * (target.abs() - s.W.abs()).sum(0)).clamp(max=0.0)
    noise = EPS * (8.0 + math.sqrt(s.M.shape[0])) * value.abs()
    clear = slope.abs() > BLURRED * value.abs()
    hidden = ~clear & (slope.abs() <= noise)
    t, done = torch.ones_like(value), hidden  # whole steps there: the least subgradient tells whether they are made
    for _ in range(HALVINGS):
        W, m = s.W + t * direction, shared.losses.shifted(s.M + t * along)
        change = _values(shared, W, m) - value
        enough = clear & (change <= 1e-3 * t * slope + noise)
        if not bool((enough | done).all()):
            end = _derivative(shared, s, direction, along, t)
            enough |= (end <= 0.0) | (end + _derivative(shared, s, direction, along, 0.5 * t) < 0.0)
        done = done | enough
        if bool(done.all()):
            break
        t = torch.where(done, t, 0.5 * t)
    return torch.where(done, t, 0.0), M_target, hidden


def _values(shared: ColumnProblems, W: Any, m: Any) -> Any:
    """Phi, for margins that are shifted."""
    return shared.losses.values(m) + 0.5 * shared.l2 * (W * W).sum(0) + shared.l1 * W.abs().sum(0)


def _derivative(shared: ColumnProblems, s: NewtonColumns, direction: Any, along: Any, t: Any) -> Any:
    """phi'(t) from the left."""
    torch = _torch()
    W, m = s.W + t * direction, shared.losses.shifted(s.M + t * along)
    smooth = (shared.losses.slopes(m) * along).sum(0) + shared.l2 * (W * direction).sum(0)
    of_norm = torch.where(W != 0.0, W.sign() * direction, -direction.abs())
    return smooth + shared.l1 * of_norm.sum(0)


def _times(H: Any, v: Any) -> Any:
    return (H @ v[:, :, None])[:, :, 0]


def _solve(H: Any, b: Any) -> Any:
    return _torch().cholesky_solve(b[:, :, None], _cholesky(H))[:, :, 0]


def _cholesky(H: Any) -> Any:
    """Factors; of a little more where rounding has made a matrix indefinite, NaN of one that has left the range of
    floats: no step is made of that."""
    torch, shift = _torch(), 0.0
    size, lost = torch.diagonal(H, dim1=1, dim2=2).amax(1), ~H.isfinite().all(2).all(1)
    while True:
        A = H if shift == 0.0 else H + torch.diag_embed((shift * size)[:, None].expand(-1, H.shape[1]))
        factor, failed = torch.linalg.cholesky_ex(A)
        left = (failed != 0) & ~lost
        if not bool(left.any()) or shift > H.shape[1]:
            return torch.where((left | lost)[:, None, None], torch.nan, factor)
        shift = max(100.0 * shift, 1e-15)


def _torch() -> Any:
    return importlib.import_module("torch")
