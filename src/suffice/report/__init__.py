"""Figures and pages.

chart     the grammar: a panel is a pair of axes with marks on it
figures   every figure of a search and of its model, in that grammar, from the evaluations of a run as arrays
svg       panels drawn into a page; `suffice.plots` draws them with matplotlib
html      the shell of a page                   formats   numbers in words
folder    files of a run
"""
