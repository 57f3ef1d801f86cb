"""Where one tensor of a model's files lies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """Where one tensor lies."""

    file: Path
    dtype: str  # safetensors' name, e.g. "BF16", or GGUF's, e.g. "Q4_K"
    shape: tuple[int, ...]
    nbytes: int
    start: int = 0  # byte of a safetensors file at which it begins
