"""Drafts from what is known, what of them a model agrees with, and how much of one pays. Plain Python, no engine."""
