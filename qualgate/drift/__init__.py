"""Drift in plain numbers: llama.cpp's table, where drift matters, and baselines kept small with a certified KL."""
