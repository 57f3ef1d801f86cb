"""Baseline, quantization only, speculation only, both: which of them is to be served?"""
