"""The upper level: from an evaluation to the next theta.

`tune`, `tuner`                    the loop over evaluations, and ask and tell
`objective`, `bilevel`, `solves`   what is evaluated: any objective, a bilevel problem, its solves to an accuracy
`derivatives`                      derivatives of an evaluation, and where the next one starts
`state`                            what a search knows, what a strategy is, and its coordinates
`trust_region`, `by_derivatives`   the strategy for few parameters, by points or by derivatives
`many`                             the strategy for many parameters, by gradients
`accuracy`, `judge`                how accurate is enough; the verdict on a step, and what an oracle cannot give
`looks`, `geometry`                where to look elsewhere, where to put points, and how far to go
`model`                            models of F, and which of them a search has
"""
