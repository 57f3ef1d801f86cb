"""Processes that load an arm and answer its jobs, and the pool that hands the jobs out."""
