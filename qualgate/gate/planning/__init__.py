"""Forecasts of a policy's verdicts, before anything is generated."""
