"""Callbacks that tell other tools what a run does: `suffice.bridges.optuna`, `suffice.bridges.mlflow`."""
