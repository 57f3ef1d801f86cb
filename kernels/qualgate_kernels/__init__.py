"""Packed weight formats and the kernels that read them. Imports torch (later triton) and never qualgate."""
