"""Where rows of X live, and in which layout: the only folder that knows.

design       X with weights of rows: norms, products, what rounding does to them
norms        proven bounds on its spectral norm; what a pass over rows tells
sums         a block of rows, a job on it, and the tree in which parts are added
margins      products X w that stay with the rows, and what is known of them
weights      weights of rows by a rule: all alike, a view, a fold
jobs         sums that need no model: surveys, Gram matrices, X^T C X v
blocks       rows that are read block by block; `RowBlocks` from arrays and files
files        parts of a matrix in files that are mapped
memory       rows at hand: one block, dense, sparse or on a device
dask, pieces rows on the workers of a cluster, and what a task does there
together     computations side by side share their passes
gram, dense, products, rounding    X^T C X and X^T r of every layout, with roundings counted
places, given, kept_memory         where a matrix comes from, and how a search is given it; memory of jobs on workers
"""
