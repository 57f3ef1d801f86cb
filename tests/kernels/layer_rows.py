"""The steps between a plain decoder's products, compiled by themselves so that each can be asked alone."""

from __future__ import annotations

import ctypes
import runpy
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from qualgate_kernels import cpu
from qualgate_kernels.cpu.decode import STORED

SOURCES = Path(cpu.__file__).parent / "c"
SETUP = Path(__file__).parents[2] / "setup.py"
_POINTER, _FLOAT, _INT = ctypes.c_void_p, ctypes.c_float, ctypes.c_int64
_DTYPE = ctypes.c_int


class _Operations(ctypes.Structure):
    """layer_ops_t of layer.h."""

    _fields_ = [
        ("norm", ctypes.CFUNCTYPE(None, *[_POINTER] * 4, _FLOAT, _INT, _POINTER, _DTYPE)),
        ("turn", ctypes.CFUNCTYPE(None, *[_POINTER] * 3, _FLOAT, _INT, _INT, *[_POINTER] * 3, _DTYPE)),
        ("gated", ctypes.CFUNCTYPE(None, *[_POINTER] * 4, _INT, _POINTER, _DTYPE)),
        ("rounded", ctypes.CFUNCTYPE(None, _POINTER, _INT, _DTYPE)),
        ("codes", ctypes.CFUNCTYPE(_FLOAT, _POINTER, _INT, _POINTER)),
    ]


@dataclass(frozen=True)
class Steps:
    """Those of one path, a row at a time. Everything is float32 and contiguous. stored: the dtype to round to."""

    table: Any
    stored: str = "float32"

    def norm(
        self, x: torch.Tensor, added: torch.Tensor | None, bias: torch.Tensor | None, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """x + added + bias, and its norm."""
        x, normed = x.clone(), torch.empty_like(x)
        self.table.norm(_at(x), _at(added), _at(bias), _at(weight), eps, len(x), _at(normed), STORED[self.stored])
        return x, normed

    def turn(
        self, head: torch.Tensor, bias: torch.Tensor | None, weight: torch.Tensor | None, eps: float,
        cosine: torch.Tensor, sine: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        """A head with its bias, its norm and its first 2 * len(cosine) numbers turned."""
        to = torch.empty_like(head)
        arguments = _at(head), _at(bias), _at(weight), eps, len(head), 2 * len(cosine), _at(cosine), _at(sine), _at(to)
        self.table.turn(*arguments, STORED[self.stored])
        return to

    def gated(
        self, gate: torch.Tensor, gate_bias: torch.Tensor | None, up: torch.Tensor, up_bias: torch.Tensor | None
    ) -> torch.Tensor:
        """silu(gate) * up."""
        to = torch.empty_like(gate)
        self.table.gated(_at(gate), _at(gate_bias), _at(up), _at(up_bias), len(gate), _at(to), STORED[self.stored])
        return to

    def rounded(self, x: torch.Tensor) -> torch.Tensor:
        """The nearest numbers of the dtype."""
        x = x.clone()
        self.table.rounded(_at(x), len(x), STORED[self.stored])
        return x

    def codes(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """int8 codes and their scale, float32 []."""
        codes = torch.empty(len(x), dtype=torch.int8)
        return codes, torch.tensor(self.table.codes(_at(x), len(x), _at(codes)))


def steps(folder: Path) -> dict[str, Steps]:
    """Of every path this processor has, with the flags that the kernels are built with; none without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return {}
    with patch("setuptools.setup"):
        flags = [flag for flag in runpy.run_path(str(SETUP))["FLAGS"] if flag != "-fvisibility=hidden"]
    made = folder / "layer.so"
    sources = [str(path) for path in SOURCES.glob("layer_*.c")]
    subprocess.run([compiler, *flags, "-shared", "-fPIC", *sources, "-o", str(made), "-lm"], check=True)
    library = ctypes.CDLL(str(made))
    names = [name for name in ("scalar", "avx2", "avx512") if name in cpu.paths()]
    return {name: Steps(_Operations.in_dll(library, f"layer_{name}")) for name in names}


def _at(tensor: torch.Tensor | None) -> int | None:
    assert tensor is None or tensor.is_contiguous()
    return None if tensor is None else tensor.data_ptr()
