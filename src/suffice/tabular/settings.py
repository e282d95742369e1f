"""What a run of `suffice tune` may be asked for: models by name, and settings, checked, and as they stand in the run's
folder.

A field with a help text is an option of the command line: it is declared here and nowhere else.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from types import UnionType
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from suffice.arrays import positive
from suffice.options import Options

Task = Literal["classification", "regression"]
MINOR = ("max_evaluations", "max_seconds", "data", "test", "no_report", "jobs", "cluster")  # may differ in a folder
FINAL_RADIUS = 1e-3  # of the box of logarithms: steps of a hundredth of a decade


@dataclass(frozen=True)
class NamedModel:
    """What a model is, its estimator with the iterations that a final fit needs, and the penalties that are tuned, over
    ranges that the data give."""

    name: str
    estimator: str  # of scikit-learn, or `ElasticNetGLM`
    params: Mapping[str, Any]
    penalties: tuple[str, ...] = ("l1", "l2")

    @property
    def words(self) -> str:
        return f"{self.name}, {' and '.join(self.penalties)} penalty"

    @property
    def task(self) -> Task:
        return "classification" if self.estimator in ("LogisticRegression", "LinearSVC") else "regression"


_SAGA = {"solver": "saga", "max_iter": 5000}
_FAMILIES = {
    "gamma": "Gamma regression of positive numbers",
    "tweedie": "Tweedie regression of costs, many of them 0",
    "negative-binomial": "negative-binomial regression of counts",
    "cox": "Cox's proportional hazards for times until an event",
}
MODELS = {
    "logistic": NamedModel("logistic regression", "LogisticRegression", {"l1_ratio": 0.5, **_SAGA}),
    "logistic-l1": NamedModel("logistic regression", "LogisticRegression", {"l1_ratio": 1.0, **_SAGA}, ("l1",)),
    "logistic-l2": NamedModel("logistic regression", "LogisticRegression", {"max_iter": 5000}, ("l2",)),
    "svm": NamedModel("linear support vector machine of two classes", "LinearSVC", {"max_iter": 10_000}, ("l2",)),
    "elastic-net": NamedModel("linear regression", "ElasticNet", {"max_iter": 50_000}),
    "lasso": NamedModel("linear regression", "Lasso", {"max_iter": 50_000}, ("l1",)),
    "ridge": NamedModel("linear regression", "Ridge", {}, ("l2",)),
    "poisson": NamedModel("Poisson regression of counts", "PoissonRegressor", {"max_iter": 1000}, ("l2",)),
    **{key: NamedModel(name, "ElasticNetGLM", {"family": key.replace("-", "_")}) for key, name in _FAMILIES.items()},
}
POSITIVE = ("gamma", "tweedie", "negative-binomial", "poisson")  # with a log link: targets must not be negative
SIGNED = ("elastic-net", "lasso", "ridge", *POSITIVE)  # whose coefficients may be kept from being negative
USUAL: dict[Task, str] = {"classification": "logistic", "regression": "elastic-net"}


def estimator_of(model: str, known: dict[str, Any] | None = None, non_negative: bool = False) -> Any:
    """`known` says which columns of X are the exposure and the offset; `non_negative` is for the models in SIGNED."""
    from sklearn import linear_model, svm

    from suffice.sklearn import ElasticNetGLM

    name, special = MODELS[model].estimator, {**(known or {}), **({"positive": True} if non_negative else {})}
    if model == "poisson" and special:  # of which scikit-learn's own has none
        return ElasticNetGLM("poisson", l1=0.0, **special)
    kinds: dict[str, Any] = {"ElasticNetGLM": ElasticNetGLM, "LinearSVC": svm.LinearSVC}
    return (kinds.get(name) or getattr(linear_model, name))(**MODELS[model].params, **special)


def from_plain(kind: Any, found: Any, name: str = "it") -> Any:
    """What JSON holds as a value of this type, a data class for one; ValueError if it is not. Fields with defaults may
    be missing: older versions did not know all of them."""
    origin, inner = get_origin(kind), get_args(kind)
    if is_dataclass(kind) and isinstance(found, dict):
        needed = {item.name for item in fields(kind) if item.default is MISSING}
        hints = get_type_hints(kind)
        if not needed <= found.keys() <= hints.keys():
            raise ValueError(f"{name} must have {', '.join(hints)}, got {', '.join(map(str, found))}")
        return kind(**{one: from_plain(hints[one], value, one) for one, value in found.items()})  # type: ignore[operator]
    if origin is tuple and isinstance(found, list | tuple):
        return tuple(from_plain(inner[0], one, f"an entry of {name}") for one in found)
    if origin is Mapping and isinstance(found, dict):
        return {str(key): from_plain(inner[1], value, str(key)) for key, value in found.items()}
    kinds = (inner or (kind,)) if origin in (None, UnionType) else ()
    kinds = (*kinds, int) if float in kinds else kinds
    if found in inner if origin is Literal else isinstance(found, kinds) and isinstance(found, bool) == (bool in kinds):
        return found
    raise ValueError(f"{name} must be {getattr((inner or (kind,))[0], '__name__', kind)}, got {found!r}")


class AfterSearchError(RuntimeError):
    """The search has come to its end and is in the journal; what should have followed failed."""


def _option(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True, kw_only=True)
class TargetSettings:
    """What is to be predicted, and how."""

    task: str = _option("auto", "auto, classification or regression")
    model: str = _option("auto", f"auto, {', '.join([*MODELS][:-1])} or, with --time and --event, cox")
    scoring: str | None = _option(None, "a score by scikit-learn's name; by default log loss or squared error")
    skip_missing_target: bool = _option(False, "leave out rows without a target")
    min_class_size: int = _option(0, "classes with fewer rows than this become one class, 'other'")
    log_target: bool = _option(False, "fit log(target); predictions come back in the target's units")
    positive: str | None = _option(None, "the positive class: of all others, if there are several")
    event: str | None = _option(None, "with --time, a column: 1 for an event, 0 for censored")


@dataclass(frozen=True, kw_only=True)
class FoldSettings:
    """Which rows are held out, and which of the good penalties are taken."""

    cv: int = _option(5, "folds of the cross-validation")
    repeats: int = _option(1, "how often rows are divided into folds, each time at random")
    group_column: str | None = _option(None, "a column: rows with the same entry are held out together")
    time_column: str | None = _option(
        None, "a column of dates or numbers: folds hold out later rows than they train on"
    )
    seed: int = _option(0, "random seed of the folds")
    one_se: bool = _option(False, "take the largest penalties whose loss is within one standard error of the best")

    @property
    def folds(self) -> str:
        """In words."""
        if self.time_column is not None:
            return f"{self.cv} folds of later rows by {self.time_column!r}"
        times = f", {self.repeats} times" if self.repeats > 1 else ""
        return f"{self.cv} folds{'' if self.group_column is None else f' of groups by {self.group_column!r}'}{times}"

    def check_folds(self) -> None:
        """ValueError for what does not go together."""
        if not 2 <= self.cv <= 1000:
            raise ValueError(f"cv must be between 2 and 1000, got {self.cv}")
        if self.repeats < 1 or self.repeats * self.cv > 1000:
            raise ValueError(f"repeats must be at least 1, and at most 1000 folds in all, got {self.repeats}")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must be between 0 and 2**32 - 1, got {self.seed}")
        if self.time_column is not None and self.group_column is not None:
            raise ValueError("--time-column does not go with --group-column: folds are by one of them")
        if self.time_column is not None and self.repeats > 1:
            raise ValueError("--repeats is for folds at random: those of --time-column have one order")


@dataclass(frozen=True, kw_only=True)
class ColumnSettings:
    """What becomes of the other columns."""

    drop: tuple[str, ...] = _option((), "a column to leave out (repeatable)")
    keep: tuple[str, ...] = _option((), "a column to use though it looks useless (repeatable)")
    categorical: tuple[str, ...] = _option((), "a column whose numbers are names of categories (repeatable)")
    max_levels: int | None = _option(
        None, "levels of a category with a coefficient of their own; the rarest join 'other' (no limit)"
    )
    weights: str | None = _option(None, "a column that says how much a row counts")
    exposure: str | None = _option(None, "a column that the mean is proportional to (poisson, gamma, ...)")
    offset: str | None = _option(None, "a column that is a known part of the linear predictor")
    groups: str | None = _option(None, "JSON file: column -> group of columns with penalties of its own")
    non_negative: bool = _option(False, "no coefficient may be negative (elastic-net, lasso, ridge, poisson, ...)")


@dataclass(frozen=True, kw_only=True)
class Settings(ColumnSettings, FoldSettings, TargetSettings):
    """What a run was asked for."""

    data: str
    target: str
    certify_global: float | None = _option(None, "prove that no penalties are better by more than this share, 0.01 say")
    test: str | None = _option(None, "another table with the target, on which the model is measured in the end")
    max_evaluations: int = _option(200, "limit on evaluations, not counting the rough first and the accurate last ones")
    max_seconds: float | None = _option(None, "limit on the seconds of all, report included")
    no_report: bool = _option(False, "leave out report.json and report.html")
    jobs: int = _option(1, "processes at most, started where they pay; 0: one per core")
    cluster: str | None = _option(
        None, "the address of a Dask scheduler, on whose workers the rows of parquet files live"
    )
    files: tuple[str, ...] = ()  # on a cluster, all of them
    digest: str = ""  # of the bytes of the table

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            from_plain(hint, getattr(self, name), name)
        for name, known in {"task": ("auto", "classification", "regression"), "model": ("auto", *MODELS)}.items():
            if (given := getattr(self, name)) not in known:
                raise ValueError(f"{name} must be {', '.join(known[:-1])} or {known[-1]}, got {given!r}")
        least = {"min_class_size": (self.min_class_size, 0), "max_levels": (self.max_levels, 2), "jobs": (self.jobs, 0)}
        for name, (value, low) in least.items():
            if value is not None and value < low:
                raise ValueError(f"{name} must be {low} or more, got {value}")
        if self.certify_global is not None:
            positive(self.certify_global, "certify_global")
            if self.one_se:
                raise ValueError("--certify-global is about the best penalties, and --one-se takes larger ones")
        self.check_folds()
        if (self.model == "cox") != (self.event is not None):
            raise ValueError("model cox needs --time and --event, and no other model takes them")
        if self.model == "cox" and self.test is not None:
            raise ValueError("--test cannot be measured for times until an event")
        for name in ("exposure", "offset"):
            if getattr(self, name) is not None:
                if self.model not in POSITIVE and (self.model, name) != ("cox", "offset"):
                    fit = "poisson, gamma, tweedie or negative-binomial" + (" or cox" if name == "offset" else "")
                    raise ValueError(f"--{name} goes with --model {fit}, got {self.model}")
                if self.groups is not None:
                    raise ValueError(f"--{name} does not go with --groups")
        _ = self.options

    @classmethod
    def asked(cls, data: str, target: str | None, time: str | None, options: Mapping[str, Any]) -> Settings:
        """Settings as people give them; a target, or times until an event."""
        if (target is None) == (time is None):
            raise ValueError("give the column to predict, --target, or times until an event, --time with --event")
        known = {item.name for item in fields(cls) if "help" in item.metadata}
        for name in options.keys() - known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
            raise TypeError(f"there is no option {name!r}: {hint}")
        given = {name: value for name, value in options.items() if value is not None}
        for name in ("drop", "keep", "categorical"):
            if name in given:
                given[name] = (given[name],) if isinstance(given[name], str) else tuple(given[name])
        if time is not None and given.get("model", "auto") == "auto":
            given["model"] = "cox"
        return cls(data=data, target=target or time or "", **given)

    @property
    def table(self) -> str:
        """What the table is called."""
        return self.data if len(self.files) < 2 else f"{self.data} and {len(self.files) - 1} more"

    @property
    def options(self) -> Options:
        seconds = math.inf if self.max_seconds is None else self.max_seconds
        return Options(max_evaluations=self.max_evaluations, max_seconds=seconds, final_radius=FINAL_RADIUS)

    def changes(self, other: Settings) -> list[str]:
        """What differs of that which may not differ in a folder."""
        names = [item.name for item in fields(self) if item.name not in MINOR]
        return [name for name in names if getattr(self, name) != getattr(other, name)]

    def plain(self) -> dict[str, Any]:
        return {"command": "tune", **asdict(self)}

    @classmethod
    def from_plain(cls, plain: Any) -> Settings:
        """Settings from a file; ValueError if it holds anything else. Older versions did not know all of them."""
        if not isinstance(plain, dict) or plain.get("command") != "tune":
            raise ValueError("it does not describe a run of `suffice tune`")
        return cast(Settings, from_plain(cls, {name: value for name, value in plain.items() if name != "command"}))
