"""Smooth terms f: losses of rows, the linear models they make, and what is minimised out of these.

smooth          what an f has to offer; a user's own, and one with a ridge on top
margin_losses   losses psi of a margin and a target; `families`: those of generalised linear models
linear          sums over rows of a loss with K outputs, written once; `intercept`: one that is minimised out
multinomial     several classes; `targets`: several targets
cox             proportional hazards
jobs            what a block of rows contributes to all of these; `softmax_jobs`: with several classes
"""
