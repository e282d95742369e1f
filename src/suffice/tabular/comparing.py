"""Choices that a rule has made for a person, looked at again on rows that are held out.

A rule about names and shapes can be wrong by orders of magnitude, and a few small fits tell. A look takes `ROWS` rows
at most and `FOLDS` folds: ridge regression in closed form (of indicators, if there are classes) at the best of
`PENALTIES`, Poisson regression at the best of `PENALTIES_OF_COUNTS`. An *error* is the squared error of held-out rows,
divided by that of the mean of the training rows. What a person has asked for is never looked at.

*Counts* or not: whole numbers are for Poisson regression if its error is at most `TIE` times that of squares, and its
Poisson deviance no larger.

*Codes*: whole numbers under a name such as hour, month or zip (`CODED`), 3 to `MOST_CODES` different ones, become
categories if the error falls to `GAIN`.

*Text* that is different in nearly every row is used if the error falls to `HALF`. (A row whose text comes once only
gains nothing by it: where these are most rows, nothing is looked at.)

*Row numbers* are another matter. Rows have an order in their file, and wherever it tells the target (they are sorted by
it, or one group comes after the other), so does their number, on rows that are held out at random, too; of rows to come
it tells nothing. But a time may count the rows, and be half of the answer. A counter is used, with a warning, if

- its name is not one that rows have (`suffice.tabular.summaries.IDENTIFIER`),
- rows in its order are not sorted by the target: the rank correlation is below `SORTED` times that of sorted rows
  (classes: in the order of their mean ranks),
- the error falls to a `TENTH` on rows held out at random, and on rows beyond those that are known: the quarter with the
  largest numbers and that with the smallest, each predicted from all others.

Otherwise it stays out, and the note says so where the error would have fallen to `HALF`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn.linear_model import PoissonRegressor

from suffice.rows.sums import one_thread
from suffice.tabular.entries import Array, quoted
from suffice.tabular.summaries import IDENTIFIER, WARNING

ROWS, ENTRIES = 2_000, 400_000  # of a look at most; 200 rows in any case
FOLDS = 4
PENALTIES = np.logspace(-10.0, 2.0, 13)
PENALTIES_OF_COUNTS = (1e-6, 1e-4, 1e-2, 1.0, 100.0)  # for a mean of 1
HALF, TENTH, SORTED = 0.5, 0.1, 0.99
TIE, GAIN, MOST_CODES = 1.05, 0.95, 100
CODED = re.compile(
    r"(^|[_\s\-.:])(hr|hours?|mnth|months?|mon|week_?day|day_?of_?week|dow|wday|quarter|qtr|season"
    r"|zip(_?code)?|post(al)?_?code|plz|code)$",
    re.ASCII | re.IGNORECASE,
)
EXACT = 1e-9  # an error that nothing need improve on
TINY = 1e-10  # what a prediction of a count is at least


def most_rows(width: int) -> int:
    """How many rows are looked at, if they become so many columns."""
    return min(ROWS, max(200, ENTRIES // max(width, 1)))


@dataclass(frozen=True, eq=False)
class SampledRows:
    """Some rows of a table: `prepare` makes transformers for numeric and categorical columns of `frame`."""

    frame: Any
    y: Array
    classes: bool
    prepare: Callable[[Sequence[str], Sequence[str]], Any]

    def matrix(self, numeric: Sequence[str], categorical: Sequence[str]) -> Array:
        """The rows as a model sees them."""
        if not numeric and not categorical:
            return np.zeros((len(self.y), 0))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = self.prepare(numeric, categorical).fit_transform(self.frame)
        return np.asarray(made, dtype=np.float64)

    @property
    def targets(self) -> Array:
        """One column of numbers, or one per class that says whether a row is of it."""
        if not self.classes:
            return self.y[:, None].astype(np.float64)
        indicators: Array = (self.y[:, None] == np.unique(self.y)).astype(np.float64)
        return indicators

    @property
    def at_random(self) -> list[Array]:
        """Masks of held-out rows."""
        fold = np.random.default_rng(0).permutation(len(self.y)) % FOLDS
        return [fold == k for k in range(FOLDS)]


# Counts


def family(look: SampledRows, numeric: Sequence[str], categorical: Sequence[str]) -> tuple[bool, float, float]:
    """Whether Poisson regression is for these counts; and the errors of squares and of Poisson's."""
    X, y, held = look.matrix(numeric, categorical), look.y.astype(np.float64), look.at_random
    squares, counts = _ridge(X, y[:, None], held)[:, :, 0], _poisson(X, y, held)
    error = [_errors(made[:, :, None], y[:, None], held).min() for made in (squares, counts)]
    deviance = [min(_deviance(y, prediction) for prediction in made) for made in (squares, counts)]
    counted = error[1] <= TIE * error[0] and deviance[1] <= deviance[0]
    return bool(counted), float(error[0]), float(error[1])


def _deviance(y: Array, prediction: Array) -> float:
    mean = np.maximum(prediction, TINY)
    logarithms = np.log(np.where(y > 0.0, y, 1.0) / np.where(y > 0.0, mean, 1.0))
    return float(2.0 * np.mean(y * logarithms - y + mean))


# Numbers that may be names


def codes(look: SampledRows, numeric: list[str], categorical: list[str], coded: Sequence[str]) -> Iterator[str]:
    """Moves columns that are better as categories from `numeric` to `categorical`, with a note for each."""
    if not coded:
        return
    Y, held = look.targets, look.at_random
    before = _error(look.matrix(numeric, categorical), Y, held)
    for name in coded:
        rest = [one for one in numeric if one != name]
        after = _error(look.matrix(rest, [*categorical, name]), Y, held)
        if before > EXACT and after <= GAIN * before:
            yield (
                f"column {quoted(name)} holds codes, and is taken for categories: held-out rows have {after:.2g} of "
                f"the mean's squared error so, {before:.2g} as numbers (--keep {quoted(name)} keeps them)"
            )
            numeric.remove(name)
            categorical.append(name)
            before = after


# Columns that were left out


def columns(
    look: SampledRows, numeric: list[str], categorical: list[str], doubtful: Mapping[str, str], texts: set[str]
) -> Iterator[tuple[str, bool, str]]:
    """Name, whether it is used, and a note, for every column that was left out for a reason."""
    X, Y, held = look.matrix(numeric, categorical), look.targets, look.at_random
    before = _error(X, Y, held)
    for name, reason in doubtful.items():
        text, left_out = name in texts, f"column {quoted(name)} is left out: {reason} (--keep uses it)"
        if before <= EXACT or (text and _mostly_once(look.frame[name])):
            yield name, False, left_out
            continue
        both = np.concatenate([X, look.matrix([] if text else [name], [name] if text else [])], axis=1)
        after = _error(both, Y, held)
        errors = f"held-out rows have {after:.2g} of the mean's squared error with it, {before:.2g} without it"
        used = after <= HALF * before and (text or (after <= TENTH * before and _tells(look, name, X, both, Y)))
        if after > HALF * before:
            yield name, used, left_out
        elif not used:
            order = f"{errors}, as where rows are in an order that tells the target"
            yield name, used, f"{'' if IDENTIFIER.search(name) else WARNING}{left_out}; {order}"
        elif text:
            yield name, used, f"column {quoted(name)} is used, {reason}: {errors} (--drop leaves it out)"
        else:
            order = f"if it only numbers rows of a file in a certain order, leave it out with --drop {quoted(name)}"
            yield name, used, f"{WARNING}column {quoted(name)} is used, though {reason}: {errors}; {order}"
        if used:
            X, before = both, after


def _mostly_once(values: Any) -> bool:
    return bool((values.map(values.value_counts()) == 1).mean() > HALF)


def _tells(look: SampledRows, name: str, X: Array, both: Array, Y: Array) -> bool:
    """Whether a counter that brings the error down has the answer, and not just the place in the file."""
    if IDENTIFIER.search(name):
        return False
    numbers = look.frame[name].to_numpy(dtype=np.float64)
    known = ~np.isnan(numbers)
    if _sortedness(numbers[known], look.y[known], look.classes) >= SORTED:
        return False
    low, high = np.quantile(numbers[known], [0.25, 0.75])
    ends = [numbers > high, numbers < low]
    return _error(both, Y, ends) <= TENTH * _error(X, Y, ends)


def _sortedness(numbers: Array, y: Array, classes: bool) -> float:
    """The rank correlation, divided by that of sorted rows."""
    place = rankdata(numbers)
    if classes:
        code = np.unique(y, return_inverse=True)[1]
        y = (np.bincount(code, weights=place) / np.bincount(code))[code]
    rank = rankdata(y)
    if np.ptp(rank) == 0.0:
        return 0.0
    return float(abs(np.corrcoef(place, rank)[0, 1]) / np.corrcoef(np.sort(place), np.sort(rank))[0, 1])


# Fits


def _error(X: Array, Y: Array, held: Sequence[Array]) -> float:
    return float(_errors(_ridge(X, Y, held), Y, held).min())


def _errors(predictions: Array, Y: Array, held: Sequence[Array]) -> Array:
    """For every penalty."""
    of_mean = sum(float(np.sum((Y[out] - Y[~out].mean(axis=0)) ** 2)) for out in held)
    squares = sum(np.sum((predictions[:, out] - Y[out]) ** 2, axis=(1, 2)) for out in held)
    errors: Array = squares / max(of_mean, 1e-300)
    return errors


@one_thread()
def _ridge(X: Array, Y: Array, held: Sequence[Array]) -> Array:
    """Predictions of held-out rows, (penalty, row, column of Y)."""
    found = np.full((len(PENALTIES), *Y.shape), np.nan)
    for out in held:
        centre, mean = X[~out].mean(axis=0), Y[~out].mean(axis=0)
        U, s, Vt = np.linalg.svd(X[~out] - centre, full_matrices=False)
        ahead, behind = (X[out] - centre) @ Vt.T, U.T @ (Y[~out] - mean)
        for k, penalty in enumerate(PENALTIES):
            found[k, out] = mean + ahead @ ((s / (s * s + penalty * len(U)))[:, None] * behind)
    return found


@one_thread()
def _poisson(X: Array, y: Array, held: Sequence[Array]) -> Array:
    """Predictions of held-out rows, (penalty, row)."""
    found = np.full((len(PENALTIES_OF_COUNTS), len(y)), np.nan)
    for out in held:
        mean = float(y[~out].mean()) or 1.0
        for k, penalty in enumerate(PENALTIES_OF_COUNTS):
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")  # a look need not converge
                model = PoissonRegressor(alpha=penalty, max_iter=300).fit(X[~out], y[~out] / mean)
                found[k, out] = np.minimum(mean * model.predict(X[out]), 1e100)
    return found
