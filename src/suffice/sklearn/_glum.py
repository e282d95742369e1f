"""The loss of glum's GeneralizedLinearRegressor, read from its parameters: families and links by name or as objects."""

from __future__ import annotations

import re
from typing import Any

from suffice.models.families import BINOMIAL, GAMMA, NegativeBinomial, tweedie
from suffice.models.margin_losses import POISSON, SQUARED

_OWN_LINK = {"normal": "identity", "binomial": "logit"}  # of all others it is the logarithm


def glum_loss(estimator: Any) -> Any:
    """psi; ValueError for a family and a link whose deviance is not convex."""
    name, number = _family(estimator.family)
    link = estimator.link if isinstance(estimator.link, str) else type(estimator.link).__name__.lower()
    link = link.removesuffix("link")
    own = _OWN_LINK.get(name, "log")
    if link not in ("auto", own):
        raise ValueError(f"family={name} with link={link} has no convex deviance that is known here: use link='auto'")
    match name:
        case "normal":
            return SQUARED
        case "binomial":
            return BINOMIAL
        case "poisson":
            return POISSON
        case "gamma":
            return GAMMA
        case "tweedie":
            return tweedie(1.5 if number is None else number)
        case "negative.binomial":
            return NegativeBinomial(1.0 if number is None else number)
    raise ValueError(f"family={name} is not supported: its deviance is not convex; 'gamma' is nearest")


def _family(given: Any) -> tuple[str, float | None]:
    """The name of a family, and its power or theta."""
    if isinstance(given, str):
        found = re.fullmatch(r"\s*([\w.]+?)\s*(?:\(\s*([-+.\deE]+)\s*\))?\s*", given)
        name, number = (given, None) if found is None else found.groups()
    else:
        name = type(given).__name__.removesuffix("Distribution").lower()
        number = getattr(given, "power", None) if name == "tweedie" else getattr(given, "theta", None)
    name = {"gaussian": "normal", "negativebinomial": "negative.binomial"}.get(name, name)
    return name, None if number is None else float(number)
