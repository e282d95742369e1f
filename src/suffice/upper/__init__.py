"""The upper level: a derivative-free trust region that asks for residuals just accurate enough to be right."""
