"""The steps of the main path: a run's plan and batches, and decisions on stored runs and score files."""
