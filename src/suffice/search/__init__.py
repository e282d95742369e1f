"""The upper level: from an evaluation to the next theta.

`tune`, `run`, `tuner`, `starts`   the entrance, the loop, ask and tell, and which of many starts go on
`objective`, `bilevel`, `solves`   what is evaluated: any objective, a bilevel problem, its solves to an accuracy
`derivatives`, `warm`              derivatives of an evaluation, and where the next one starts
`strategy`, `state`, `scaling`     a search under way, what it knows, and its coordinates
`trust_region`, `by_derivatives`   the strategy for few parameters, by points or by derivatives
`many`, `secant`                   the strategy for many parameters, by gradients
`accuracy`, `limit`, `judge`       how accurate is enough, what an oracle cannot give, the verdict on a step
`looks`, `edges`, `geometry`       where to look elsewhere, on the way and at the end, and where to put points
`model`, `fitting`, `step`         models of F, which of them a search has, and their minimisers
`hermite`, `noise`                 models from derivatives, and through noise
"""
