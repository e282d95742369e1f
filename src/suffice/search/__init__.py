"""The upper level: the trust region, its models and accuracies, and the loop that tunes."""
