"""Tensors with a few words about them in one sealed file: what is read is what was written, or nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from qualgate.records.identity import read_sealed, write_sealed


def write_tensors(path: Path, tensors: dict[str, torch.Tensor], about: Mapping[str, str]) -> None:
    """A safetensors file, `about` in its header, under its digest; it appears whole, in one rename."""
    write_sealed(path, save(tensors, metadata=dict(about)))


def read_tensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Return (tensors on the CPU, about). ValueError when the file is damaged, OSError when there is none."""
    body = bytes(read_sealed(path))
    try:
        header = json.loads(body[8 : 8 + int.from_bytes(body[:8], "little")])  # so the format begins
        return load(body), header.get("__metadata__", {})
    except SafetensorError as error:
        raise ValueError(str(error)) from None
