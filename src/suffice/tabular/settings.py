"""What a run of `suffice tune` was asked for, checked, and as it stands in the run's folder."""

from __future__ import annotations

import math
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any

from suffice.arrays import positive
from suffice.options import Options
from suffice.tabular.models import MODELS

FINAL_RADIUS = 1e-3  # of the box of logarithms: steps of a hundredth of a decade


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run was asked for."""

    data: str
    target: str
    task: str = "auto"
    model: str = "auto"
    cv: int = 5
    scoring: str | None = None
    max_evaluations: int = 200
    max_seconds: float | None = None
    seed: int = 0
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    skip_missing_target: bool = False
    max_levels: int | None = None
    min_class_size: int = 0
    rare_classes: str = "join"
    log_target: bool = False
    weights: str | None = None
    positive: str | None = None
    event: str | None = None
    exposure: str | None = None
    offset: str | None = None
    groups: str | None = None
    non_negative: bool = False
    certify_global: float | None = None
    test: str | None = None
    no_report: bool = False
    digest: str = ""  # of the bytes of the table

    def __post_init__(self) -> None:
        for item in fields(self):
            value, kinds = getattr(self, item.name), _KINDS[item.name]
            if isinstance(value, bool) != (bool in kinds) or not isinstance(value, kinds):
                raise ValueError(f"{item.name} must be {kinds[0].__name__}, got {value!r}")
            if isinstance(value, tuple) and not all(isinstance(name, str) for name in value):
                raise ValueError(f"{item.name} must hold names of columns, got {value!r}")
        if self.task not in ("auto", "classification", "regression"):
            raise ValueError(f"task must be auto, classification or regression, got {self.task!r}")
        if self.model != "auto" and self.model not in MODELS:
            raise ValueError(f"model must be auto, {', '.join(MODELS)}, got {self.model!r}")
        if (self.model == "cox") != (self.event is not None):
            raise ValueError("model cox needs --time and --event, and no other model takes them")
        if self.model == "cox" and self.test is not None:
            raise ValueError("--test cannot be measured for times until an event")
        known = MODELS[self.model][2] if self.model != "auto" else ""
        for name in ("exposure", "offset"):
            if getattr(self, name) is not None and not (known == "log" or (name == "offset" and known == "offset")):
                fit = "poisson, gamma, tweedie or negative-binomial" + (" or cox" if name == "offset" else "")
                raise ValueError(f"--{name} goes with --model {fit}, got {self.model}")
            if getattr(self, name) is not None and self.groups is not None:
                raise ValueError(f"--{name} does not go with --groups")
        if self.rare_classes not in ("join", "drop"):
            raise ValueError(f"rare_classes must be join or drop, got {self.rare_classes!r}")
        if self.min_class_size < 0 or (self.max_levels is not None and self.max_levels < 2):
            name = "min_class_size must be 0" if self.min_class_size < 0 else "max_levels must be 2"
            raise ValueError(f"{name} or more, got {min(self.min_class_size, self.max_levels or 0)}")
        if self.certify_global is not None:
            positive(self.certify_global, "certify_global")
        if not 2 <= self.cv <= 1000:
            raise ValueError(f"cv must be between 2 and 1000, got {self.cv}")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must be between 0 and 2**32 - 1, got {self.seed}")
        _ = self.options

    @property
    def options(self) -> Options:
        seconds = math.inf if self.max_seconds is None else self.max_seconds
        return Options(max_evaluations=self.max_evaluations, max_seconds=seconds, final_radius=FINAL_RADIUS)

    def plain(self) -> dict[str, Any]:
        return {"command": "tune", **asdict(self)}

    @classmethod
    def from_plain(cls, plain: Any) -> Settings:
        """Settings from a file; ValueError if it holds anything else."""
        names = {item.name for item in fields(cls)}
        needed = {item.name for item in fields(cls) if item.default is MISSING} | {"command"}
        if not isinstance(plain, dict) or plain.get("command") != "tune":
            raise ValueError("it does not describe a run of `suffice tune`")
        if not needed <= set(plain) <= {*names, "command"}:  # older versions did not know all of them
            raise ValueError("it does not describe a run of `suffice tune`")
        lists = {name: tuple(value) for name, value in plain.items() if isinstance(value, list)}
        return cls(**{name: value for name, value in (plain | lists).items() if name != "command"})


_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("data", "target", "task", "model", "rare_classes", "digest"), (str,)),
    **dict.fromkeys(("cv", "max_evaluations", "seed", "min_class_size"), (int,)),
    **dict.fromkeys(("drop", "keep", "categorical"), (tuple,)),
    **dict.fromkeys(
        ("scoring", "weights", "positive", "event", "exposure", "offset", "groups", "test"), (str, type(None))
    ),
    **dict.fromkeys(("max_seconds", "certify_global"), (float, int, type(None))),
    "max_levels": (int, type(None)),
    **dict.fromkeys(("skip_missing_target", "log_target", "no_report", "non_negative"), (bool,)),
}
