"""A global certificate: no penalties in a box are better than the best known ones by more than epsilon.

models, expansions      what is known of a fold, and weights at given penalties; Taylor remainders of losses
paths, reach            through minimisers, and what margins do there; how far minimisers are
surfaces, homotopy      bounds of F over boxes; the Lasso's whole path
branch, certificate     branch and bound; the public face, and what pictures show
"""

from suffice.globally.branch import Cell, Progress
from suffice.globally.certificate import GlobalCertificate, GlobalOptions, Landscape, certify_global
from suffice.globally.models import UnsupportedError

__all__ = ["Cell", "GlobalCertificate", "GlobalOptions", "Landscape", "Progress", "UnsupportedError", "certify_global"]
