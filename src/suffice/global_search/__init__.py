"""A global certificate: no penalties in a box are better than the best known ones by more than epsilon.

Below it: `quadratics` (least values over boxes), `models` (what is known of a fold), `rotation` (more columns than
rows), `expansions` (Taylor remainders of losses), `paths` (through minimisers), `balls` (around paths), `surfaces`
(bounds of F), `branch` (branch and bound), `certificate` (the public face).
"""

from suffice.global_search.branch import Cell, GlobalOptions, Progress
from suffice.global_search.certificate import GlobalCertificate, certify_global
from suffice.global_search.models import UnsupportedError

__all__ = ["Cell", "GlobalCertificate", "GlobalOptions", "Progress", "UnsupportedError", "certify_global"]
