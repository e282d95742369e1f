"""Where rows of X live, and in which layout: the only folder that knows.

design       X with weights of rows: norms, products, what rounding does to them
norms        proven bounds on its spectral norm; what a pass over rows tells
sums         a block of rows, a job on it, the tree in which parts are added, and weights by a rule
margins      products X w that stay with the rows, what is known of them, and passes that are shared
blocks       rows that are read block by block; `RowBlocks` from arrays and files
memory       rows at hand: one block, dense, sparse or on a device, with X^T r of every layout
dask         rows on the workers of a cluster, and what a task does there
gram         X^T C X of every layout, with roundings counted; `rounding`: what is known of sums
given        where a matrix comes from, and how a search is given it
"""
