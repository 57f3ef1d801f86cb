"""What the main path is made of: a run's plan and batches, and what is done with stored runs and score files."""
