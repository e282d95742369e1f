"""Images: smoothed total variation, measurements, and their solvers."""
