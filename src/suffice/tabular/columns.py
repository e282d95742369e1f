"""What becomes of a column: numbers, categories, or nothing.

A `Summary` has all that decides, as numbers that are known of any rows and add up over parts of a table. The rules are
made of nothing else, so they are the same for a table in memory, which is one part, and for one in many.

- *numeric* (also true and false): used as numbers, see `suffice.tabular.preparation`;
- *categorical* (text, or by request): one column of zeros and ones per level, missing being a level, too. With
  `--max-levels`, or where there are more than `WIDTH` levels in all, the rarest share one column, `other`, and so do
  levels that a fitted model has never seen. Otherwise even levels of one row have their own column, since the penalty
  deals with them better than joining does: joined below 2 (5) rows, R^2 of held-out rows falls from 0.81 to 0.80 (0.75)
  for 140 levels of very different size in 1500 rows, and from 0.73 to 0.68 (0.63) for 500. A new level then has the
  effect of none, that of the average row;
- *left out*, with a note: columns with one value or none, nested values, and those in which nearly every row has a
  value of its own: text with more than 30 levels, more than half as many as rows; whole numbers all different under a
  name such as id, or that count the rows: n > 30 of them from 0 or 1 on, consecutive in the order of the rows, or dense
  (their range is below 3 n: n different numbers out of so few come about by counting, not by measuring). If they begin
  elsewhere, they may be years or positions: they are used, with a warning. So are columns left out for their different
  values that decide the target of held-out rows (`decisive`).

Whole numbers under a name such as hr, month, weekday, zip or firm may be names of something, too. They are categories
if that brings the squared error of held-out rows to 0.98 of what it is with numbers (`as_categories`); a note has both.
Few different whole numbers under any other name stay numbers, since a level that is new would have no effect, where a
number lies between others; a note tells of categories that bring the error to 0.9.

There is a warning of columns that give the target away, too. A column does so if its levels (of 5 rows each, at least
on average), or one interval of its numbers for each class, tell the class of 99.5 % of the rows, or if its correlation
with the target (that of its levels' means) is above 0.999. Such columns are mostly another form of the target, or were
written down after it was known; a model with them is of no use for rows that are new.
"""

from __future__ import annotations

import math
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata

from suffice.rows.sums import one_thread
from suffice.tabular.entries import Array, Column, Kind, listed, quoted
from suffice.tabular.preparation import preparation_of
from suffice.tabular.settings import ColumnSettings

WARNING = "warning: "  # how notes begin that nobody should overlook
IDENTIFIER = re.compile(
    r"(^|[_\s\-.:])(?i:id|idx|index|uuid|key|obs|rownum|row|rownames?|(row|case|serial)[_\s\-.]?(no|nr|number|names?))$"
    r"|[a-z]I[dD]$|^Unnamed: 0$",
    re.ASCII,
)
CODED = re.compile(
    r"(^|[_\s\-.:])(hr|hours?|mnth|months?|week_?day|day_?of_?week|dow|wday|quarter|qtr|season|zip(_?code)?|post(al)?_?code"
    r"|plz|code|class|type|group|category|dep(artmen)?t|region|district|state|county|country|site|block|store|shop|firm"
    r"|industry|sector|brand|batch|clinic|hospital|school|cluster|litter|subject|person)$",
    re.ASCII | re.IGNORECASE,
)
FEW = 30  # different texts that a column may have whatever the number of rows
DENSE = 3
MOST_TEXTS, MOST_NUMBERS = 20_000, 200  # different values that are counted one by one
WIDTH = 5_000  # columns that categories may become in all; matrices of this size squared have 200 MB
ONE_VALUE = "it has one value only"
ROWS, COLUMNS = 5_000, 2_000  # how many are looked at for what tells the target
SEPARATED, CORRELATED = 0.995, 0.999
FOLDS = 4  # of a look at held-out rows
HALF, TENTH, EXACT, SORTED = 0.5, 0.1, 1e-9, 0.99
BETTER = 0.98  # a squared error that makes numbers categories; of a column whose name says nothing,
MUCH_BETTER, PROMISING = 0.9, 0.05  # one that is told of, and the share of residuals that its levels explain before


@dataclass(frozen=True)
class Summary:
    """Of some rows of a column."""

    name: str
    kind: Kind
    known: int
    missing: int
    different: int | None  # values; None: nobody knows
    levels: Mapping[Any, int] | None  # in order, with their rows; None: too many
    low: float = math.inf
    high: float = -math.inf
    whole: bool = True
    rising: bool = True  # strictly, in the order of the rows
    falling: bool = True
    origin: str = ""  # as of a `Column`
    what: str = ""

    @classmethod
    def of(cls, column: Column, values: Array) -> Summary:
        text = column.kind == "text"
        absent = np.array([value is None for value in values], dtype=bool) if text else np.isnan(values)
        there = values[~absent]
        levels, counts = np.unique(there.astype(str) if text else there, return_counts=True)
        few = len(levels) <= (MOST_TEXTS if text else MOST_NUMBERS)
        known = dict(zip(levels.tolist(), counts.tolist(), strict=True)) if few else None
        made = (column.name, column.kind, len(there), int(absent.sum()), len(levels), known)
        if text or not len(there):
            return cls(*made, origin=column.origin, what=column.what)
        steps, whole = np.diff(there), bool((levels == np.round(levels)).all())
        order = bool((steps > 0).all()), bool((steps < 0).all())
        return cls(*made, float(levels[0]), float(levels[-1]), whole, *order, column.origin)

    def then(self, other: Summary) -> Summary:
        """With the rows that follow."""
        levels = None
        if self.levels is not None and other.levels is not None:
            levels = dict(sorted((Counter(self.levels) + Counter(other.levels)).items()))
            levels = levels if len(levels) <= (MOST_TEXTS if self.kind == "text" else MOST_NUMBERS) else None
        known = self.known + other.known
        rising = self.rising and other.rising and (not other.known or self.high < other.low)
        falling = self.falling and other.falling and (not other.known or self.low > other.high)
        different = len(levels) if levels is not None else known if rising or falling else None
        return Summary(
            self.name, self.kind, known, self.missing + other.missing, different, levels, min(self.low, other.low),
            max(self.high, other.high), self.whole and other.whole, rising, falling, self.origin,
        )  # fmt: skip

    @property
    def categories(self) -> int:
        """Missing is one, too."""
        return (self.different or 0) + bool(self.missing)

    @property
    def useless(self) -> str:
        """Why nobody can use a column; empty if it may be of use."""
        if self.kind == "other":
            return f"{self.what} is neither numbers nor text"
        if self.known == 0:
            return "it has no values"
        if self.kind == "text" and self.different is None:
            return f"it has more than {MOST_TEXTS:,} different texts"
        return ONE_VALUE if self.different == 1 and not self.missing else ""

    @property
    def identifying(self) -> str:
        """How a column identifies rows; empty if it does not."""
        count = self.different
        if self.kind == "text" and count is not None and count > max(FEW, 0.5 * self.known):
            return f"{count:,} different texts in {self.known:,} rows"
        if not self._all_different:
            return ""
        if self.low in (0.0, 1.0) and self.high - self.low < DENSE * self.known:
            ordered = (self.rising or self.falling) and self.high - self.low == self.known - 1
            numbers = f"its {self.known:,} different whole numbers from {self.low:.0f} to {self.high:.0f}"
            return "it counts the rows" if ordered else f"{numbers} look like row numbers"
        return "it looks like an identifier" if IDENTIFIER.search(self.name) else ""

    @property
    def _all_different(self) -> bool:
        return self.kind == "numeric" and self.whole and self.different == self.known > FEW

    @property
    def coded(self) -> bool:
        """Whether numbers may be names of something."""
        whole = self.kind == "numeric" and self.whole and self.categories > 2
        return whole and (self.named_as_code or len(self.levels or ()) in range(3, FEW + 1))

    @property
    def named_as_code(self) -> bool:
        return bool(CODED.search(self.name))

    @property
    def caution(self) -> str:
        """A warning of numbers that are used as numbers, and may be numbers of rows."""
        dense = self.high - self.low < DENSE * self.known
        if not self._all_different or not (dense or self.rising or self.falling):
            return ""
        how = "in the order of the rows" if self.rising or self.falling else "nearly without gaps"
        holds = f"column {quoted(self.name)} holds {self.known:,} different whole numbers {how}"
        return f"{WARNING}{holds}: if they only number the rows, leave them out with --drop {quoted(self.name)}"


def features(
    columns: Mapping[str, Summary], wish: ColumnSettings, notes: list[str]
) -> tuple[list[str], dict[str, int], list[Summary], list[Summary]]:
    """Numeric columns, categorical ones with the number of their levels, those in which every row has a value of its
    own, and of the numeric ones those that may be names of something."""
    numeric: list[str] = []
    levels: dict[str, int] = {}
    doubtful: list[Summary] = []
    coded: list[Summary] = []
    for name, column in columns.items():
        kept = bool({name, column.origin} & {*wish.keep}) or name in wish.categorical or bool(column.origin)
        if no_use := column.useless:
            if not (column.origin and no_use == ONE_VALUE):  # a year that all dates share is nothing to tell of
                notes.append(f"column {quoted(name)} is left out: {no_use}")
        elif not kept and column.identifying:
            doubtful.append(column)
        elif column.kind == "text" or name in wish.categorical:
            levels[name] = column.categories
        else:
            if not kept and column.coded:
                coded.append(column)
            if not kept and column.caution:
                notes.append(column.caution)
            numeric.append(name)
    return numeric, levels, doubtful, coded


def columns_for(levels: Mapping[str, int], most: int) -> int:
    """Columns that categories become if each has this many levels of its own at most, and `other`."""
    return sum(min(count, most) + 1 for count in levels.values())


def most_levels(levels: Mapping[str, int], wish: int | None, width: float, notes: list[str]) -> int:
    """How many levels of a categorical column may have a column of their own, of so many columns in all."""
    most = max([2, *levels.values()]) if wish is None else wish
    if columns_for(levels, most) > width:
        most = max(k for k in range(2, most + 1) if k == 2 or columns_for(levels, k) <= width)
    for name, count in levels.items():
        if FEW < count <= most:
            notes.append(f"column {quoted(name)} has {count:,} levels, each with a coefficient")
    if cut := [name for name, count in levels.items() if count > most]:
        why = "--max-levels" if most == wish else f"more than {width:,.0f} columns would be too many"
        beyond = f"beyond the {most:,} most frequent levels, all join 'other' ({why})"
        notes.append(f"column{'s' if len(cut) > 1 else ''} {listed(cut, 3)}: {beyond}")
    return most


def telling(X: Any, y: Array, task: str, categorical: set[str]) -> Iterator[str]:
    """Warnings of columns, of some rows, that tell the target by themselves."""
    if len(y) < 20:
        return
    for name in list(X.columns)[:COLUMNS]:
        values = X[name].to_numpy()
        if name in categorical:
            values = np.unique([str(value) for value in values], return_inverse=True)[1]
            if 5 * (values.max() + 1) > len(y):
                continue
        known = ~np.isnan(values.astype(float))
        if known.mean() < 0.5 or known.sum() < 20:
            continue
        if task == "classification":
            how = _told_class(values, np.unique(y, return_inverse=True)[1], known, ordered=name not in categorical)
        else:
            how = _told_number(values[known].astype(float), y[known], averaged=name in categorical)
        if how:
            leave = f"if it is not known before the target is, leave it out with --drop {quoted(name)}"
            yield f"{WARNING}column {quoted(name)} {how}: {leave}"


def _told_class(values: Array, code: Array, known: Array, *, ordered: bool) -> str:
    most = np.bincount(code).max() / len(code)
    level = np.unique(values[known], return_inverse=True)[1]
    table = np.zeros((level.max() + 1, code.max() + 1))
    np.add.at(table, (level, code[known]), 1.0)
    right = table.max(axis=1).sum() + most * np.sum(~known)
    if ordered:  # a row between those of another class makes two changes more than one for every class
        changes = np.count_nonzero(np.diff(table.argmax(axis=1)))
        right -= max(changes - code.max(), 0) / 2.0
    share = right / len(code)
    told = share >= SEPARATED and most <= SEPARATED - 0.02
    return f"tells the class of {100 * share:.1f} % of the rows by itself" if told else ""


def _told_number(x: Array, y: Array, *, averaged: bool) -> str:
    if averaged:
        level = x.astype(int)
        x = (np.bincount(level, weights=y) / np.maximum(np.bincount(level), 1))[level]
    if np.ptp(x) == 0.0 or np.ptp(y) == 0.0:
        return ""
    correlation = float(np.corrcoef(x, y)[0, 1])
    return f"has correlation {correlation:.5f} with the target" if abs(correlation) > CORRELATED else ""


# Looks at held-out rows


@one_thread()
def held_out(models: list[Any], X: Array, y: Array) -> list[Array]:
    """Predictions of rows that follow each other, by models of the others."""
    from sklearn.model_selection import KFold, cross_val_predict

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # a look need not converge
        return [np.minimum(cross_val_predict(model, X, y, cv=KFold(FOLDS)), 1e100) for model in models]


def by_squares(X: Array, y: Array) -> list[Array]:
    """Such predictions by ridge regression with a few penalties."""
    from sklearn.linear_model import Ridge

    return held_out([Ridge(len(y) * penalty) for penalty in 10.0 ** np.arange(-8.0, 3.0)], X, y)


def share_of_mean(made: list[Array], y: Array) -> float:
    """The least squared error, as a share of the mean's."""
    return min(float(np.sum((one - y) ** 2) / max(np.sum((y - y.mean(axis=0)) ** 2), 1e-300)) for one in made)


def decisive(look: Any, y: Array, classes: bool, doubtful: list[Summary], numeric: list[str], levels: Any) -> Any:
    """Notes on columns that are left out, or moved from there to the others since they decide the target of some rows.
    Text does if it halves the error of rows held out at random. A counter, of which rows in a file that is sorted by
    the target are predicted as well, has to bring the error of each quarter of the numbers, by the other three, to a
    tenth; the rows in its order must not be sorted, and its name not say that it numbers rows."""
    code, Y = np.unique(y, return_inverse=True)[1], _numbers_of(y, classes)
    for column in doubtful:
        name, reason, text = column.name, column.identifying, column.kind == "text"
        note, named = f"is left out: {reason} (--keep uses it)", bool(IDENTIFIER.search(name))
        tried = (numeric, [*levels, name]) if text else ([*numeric, name], [*levels])
        told = not text or look[name].duplicated(keep=False).mean() > HALF
        if told:
            order = np.random.default_rng(0).permutation(len(y)) if text else np.argsort(look[name].to_numpy())
            before, after = (_looked(look, Y, order, *pair)[0] for pair in ((numeric, [*levels]), tried))
            errors = f"held-out rows have {after:.2g} of the mean's squared error with it, {before:.2g} without it"
            told = before > EXACT and after <= HALF * before
        if told and text:
            note = f"is used, {reason}: {errors} (--drop leaves it out)"
            levels[name] = column.categories
        elif told and not named and after <= TENTH * before and not _sorted((code if classes else y)[order], classes):
            drop = f"if it only numbers rows, leave it out with --drop {quoted(name)}"
            note = f"is used, though {reason}: {errors}; {drop}"
            numeric.append(name)
        elif told:
            note += f"; {errors}, as where rows are in an order that tells the target"
        yield f"{WARNING if told and not text and not named else ''}column {quoted(name)} {note}"


def as_categories(look: Any, y: Array, classes: bool, coded: list[Summary], numeric: list[str], levels: Any) -> Any:
    """Notes on numbers that may be names of something, moved to the categories if held-out rows are predicted better
    so and the name of the column says it; the column with the fewest levels is looked at first."""
    Y, order = _numbers_of(y, classes), np.random.default_rng(0).permutation(len(y))
    best, missed = _looked(look, Y, order, numeric, [*levels])
    for column in sorted(coded, key=lambda one: (one.categories, one.name)):
        name, count, shown = column.name, column.categories, quoted(column.name)
        if best <= EXACT or not (column.named_as_code or _told_by_levels(look[name].to_numpy()[order], missed)):
            continue
        rest = [one for one in numeric if one != name]
        tried, left = _looked(look, Y, order, rest, [*levels, name])
        errors = f"held-out rows have {tried:.3g} of the mean's squared error with categories, {best:.3g} with numbers"
        if column.named_as_code and tried <= BETTER * best:
            yield f"column {shown} is used as {count} categories: {errors} (--keep {shown} for numbers)"
            numeric[:], best, missed, levels[name] = rest, tried, left, count
        elif column.named_as_code or tried <= MUCH_BETTER * best:
            yield f"column {shown} is used as numbers: {errors} (--categorical {shown} for categories)"


def _told_by_levels(values: Array, missed: Array) -> bool:
    """Whether the means of what a model has missed, over the other rows of a level, tell some of it."""
    level = np.unique(values, return_inverse=True)[1]
    sums, rows = np.zeros((level.max() + 1, missed.shape[1])), np.bincount(level)
    np.add.at(sums, level, missed)
    left = missed - (sums[level] - missed) / np.maximum(rows[level] - 1, 1)[:, None]
    return float(np.sum(left**2)) <= (1.0 - PROMISING) * float(np.sum(missed**2))


def _numbers_of(y: Array, classes: bool) -> Array:
    """Targets for squares: zeros and ones for every class."""
    return (y[:, None] == np.unique(y) if classes else y).astype(float)


def _looked(look: Any, Y: Array, order: Array, numeric: list[str], categorical: list[str]) -> tuple[float, Array]:
    """The squared error of held-out rows with these columns, as a share of the mean's, and what is missed; parts of
    this order are held out."""
    levels = {name: look[name].nunique(dropna=False) for name in categorical}
    step = preparation_of(numeric, levels, len(order), dense=True)
    X, Y = np.c_[np.zeros(len(order)), step.fit_transform(look)][order], Y[order]
    made = by_squares(X, Y)
    best = made[int(np.argmin([share_of_mean([one], Y) for one in made]))]
    return share_of_mean([best], Y), (Y - best).reshape(len(Y), -1)


def _sorted(y: Array, classes: bool) -> bool:
    """Whether the rank correlation with the place is nearly that of sorted rows; of classes, in the order of their
    mean places."""
    place = np.arange(len(y))
    rank = rankdata((np.bincount(y, weights=place) / np.bincount(y))[y] if classes else y)
    return bool(abs(np.corrcoef(place, rank)[0, 1]) >= SORTED * np.corrcoef(place, np.sort(rank))[0, 1])
