"""Where rows of X live, and in which layout: in memory, in files, on a cluster, on a device; dense or sparse."""
