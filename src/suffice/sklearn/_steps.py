"""What the last step of a fitted pipeline was fitted to.

It has seen what `fit_transform` of the steps before it gave for the training rows; what is at hand are the fitted
steps, and their `transform` of the same rows. For a step with scikit-learn's own `fit_transform`, which is
`fit(X, y).transform(X)`, the two are one and the same. A step with another `fit_transform` may give there what it
never gives again: `TargetEncoder` encodes rows by folds, `NMF` has factors that its `transform` only comes near to.

Some of the latter (`REPLAYED`) have been read: what their `fit_transform` gives comes out of the same computation as
the state that `transform` depends on, so that one that leads to the same state again, to the last bit, has given the
same rows. All steps are then fitted once more, by `fit_transform`, and where `transform` of the steps at hand and of
those that were just fitted agree in all bits, what has come out on the way is what the model has seen. Where they do
not (a random state that nobody knows), and for any other step, nothing is told.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import TransformerMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline

from suffice.sklearn.adapters import name_of
from suffice.sklearn.objectives import refuse

_HAVE_BEEN_READ = """
    BisectingKMeans CountVectorizer DictVectorizer DictionaryLearning FastICA HashingVectorizer Isomap IterativeImputer
    KMeans KNeighborsTransformer KernelPCA LatentDirichletAllocation LocallyLinearEmbedding MiniBatchKMeans MiniBatchNMF
    MissingIndicator NMF PCA PowerTransformer RadiusNeighborsTransformer RandomTreesEmbedding TfidfVectorizer
    TruncatedSVD
"""
REPLAYED = frozenset(f"sklearn.{name}" for name in _HAVE_BEEN_READ.split())
_WAY_OUT = "give certify its last step and the rows that this was fitted to"


def seen_by_the_last(pipeline: Pipeline, X: Any, y: Any) -> Any:
    """The rows that the last step of a fitted pipeline was fitted to; `CannotTellError` if that is not certain."""
    for _, step in pipeline.steps:
        refuse(hasattr(step, "fit_resample"), f"{type(step).__name__} has changed the rows of the training data")
    own = [part for _, step in pipeline.steps[:-1] for part in _parts(step) if _has_its_own_way(part)]
    for part in own:
        other = f"{type(part).__name__} may have given other rows to the training than it gives now: {_WAY_OUT}"
        refuse(name_of(type(part)) not in REPLAYED, other)
    before = pipeline[:-1]
    rows = before.transform(X)
    again = clone(before) if own else before
    seen = again.fit_transform(X, y) if own else rows
    names = ", ".join(dict.fromkeys(type(part).__name__ for part in own)) or "a step of the pipeline"
    refuse(not _same_bits(again.transform(X), rows), f"{names} gives other values each time: {_WAY_OUT}")
    return seen


def _parts(step: Any) -> Iterator[Any]:
    """The transformers that a step is made of."""
    inner: Any = None
    if _is_just(step, Pipeline):
        inner = [one for _, one in step.steps]
    elif _is_just(step, FeatureUnion):
        inner = [one for _, one in step.transformer_list]
    elif _is_just(step, ColumnTransformer):
        inner = [one for _, one, _ in step.transformers_]
    if inner is not None:
        for one in inner:
            yield from _parts(one)
    elif step is not None and not isinstance(step, str):  # "passthrough", "drop"
        yield step


def _is_just(step: Any, kind: type) -> bool:
    return isinstance(step, kind) and _way(type(step)) is _way(kind)


def _has_its_own_way(step: Any) -> bool:
    return hasattr(step, "fit_transform") and _way(type(step)) is not _way(TransformerMixin)


def _way(kind: type) -> Any:
    return inspect.getattr_static(kind, "fit_transform", None)


def _same_bits(one: Any, other: Any) -> bool:
    if sp.issparse(one) != sp.issparse(other):
        return False
    if sp.issparse(one):
        one, other = one.tocsr(), other.tocsr()
        parts = [(getattr(one, name), getattr(other, name)) for name in ("indptr", "indices", "data")]
        return one.shape == other.shape and all(np.array_equal(a, b) for a, b in parts)
    a, b = (np.asarray(each) for each in (one, other))
    return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
