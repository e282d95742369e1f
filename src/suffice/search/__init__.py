"""The upper level: from an evaluation to the next theta.

`tune`, `tuner`                    the loop over evaluations, and ask and tell
`objective`, `bilevel`, `solves`   what is evaluated: any objective, a bilevel problem, its solves to an accuracy
`derivatives`                      derivatives of an evaluation, and where the next one starts
`state`, `scaling`                 what a search knows, what a strategy is, and its coordinates
`trust_region`, `by_derivatives`   the strategy for few parameters, by points or by derivatives
`many`, `secant`                   the strategy for many parameters, by gradients
`accuracy`, `limit`, `judge`       how accurate is enough, what an oracle cannot give, the verdict on a step
`looks`, `geometry`                where to look elsewhere, and where to put points
`model`, `fitting`, `step`         models of F, which of them a search has, and their minimisers
`hermite`                          models from derivatives
"""
