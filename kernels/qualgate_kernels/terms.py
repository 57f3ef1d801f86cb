"""A float32 for tensor cores that have no product of it (Triton): the sum of three bfloat16, exactly."""

# Triton's decorator keeps the signature, but a kernel is launched with other arguments than its own.
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def terms(x, TERMS: tl.constexpr, OPERAND: tl.constexpr):
    """A float32 as it is; or three bfloat16 that add up to it, the largest first: of its 24 bits 8 each, cut."""
    if TERMS == 1:
        return x, x, x
    else:
        first = (x.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)
        rest = x - first
        second = (rest.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)
        return first.to(OPERAND), second.to(OPERAND), (rest - second).to(OPERAND)


@triton.jit
def product(first, second, third, other, TERMS: tl.constexpr):
    """The float32 product of the terms' sum with `other`."""
    if TERMS == 1:
        return tl.dot(first, other, input_precision="ieee")
    else:
        made = tl.dot(third, other)
        made = tl.dot(second, other, made)
        return tl.dot(first, other, made)
