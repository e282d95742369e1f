"""A global certificate: no penalties in a box are better than the best known ones by more than epsilon.

Below it: `quadratics` (least values over boxes), `models` (what is known of a fold), `rotation` (more columns than
rows), `expansions` (Taylor remainders of losses), `paths` (through minimisers), `bends` (at kinks), `along` (what
margins do), `reach` and `balls` (how far minimisers are), `surfaces` (bounds of F), `homotopy` (the Lasso's whole
path), `centres` (a fold of a cell, anywhere), `branch` (branch and bound), `kept` (journal and executor), `certificate`
(the public face).
"""

from suffice.globally.branch import Cell, GlobalOptions, Progress
from suffice.globally.certificate import GlobalCertificate, certify_global
from suffice.globally.models import UnsupportedError

__all__ = ["Cell", "GlobalCertificate", "GlobalOptions", "Progress", "UnsupportedError", "certify_global"]
