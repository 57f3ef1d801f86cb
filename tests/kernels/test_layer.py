"""How a decoder's layer rounds, to codes of its products' inputs and to what a server stores: C compiled by itself, so
that a row can be asked alone. What lies between (norms, turned heads, gates) is held within a pass."""

from __future__ import annotations

import ctypes
import math
import runpy
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import setuptools  # before any test: it must find distutils as it was installed
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from qualgate_kernels import cpu
from qualgate_kernels.activations import round_tokens_torch
from qualgate_kernels.cpu.decode import STORED

SOURCES = Path(cpu.__file__).parent / "c"
SETUP = Path(__file__).parents[2] / "setup.py"
ANY = st.floats(width=32)
_POINTER, _INT, _OTHER = ctypes.c_void_p, ctypes.c_int64, ctypes.CFUNCTYPE(None)


class _Operations(ctypes.Structure):
    """layer_ops_t of layer.h."""

    _fields_ = [
        *((name, _OTHER) for name in ("norm", "turn", "gated")),
        ("rounded", ctypes.CFUNCTYPE(None, _POINTER, _INT, ctypes.c_int)),
        ("codes", ctypes.CFUNCTYPE(ctypes.c_float, _POINTER, _INT, _POINTER)),
    ]


@dataclass(frozen=True)
class Steps:
    """Those of one path, a row at a time. stored: the dtype to round to."""

    table: Any
    stored: str = "float32"

    def rounded(self, x: torch.Tensor) -> torch.Tensor:
        """The nearest numbers of the dtype."""
        x = x.clone()
        self.table.rounded(x.data_ptr(), len(x), STORED[self.stored])
        return x

    def codes(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """int8 codes and their scale, float32 []."""
        codes = torch.empty(len(x), dtype=torch.int8)
        return codes, torch.tensor(self.table.codes(x.data_ptr(), len(x), codes.data_ptr()))


@pytest.fixture(scope="module")
def every(tmp_path_factory) -> dict[str, Steps]:
    """Of every path this processor has, with the flags that the kernels are built with."""
    compiler, made = shutil.which("cc"), tmp_path_factory.mktemp("layer") / "layer.so"
    if compiler is None or not cpu.paths():
        pytest.skip("no C compiler, or the kernels were not compiled here")
    with patch.object(setuptools, "setup"):
        flags = [flag for flag in runpy.run_path(str(SETUP))["FLAGS"] if flag != "-fvisibility=hidden"]
    sources = [str(path) for path in SOURCES.glob("layer_*.c")]
    subprocess.run([compiler, *flags, "-shared", "-fPIC", *sources, "-o", str(made), "-lm"], check=True)
    library = ctypes.CDLL(str(made))
    names = [name for name in ("scalar", "avx2", "avx512") if name in cpu.paths()]
    return {name: Steps(_Operations.in_dll(library, f"layer_{name}")) for name in names}


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Zeros' signs too; a NaN for a NaN."""
    return torch.equal(one.isnan(), other.isnan()) and torch.equal(
        one.nan_to_num(7.0, math.inf, -math.inf).view(torch.int32),
        other.nan_to_num(7.0, math.inf, -math.inf).view(torch.int32),
    )


@given(st.lists(ANY, min_size=1, max_size=70).map(torch.tensor))
@example(torch.zeros(5))
@example(torch.tensor([0.0, -0.0]))
@example(torch.tensor([math.nan, 1.0, math.inf]))
@example(torch.tensor([1.0, math.nan]))
@example(torch.tensor([math.inf, 1.0, -2.0]))
@example(torch.tensor([3e38, 1e38, 1.0]))
@example(torch.tensor([1e-45, 0.0]))  # whose scale is 0, though it is not
@example(torch.tensor([2e-43, 1e-43, -2e-43, 1e-45]))  # whose scale is rounded a lot: more than 127 steps
@example(-torch.arange(256) / 2)  # halves
@example(torch.cat([torch.arange(256) / 2 + 0.25, torch.tensor([127.5, -127.5])]))
def test_codes_are_those_of_the_twin_to_the_bit(every, x):
    codes, scales = round_tokens_torch(x[None], "int8")
    for path, step in every.items():
        found, scale = step.codes(x)
        assert same(scale, scales[0, 0]), path
        if x.isfinite().all():
            assert torch.equal(found, codes[0]), path
        else:  # sums times a scale that is not finite: infinite where codes are not 0, else NaN
            assert torch.equal(found[x.isfinite()], codes[0][x.isfinite()]), path
            assert not (scale * found).isfinite().any()


def test_every_half_between_two_codes_goes_to_the_even_one(every):
    halves = torch.arange(-128, 128) + 0.5
    x = torch.cat([halves, halves - 2**-17, halves + 2**-17]).clamp(-127.5, 127.5)
    for path, step in every.items():
        codes, scale = step.codes(x)
        assert scale == 1, path
        assert codes.tolist() == [max(-128, min(127, round(number))) for number in x.tolist()], path


@pytest.mark.parametrize("stored", ["bfloat16", "float16"])
def test_every_number_goes_to_the_nearest_of_a_dtype_and_halves_to_the_even_one(every, stored):
    """Every number of the dtype, what lies halfway to the next, and the floats beside both; as torch rounds."""
    dtype = getattr(torch, stored)
    numbers = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype).float()
    bits = numbers.view(torch.int32)
    half = (bits + (2**15 if stored == "bfloat16" else 2**12)).view(torch.float32)
    beside = [(one.view(torch.int32) + by).view(torch.float32) for one in (numbers, half) for by in (-1, 1)]
    tiny, large = torch.arange(-64, 64) * 2.0**-30, torch.tensor([65504.0, 65519.99, 65520.0, 1e6, 3.4e38])
    x = torch.cat([numbers, half, *beside, tiny, large])
    x = torch.cat([x, x.new_zeros(-len(x) % 16)])
    for path, step in every.items():
        assert same(replace(step, stored=stored).rounded(x), x.to(dtype).float()), path
        assert same(step.rounded(x), x), path
