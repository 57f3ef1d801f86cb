"""Runs handed to a Ray cluster: what travels there, the cluster's own job client, and the program that a job is."""
