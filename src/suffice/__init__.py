"""Hyperparameter tuning that trains each model just accurately enough, and can prove it."""

from suffice import autodiff, datasets, losses, problems, terms
from suffice.bilevel import BilevelProblem
from suffice.certifying import FitReport, certify
from suffice.global_search import GlobalCertificate, GlobalOptions, certify_global
from suffice.journal import Journal, JournalError
from suffice.lower.certificate import Certificate
from suffice.lower.solution import Outcome, Solution
from suffice.lower.solver import iterate, solve
from suffice.objective import Objective, exact
from suffice.options import Options
from suffice.problem import Composite
from suffice.result import OracleError, Record, Result, Status
from suffice.space import Space
from suffice.tune import resume, tune
from suffice.tuner import Request, Tuner
from suffice.upper.evaluation import Evaluation

__version__ = "0.1.0"

__all__ = [
    "BilevelProblem",
    "Certificate",
    "Composite",
    "Evaluation",
    "FitReport",
    "GlobalCertificate",
    "GlobalOptions",
    "Journal",
    "JournalError",
    "Objective",
    "Options",
    "OracleError",
    "Outcome",
    "Record",
    "Request",
    "Result",
    "Solution",
    "Space",
    "Status",
    "Tuner",
    "autodiff",
    "certify",
    "certify_global",
    "datasets",
    "exact",
    "iterate",
    "losses",
    "problems",
    "resume",
    "solve",
    "terms",
    "tune",
]
