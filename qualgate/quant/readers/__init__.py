"""Quantized checkpoints of every family, read without the library that made them, one module a family."""

from qualgate.quant.readers.checkpoint import Layer, QuantizedCheckpoint, layers, read_quantized

__all__ = ["Layer", "QuantizedCheckpoint", "layers", "read_quantized"]
