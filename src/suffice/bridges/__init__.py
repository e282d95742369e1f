"""Callbacks that report a run to other tools: `suffice.bridges.optuna`, `suffice.bridges.mlflow`."""
