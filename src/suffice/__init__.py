"""Hyperparameter tuning that trains each model just accurately enough, and can prove it.

arrays, lazy, protocols                 the one array type, cached properties, what objects offer
space, options, evaluation, result      what is searched, how, what is known of a theta, and what a run leaves behind
files, signals, executors, journal      folders that survive a kill, signals, where problems are solved, answers
rows, models, penalties, terms          where rows of X live; smooth f; g with a cheap prox; both as users import them
solvers, prove, certifying              f + g to a proven distance; proofs beyond strong convexity; of anybody's model
problems, losses, autodiff              ready-made lower and upper levels; those from functions of torch and JAX
cuda, imaging                           many models on a device; images by total variation
search, globally                        from an evaluation to the next theta; proofs about a whole box
report, plots                           figures and pages; those of a run
sklearn, tabular, cli                   front ends: estimators, tables, the command line
testing, datasets                       checks of what users bring, data to try it on
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from suffice import autodiff, datasets, losses, problems, terms
    from suffice.certifying import FitReport, certify
    from suffice.evaluation import Evaluation
    from suffice.globally import GlobalCertificate, GlobalOptions, certify_global
    from suffice.journal import Journal, JournalError
    from suffice.options import Options
    from suffice.result import OracleError, Record, Result, Status
    from suffice.search.bilevel import BilevelProblem
    from suffice.search.objective import Objective, exact
    from suffice.search.tune import resume, tune
    from suffice.search.tuner import Request, Tuner
    from suffice.sklearn.influence import influence
    from suffice.sklearn.left_out import leave_one_out
    from suffice.solvers.certificate import Certificate
    from suffice.solvers.problem import Composite
    from suffice.solvers.solution import Outcome, Solution
    from suffice.solvers.solver import iterate, solve
    from suffice.space import Space
    from suffice.tabular.from_python import tune_table

__version__ = "0.1.0"

__all__ = ["BilevelProblem", "Certificate", "Composite", "Evaluation", "FitReport", "GlobalCertificate"]
__all__ += ["GlobalOptions", "Journal", "JournalError", "Objective", "Options", "OracleError", "Outcome", "Record"]
__all__ += ["Request", "Result", "Solution", "Space", "Status", "Tuner", "autodiff", "certify", "certify_global"]
__all__ += ["datasets", "exact", "influence", "iterate", "leave_one_out", "losses", "problems", "resume", "solve"]
__all__ += ["terms", "tune", "tune_table"]

# Where names come from: they are imported when they are asked for first.
_HOMES = {
    "certifying": "FitReport certify",
    "evaluation": "Evaluation",
    "globally": "GlobalCertificate GlobalOptions certify_global",
    "journal": "Journal JournalError",
    "options": "Options",
    "result": "OracleError Record Result Status",
    "search.bilevel": "BilevelProblem",
    "search.objective": "Objective exact",
    "search.tune": "resume tune",
    "search.tuner": "Request Tuner",
    "solvers.certificate": "Certificate",
    "solvers.problem": "Composite",
    "solvers.solution": "Outcome Solution",
    "solvers.solver": "iterate solve",
    "space": "Space",
    "sklearn.influence": "influence",
    "sklearn.left_out": "leave_one_out",
    "tabular.from_python": "tune_table",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module 'suffice' has no attribute {name!r}")
    if name in _HOME:
        globals()[name] = getattr(import_module(f"suffice.{_HOME[name]}"), name)
        return globals()[name]
    try:
        return import_module(f"suffice.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"suffice.{name}":
            raise
        raise AttributeError(f"module 'suffice' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
