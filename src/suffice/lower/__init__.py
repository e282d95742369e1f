"""The lower level: solve f + g until the distance to the minimiser is proven to be small enough."""
