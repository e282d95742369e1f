r"""Cox's proportional hazards: minus the mean partial log-likelihood,

    f(w) = 1/S sum_t ( s_t log sum_{j in R_t} c_tj exp(m_j)  -  a_t m_t ) + (l2/2) ||w||^2,      m = X w + o,

S the sum of all sample weights a. There is a term t for every event; R_t are the rows at risk at its time: of the same
stratum, with entry_j < time_t <= time_j (left truncation). Ties at one time, d events D:

- Breslow: all c_tj = a_j, and s_t = a_t;
- Efron: term number l = 0 .. d-1 has c_tj = a_j (1 - l/d) for j in D, a_j for the others, and s_t the mean of a on D.

Each term is convex in m, a log-sum-exp. With p_tj = c_tj exp(m_j) / sum_k c_tk exp(m_k) and E_t, Var_t of p_t,

    grad f = 1/S sum_t (s_t E_t[x] - a_t x_t) + l2 w,        v . hess f v = 1/S sum_t s_t Var_t(x . v) + l2 ||v||^2,

and a variance is at most the square of half the range: L = max_j ||x_j - c||^2 sum_t s_t / S + l2 for any centre c;
f does not change if c is taken off all rows. f is l2-strongly convex, which is what certificates rest on. Third
derivatives are third central moments, |f'''[h, v, v]| <= max_t range_t(x . h) Var-part of f''[v, v]: the same that
verification needs (`suffice.prove.verified`) with M = 2 max_j |(x_j - c) . h|, but H's rounding has no bound here, and
nothing is verified: proofs need l2 > 0.

All terms of one time together, with log c taken off so that they vanish where nobody else is at risk, are not negative:
log sum_{R_t} >= log(1 - l/d) + log sum_D a_j exp(m_j), and Jensen's inequality. Their roots are residuals of the
held-out loss (`suffice.losses.PartialLikelihood`).

Sums over R_t are differences of cumulative sums: of rows that are still there, less those not yet entered, less a share
of the events. What that rounds is known afterwards, gamma_n (sum of all parts) / (the difference) =: e_t relative to
the sum, and counts in full in `gradient_rounding`. Terms with e_t above ROUGH are summed over their own rows, one by
one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.arrays import EPS, Array, host, norm
from suffice.lazy import cached_property
from suffice.models.linear import CARRIED, MarginModel, offsets
from suffice.rows.design import Design
from suffice.rows.gram import as_array, centred, gram
from suffice.rows.rounding import TINY, gamma

ROUGH = 1e-9
LEAST = 1e-250  # of a sum: below, its parts may have underflowed
Indices = npt.NDArray[np.intp]


def signed_times(y: Any) -> Array:
    """Times as one array of numbers, positive where there was an event and negative where a time is censored: from
    that, from two columns (time, event), or from an array with a field of bools and one of numbers, as scikit-survival
    has it."""
    y = np.asarray(y)
    if y.dtype.names is not None:
        fields = {name: y.dtype[name].kind for name in y.dtype.names}
        events = [name for name, kind in fields.items() if kind == "b"]
        times = [name for name, kind in fields.items() if kind in "iuf"]
        if len(events) != 1 or len(times) != 1:
            raise ValueError("y must have one field of bools, the event, and one of numbers, the time")
        event, time = y[events[0]], y[times[0]].astype(np.float64)
    elif y.ndim == 2 and y.shape[1] == 2:
        time, event = np.asarray(y[:, 0], dtype=np.float64), np.asarray(y[:, 1]).astype(bool)
    else:
        signed: Array = np.asarray(y, dtype=np.float64)
        if signed.ndim != 1 or not (np.isfinite(signed).all() and (signed != 0.0).all()):
            raise ValueError("y must hold times that are finite and not 0, negative where they are censored")
        return signed
    if not (np.isfinite(time).all() and (time > 0.0).all()):
        raise ValueError("times must be positive and finite: since only their order matters, a constant may be added")
    made: Array = np.where(event, time, -time)
    return made


@dataclass(frozen=True, eq=False)
class RiskSets:
    """Who is at risk when: times, whether there was an event, weights; strata and entries, or None."""

    time: Array
    event: npt.NDArray[np.bool_]
    weight: Array
    efron: bool = True
    strata: Any = None
    entry: Any = None

    @cached_property
    def parts(self) -> list[_Stratum]:
        """The strata, those without events left out."""
        if self.entry is not None and not np.all(np.asarray(self.entry) < self.time):
            raise ValueError("entry must be before the time of every row")
        labels = np.zeros(len(self.time)) if self.strata is None else np.asarray(self.strata)
        made = []
        for label in np.unique(labels):
            rows = np.flatnonzero((labels == label) & (self.weight > 0.0))
            if self.event[rows].any():
                made.append(_Stratum.of(self, rows))
        if not made:
            raise ValueError("y must hold an event at least, of a sample with a positive weight")
        return made

    @cached_property
    def events(self) -> float:
        """The weight of all terms."""
        return float(sum(part.share.sum() for part in self.parts))


@dataclass(frozen=True, eq=False)
class _Stratum:
    """Rows by falling time, with the terms of the likelihood that they make. Sums over rows at risk are made of
    `parts`: of rows in some order, of every term the sum over the first so many of them, times a number."""

    rows: Indices
    parts: list[tuple[Indices, Indices, Any]]
    tied: Indices  # of every term: the first of its ties among `dead`
    dead: Indices  # rows with an event, by falling time: of every term the one whose margin is taken off
    share: Array  # s_t of the module's text
    unit: Array  # the weight of its own row, or of its ties that are left: a term is 0 where nobody else is at risk
    weight: Array  # of rows, as sorted

    @classmethod
    def of(cls, sets: RiskSets, rows: Indices) -> _Stratum:
        rows = rows[np.argsort(-sets.time[rows], kind="stable")]
        time, places = sets.time[rows], np.flatnonzero(sets.event[rows])
        dead, at = rows[places], time[places]
        _, first, ties = np.unique(-at, return_index=True, return_counts=True)
        tied, d = np.repeat(first, ties), np.repeat(ties, ties)
        weights = sets.weight[dead]
        less, share = np.zeros(len(dead)), weights
        parts: list[tuple[Indices, Indices, Any]] = [
            (np.arange(len(rows)), np.searchsorted(-time, -at, side="right"), np.ones(len(dead)))
        ]
        if sets.entry is not None:
            entry = np.asarray(sets.entry, dtype=np.float64)[rows]
            late = np.argsort(-entry, kind="stable")
            parts.append((late, np.searchsorted(-entry[late], -at, side="right"), -np.ones(len(dead))))
        if sets.efron:
            less = (np.arange(len(dead)) - tied) / d
            share = np.add.reduceat(weights, first)[np.repeat(np.arange(len(first)), ties)] / d
        if less.any():
            parts += [(places, tied + d, -less), (places, tied, less)]
        unit = share * d * (1.0 - less) if sets.efron else weights
        return cls(rows, parts, tied, dead, share, unit, sets.weight[rows])

    @cached_property
    def first(self) -> Indices:
        """The first term of every time."""
        return np.unique(self.tied)

    def sums(self, e: Array) -> tuple[Array, Array]:
        """sum_j c_tj e_j of every term, and the sum of all parts it was made of; e (rows or rows x columns) is of rows
        as sorted, with their weights."""
        total = size = np.zeros(())
        for order, count, times in self.parts:
            cumulative = np.zeros((len(order) + 1, *e.shape[1:]))
            np.cumsum(e[order], axis=0, out=cumulative[1:])
            part = (times * cumulative[count].T).T
            total, size = total + part, size + np.abs(part)
        return total, size

    def at_risk(self, t: int) -> tuple[Indices, Array]:
        """The rows of term t, and its c."""
        c = np.zeros(len(self.rows))
        for order, count, times in self.parts:
            c[order[: count[t]]] += times[t]
        here = c > 0.0
        return self.rows[here], self.weight[here] * c[here]

    def back(self, r: Array) -> tuple[Array, Array]:
        """sum_t c_tj r_t / weight_j of every row as sorted, for r >= 0 of every term; and the sum of the parts."""
        pull, size = np.zeros(len(self.rows)), np.zeros(len(self.rows))
        for order, count, times in self.parts:
            given = np.bincount(count, weights=times * r, minlength=len(order) + 1)
            part = np.cumsum(given[::-1])[::-1][1:]  # terms that count beyond the row
            pull[order] += part
            size[order] += np.abs(part)
        return pull, size


@dataclass(frozen=True, eq=False)
class _Terms:
    """The terms of a stratum at some margins."""

    part: _Stratum
    e: Array  # weight exp(m - top) of rows as sorted
    inverse: Array  # s_t / sum_j c_tj exp(m_j - top); 0 for terms that stand alone
    logs: Array  # log sum_j c_tj exp(m_j)
    relative: Array  # e_t of the module's text
    top: float
    alone: list[tuple[Indices, Array]]  # rows and s_t p_t of terms that were summed one by one

    @cached_property
    def back(self) -> tuple[Array, Array]:
        """`_Stratum.back` of the inverse sums."""
        return self.part.back(self.inverse)


@dataclass(frozen=True, eq=False)
class CoxModel(MarginModel):
    """Minus the mean partial log-likelihood with a ridge; X is dense or sparse in main memory, `design` has the rows as
    they are. `offset` is a known part of the margins, or None."""

    design: Design
    sets: RiskSets
    l2: float = 0.0
    offset: Array | None = None
    _latest: list[tuple[Array, Any]] = field(default_factory=list, init=False, repr=False)

    @classmethod
    def of(
        cls,
        design: Design,
        y: Any,
        ties: str = "efron",
        sample_weight: Any = None,
        strata: Any = None,
        entry: Any = None,
        offset: Any = None,
        l2: float = 0.0,
    ) -> CoxModel:
        """Of what a user gives, checked."""
        if design.rows.dear:
            where = "in blocks of rows" if design.rows.here else "on a cluster"
            raise TypeError(f"X is {where}: Cox's model, whose rows depend on each other, needs it in main memory")
        if np.ptp(host(design.weights)) != 0.0:
            raise ValueError(
                "X must be a matrix or a design without sample weights: Cox's model is given them by itself"
            )
        rows, y = design.shape[0], signed_times(y)
        if ties not in ("breslow", "efron"):
            raise ValueError(f"ties must be 'breslow' or 'efron', got {ties!r}")
        weight = np.ones(rows) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        given = {"y": y, "sample_weight": weight, "strata": strata, "entry": entry}
        for name, value in given.items():
            if value is not None and np.shape(value) != (rows,):
                raise ValueError(f"{name} must have shape ({rows},) to match X, got {np.shape(value)}")
        if not (np.isfinite(weight).all() and (weight >= 0.0).all()):
            raise ValueError("sample_weight must be finite and non-negative")
        offset = None if offset is None else offsets(offset, rows)
        sets = RiskSets(np.abs(y), y > 0.0, weight, ties == "efron", strata, entry)
        _ = sets.parts  # raises where there is nothing to learn
        return cls(design, sets, l2, offset)

    @cached_property
    def total(self) -> float:
        """S."""
        return float(self.sets.weight.sum())

    @cached_property
    def reach(self) -> float:
        """No less than max ||x_j - c||, c the mean."""
        X = self.design.X
        centre = np.asarray(X.mean(axis=0)).ravel()
        squares = self.design.row_norms**2 - 2.0 * np.asarray(X @ centre).ravel() + float(centre @ centre)
        slack = gamma(4 * X.shape[1] + 16) * (self.design.row_norms + norm(centre)) ** 2
        return math.sqrt(float(np.max(np.maximum(squares, 0.0) + slack))) * (1.0 + 1e-12)

    @property
    def L(self) -> float:  # noqa: N802 (the symbol)
        """A proven Lipschitz constant of the gradient."""
        return self.reach**2 * self.sets.events / self.total * (1.0 + 1e-12) + self.l2

    def image(self, x: Array) -> Array:
        image: Array = self.design.margins(x)
        return image if self.offset is None else image + self.offset

    def _terms(self, image: Array) -> list[_Terms]:
        """Of every stratum; kept for the last image."""
        for known, there in self._latest:
            if known is image:
                return list(there)
        found = []
        for part in self.sets.parts:
            m = image[part.rows]
            top = float(m.max())
            e = part.weight * np.exp(m - top)
            total, size = part.sums(e)
            with np.errstate(divide="ignore", invalid="ignore"):
                relative = np.where(total > LEAST, 2.0 * gamma(len(m) + 8) * size / total, math.inf)
                inverse = np.where(relative <= ROUGH, part.share / total, 0.0)
                logs = np.log(total) + top
            alone = []
            for t in np.flatnonzero(~(relative <= ROUGH)):
                rows, c = part.at_risk(int(t))
                m_t = image[rows]
                z = c * np.exp(m_t - m_t.max())
                logs[t], relative[t] = math.log(float(z.sum())) + float(m_t.max()), 2.0 * gamma(len(rows) + 8)
                alone.append((rows, float(part.share[t]) * z / float(z.sum())))
            found.append(_Terms(part, e, inverse, logs, relative, top, alone))
        self._latest[:] = [(image, tuple(found))]
        return found

    def time_losses(self, image: Array) -> Array:
        """The loss of every time with an event, all strata one after the other: none is negative."""
        made = []
        with np.errstate(divide="ignore", invalid="ignore"):
            for of in self._terms(image):
                part = of.part
                terms = part.share * (of.logs - np.log(part.unit))
                terms -= self.sets.weight[part.dead] * image[part.dead]
                made.append(np.maximum(np.add.reduceat(terms, part.first), 0.0))
        return np.concatenate(made) / self.total

    def loss_rounding(self, image: Array) -> float:
        """A bound on how far the sum of `time_losses` is from that of the exact margins of this image."""
        found = 0.0
        for of in self._terms(image):
            part, relative, top = of.part, of.relative, of.top
            sizes = 1.0 + 4.0 * (abs(top) + np.abs(image[part.dead])) + np.abs(np.log(part.unit))
            found += float(part.share @ (1.2 * relative + 8.0 * EPS * (sizes + np.log(len(image) + 2.0))))
        return found / self.total * (1.0 + 1e-6)

    def value_at(self, x: Array, image: Array) -> float:
        loss = float(self.time_losses(image).sum())
        return loss + 0.5 * self.l2 * float(x @ x) if math.isfinite(loss) else math.inf

    def pulls(self, image: Array) -> Array:
        """The derivative of the loss with respect to every margin."""
        pulls = np.zeros(len(image))
        for of in self._terms(image):
            part = of.part
            pulls[part.rows] += of.e * of.back[0]
            for rows, pull in of.alone:
                pulls[rows] += pull
            pulls[part.dead] -= self.sets.weight[part.dead]
        return pulls / self.total

    def gradient_at(self, x: Array, image: Array) -> Array:
        gradient: Array = self.design.adjoint(self.pulls(image)) + self.l2 * x
        return gradient

    def gradient_rounding(self, x: Array, image: Array) -> float:
        design, N = self.design, len(image)
        slack, least = CARRIED * design.margin_rounding(x) * norm(x), TINY * len(x) + 4.0 * EPS
        off, size = np.zeros(N), np.zeros(N)
        for of in self._terms(image):
            part, e, relative, rows = of.part, of.e, of.relative, of.part.rows
            # exp(m - top) errs by the error of m, and of the difference; sums by the largest of their parts'.
            of_e = slack * design.row_norms[rows] + 12.0 * EPS * np.abs(image[rows]) + (least + 4.0 * EPS * abs(of.top))
            if self.offset is not None:
                of_e += 8.0 * EPS * np.abs(self.offset[rows])
            moved, largest = float(of_e.max()), float(relative.max())
            if not (moved < 0.1 and largest < 0.1):
                return math.inf
            pull, parts = of.back
            with np.errstate(over="ignore"):
                shaken = part.back(of.inverse * (relative + 2.0 * moved))[1]
            off[rows] += e * (1.2 * (shaken + np.abs(pull) * of_e) + 4.0 * gamma(N + 8) * parts)
            size[rows] += e * parts
            for those, pull in of.alone:
                off[those] += pull * (3.0 * moved + 4.0 * gamma(N + 8))
                size[those] += pull
            size[part.dead] += self.sets.weight[part.dead]
        off = (off + 8.0 * EPS * size) / self.total
        if not np.isfinite(off).all():
            return math.inf
        length = min(math.sqrt(N * design.squared_norm) * norm(off), float(design.row_norms @ off)) * (
            1.0 + gamma(N + 8)
        )
        through_sum = design.pull_rounding * math.sqrt(N) * norm(size / self.total + off)
        return length + through_sum + 2.0 * EPS * self.l2 * norm(x) + design.underflow

    def hessian(self, image: Array, working: Indices) -> Array:
        """The Hessian at these margins on these columns: sum_t s_t Var_t(x) / S."""
        H = np.zeros((len(working), len(working)))
        for of in self._terms(image):
            part, rows = of.part, self._centred(of.part.rows, working)
            shares = np.where(of.inverse > 0.0, part.share, 1.0)
            means = part.sums(of.e[:, None] * rows)[0]
            means *= (of.inverse / shares * np.sqrt(part.share))[:, None]
            rows *= np.sqrt(np.maximum(of.e * of.back[0], 0.0))[:, None]
            H += rows.T @ rows - means.T @ means
            for those, pull in of.alone:
                H += centred(gram(self._centred(those, working), scale=np.sqrt(pull), intercept=True)[0])
        H /= self.total
        H[np.diag_indices(len(H))] += self.l2
        return H

    def _centred(self, rows: Indices, working: Indices) -> Array:
        """These rows and columns of X, less the means of all rows."""
        X, whole = self.design.X, len(working) == self.design.shape[1]
        part: Array = as_array(X[rows] if whole else X[rows][:, working])
        part -= self.design.mean[working]
        return part

    def majoriser(self, z: Array, z_image: Array, x: Array, x_image: Array) -> float:
        return self.L

    def cumulative_hazards(self, image: Array, level: float) -> tuple[Array, Array, Array]:
        """sum_{t up to a time} s_t / sum_j c_tj exp(m_j - level), the cumulative hazard of a row whose margin is
        `level`, at all times of events and at the last time watched: strata, times and hazards, stratum by stratum."""
        sets, made = self.sets, []
        labels = np.zeros(len(sets.time)) if sets.strata is None else np.asarray(sets.strata)
        known = {labels[of.part.rows[0]]: of for of in self._terms(image)}
        for label in np.unique(labels[sets.weight > 0.0]):
            last = sets.time[(labels == label) & (sets.weight > 0.0)].max()
            times, hazards = np.zeros(0), np.zeros(0)
            if (of := known.get(label)) is not None:
                first = of.part.first
                steps = np.add.reduceat(of.part.share * np.exp(level - of.logs), first)
                times, hazards = sets.time[of.part.dead[first]][::-1], np.cumsum(steps[::-1])
            if not len(times) or times[-1] < last:
                times, hazards = np.append(times, last), np.append(hazards, hazards[-1:] if len(hazards) else 0.0)
            made.append((np.full(len(times), label), times, hazards))
        strata, times, hazards = (np.concatenate(parts) for parts in zip(*made, strict=True))
        return strata, times, hazards
