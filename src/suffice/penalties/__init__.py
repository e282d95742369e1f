"""Terms g with a cheap prox."""
