"""Inputs rounded as checkpoints declare it, against each format's definition in numpy, number by number."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qualgate.quant.activations import PER_TOKEN, Rounding, round_inputs
from tests.depth import examples
from tests.quant.test_floating import E2M1, nearest, numbers

F = np.float32
LEVELS = {"e2m1": E2M1, "e4m3": numbers("e4m3"), "e5m2": numbers("e5m2")}


def fixed(code: str, bits: int = 8, zero_point: int = 0) -> Rounding:
    return Rounding(code=code, bits=bits, scale=0.03125 * 1.1, zero_point=zero_point)


def mx(code: str, bits: int) -> Rounding:
    return Rounding(code=code, bits=bits, group_size=32, rule="e8m0 rounded")


def nvfp4(**words) -> Rounding:
    return Rounding(code="e2m1", bits=4, group_size=16, rule="e4m3", **words)


SCHEMES = {
    "int8": PER_TOKEN["int8"],
    "fp8": PER_TOKEN["fp8"],
    "int4": Rounding(code="int", bits=4),
    "int8 asym": Rounding(code="int", bits=8, symmetric=False),
    "int4 asym g32": Rounding(code="int", bits=4, symmetric=False, group_size=32),
    "fp8 e5m2": Rounding(code="e5m2", bits=8),
    "fp8 g128": Rounding(code="e4m3", bits=8, group_size=128),
    "fp8 g128 (e8m0 ceiling scales)": Rounding(
        code="e4m3", bits=8, group_size=128, rule="e8m0 ceiling", least=2.0**-22
    ),
    "int8, fixed scale": fixed("int"),
    "int8 asym, fixed scale": fixed("int", zero_point=-37),
    "fp8, fixed scale": fixed("e4m3"),
    "mxfp4": mx("e2m1", 4),
    "mxfp8": mx("e4m3", 8),
    "nvfp4": nvfp4(tensor_scale=317.3, tensor_divides=True),
    "int8 of torchao": Rounding(code="int", bits=8, least=2.0**-23),
    "nvfp4 of torchao": nvfp4(tensor_scale=0.0031, least=2.0**-6),
}
seeds = st.integers(0, 2**32 - 1)


def inputs(seed: int) -> torch.Tensor:
    """[12, 160]: rows of every magnitude, one of zeros, one of halves, one with an outlier, one of a single sign, one
    whose largest number is the end of e4m3 times a power of two.
    """
    x = torch.randn(12, 160, generator=torch.Generator().manual_seed(seed))
    x *= torch.tensor([1e-20, 1e-6, 1e-3, 1.0, 1.0, 1.0, 30.0, 1e4, 1e15, 5e-5, 1e-4, 1.0]).view(12, 1)
    x[3] = 0
    x[4] = (x[4] * 8).round() / 16
    x[5, 0] = 1000
    x[6] = x[6].abs()
    x[11, ::32] = 448 / 64
    x[11, 1::4] *= 1e-4  # subnormal there: only these tell one power of two from the next
    return x


def of_group(x: np.ndarray, how: Rounding) -> np.ndarray:
    """One group of float32 by the definition of its format; every step rounded to float32."""
    lowest, absmax, zero_point = -(2 ** (how.bits - 1)), np.abs(x).max(), F(how.zero_point)
    if how.scale is not None:
        scale = F(how.scale)
    elif not how.symmetric:
        low, high = min(F(0), x.min()), max(F(0), x.max())
        scale = F(high - low) / F(2**how.bits - 1)
        zero_point = np.clip(np.rint(F(lowest) - low / scale), lowest, -lowest - 1) if scale else F(0)
    elif how.rule == "e8m0 rounded":
        bits = absmax.view(np.uint32) + np.uint32(0x200000) & np.uint32(0x7F800000)  # one mantissa bit, rounded
        exponent = (int(bits) >> 23) - 127 - {"e2m1": 2, "e4m3": 8}[how.code]
        scale = F(2.0 ** max(-127, exponent))
    else:
        end = {"int": (2**how.bits - 1) / 2, "e2m1": 6, "e4m3": 448, "e5m2": 57344}[how.code]
        scale = absmax / F(end)
        if how.rule == "e8m0 ceiling":
            scale = F(next(2.0**e for e in range(-149, 128) if F(2.0**e) >= scale))
        elif how.rule == "e4m3":
            whole = F(how.tensor_scale)
            wanted = scale * whole if how.tensor_divides else scale / whole
            levels = LEVELS["e4m3"]
            share = F(levels[nearest(np.clip(wanted, F(how.least), 448), levels)])
            scale = share / whole if how.tensor_divides else share * whole
        if how.rule != "e4m3":
            scale = max(scale, F(how.least))
    if scale == 0:
        return np.zeros_like(x)
    steps = x / scale
    if how.code == "int":
        return (np.clip(np.rint(steps + zero_point), lowest, -lowest - 1) - zero_point) * scale
    levels = LEVELS[how.code]
    return np.copysign(levels[nearest(np.clip(steps, -levels[-1], levels[-1]), levels)].astype(F), x) * scale


@pytest.mark.parametrize("name", SCHEMES)
@examples(15)
@given(seed=seeds)
def test_every_scheme_is_its_formats_definition(name, seed):
    how, x = SCHEMES[name], inputs(seed)
    size = how.group_size or x.shape[1]
    found = round_inputs(x, how).numpy()
    for start in range(0, x.shape[1], size):
        for row, mine in zip(x.numpy(), found, strict=True):
            expected = of_group(row[start : start + size], how)
            np.testing.assert_array_equal(mine[start : start + size], expected)


@pytest.mark.parametrize("how", SCHEMES.values(), ids=SCHEMES)
def test_a_row_never_depends_on_the_rows_beside_it(how):
    x = inputs(1)
    whole = round_inputs(x, how)
    for order in (torch.arange(11, -1, -1), torch.tensor([4]), torch.tensor([8, 2])):
        assert torch.equal(round_inputs(x[order], how), whole[order])
    assert torch.equal(round_inputs(x.view(3, 4, 160), how), whole.view(3, 4, 160))
    broken = x.clone()
    broken[0] = float("nan")
    assert torch.equal(round_inputs(broken, how)[1:], whole[1:])
    assert round_inputs(broken, how)[0].isnan().all()


def test_a_fixed_scale_saturates_and_keeps_what_it_holds():
    x = torch.tensor([[-1e9, -1.0, 0.0, 1.0, 1e9]])
    scale = F(0.03125 * 1.1)
    assert round_inputs(x, fixed("e4m3"))[0, [0, 4]].tolist() == [-448 * scale, 448 * scale]
    assert round_inputs(x, fixed("int", zero_point=-37))[0, [0, 2, 4]].tolist() == [-91 * scale, 0, 164 * scale]
    for how in (fixed("int"), fixed("int", zero_point=-37), fixed("e4m3")):
        once = round_inputs(x, how)
        assert torch.equal(round_inputs(once, how), once)


def test_other_dtypes_are_rounded_in_float32():
    x = inputs(2)[4:7].half()
    for how in SCHEMES.values():
        found = round_inputs(x, how)
        assert found.dtype == torch.float16
        assert torch.equal(found, round_inputs(x.float(), how).half())


@pytest.mark.parametrize("name", [name for name in SCHEMES if "torchao" not in name])
def test_a_scheme_is_called_by_its_name(name):
    assert SCHEMES[name].label == name
