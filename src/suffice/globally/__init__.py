"""A global certificate: no penalties in a box are better than the best known ones by more than epsilon.

models, rotation, expansions      what is known of a fold; more columns than rows; Taylor remainders of losses
paths, bends, along               through minimisers; at kinks; what margins and gradients do along them
reach, balls                      how far minimisers are from paths
quadratics, surfaces, homotopy    bounds of F over boxes; the Lasso's whole path
centres, branch, beside           a fold of a cell; branch and bound; the same beside local searches
answers, certificate, landscape   journal and executor; the public face; what pictures show
"""

from suffice.globally.branch import Cell, GlobalOptions, Progress
from suffice.globally.certificate import GlobalCertificate, certify_global
from suffice.globally.models import UnsupportedError

__all__ = ["Cell", "GlobalCertificate", "GlobalOptions", "Progress", "UnsupportedError", "certify_global"]
