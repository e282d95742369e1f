"""Hyperparameter tuning that trains each model just accurately enough, and can prove it."""

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
from suffice.solvers.certificate import Certificate
from suffice.solvers.problem import Composite
from suffice.solvers.solution import Outcome, Solution
from suffice.solvers.solver import iterate, solve
from suffice.space import Space

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
