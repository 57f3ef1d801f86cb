"""Quantized folders made by hand: each format's layout spelled out here from its specification, in numpy and Python."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

SAMPLES = Path(__file__).resolve().parents[4] / "shared" / "data" / "quant_formats"
MODULE = "model.layers.0.mlp.down_proj"


def folder_of(
    path: Path,
    tensors: Mapping[str, torch.Tensor],
    quantization: Mapping[str, Any] | None,
    *,
    metadata: dict[str, str] | None = None,
    name: str = "model.safetensors",
) -> Path:
    """A folder with these tensors and this quantization_config; no tokenizer, as reading needs none."""
    path.mkdir(parents=True, exist_ok=True)
    save_file({key: value.contiguous() for key, value in tensors.items()}, path / name, metadata or {"format": "pt"})
    config: dict[str, Any] = {"model_type": "llama"}
    if quantization is not None:
        config["quantization_config"] = dict(quantization)
    (path / "config.json").write_text(json.dumps(config))
    return path


def words(codes: np.ndarray, bits: int) -> np.ndarray:
    """[rows, columns] → int32 [rows, words]: each row one number whose lowest bits are the first code."""
    rows, columns = codes.shape
    count = -(-columns * bits // 32)
    out = np.zeros((rows, count), dtype=np.uint32)
    for row in range(rows):
        number = sum(int(code) << (bits * place) for place, code in enumerate(codes[row]))
        out[row] = [(number >> (32 * word)) & 0xFFFFFFFF for word in range(count)]
    return out.view(np.int32)


def gptq_tensors(
    q: np.ndarray, zeros: np.ndarray, scales: torch.Tensor, bits: int, g_idx: np.ndarray | None, *, v1: bool
) -> dict[str, torch.Tensor]:
    """q [N, K], zeros and scales [N, groups] → GPTQ's tensors of one layer."""
    stored = (zeros.astype(np.int64) - (1 if v1 else 0)) & (2**bits - 1)
    found = {
        f"{MODULE}.qweight": torch.tensor(words(q, bits).T.copy()),
        f"{MODULE}.qzeros": torch.tensor(words(stored.T, bits)),
        f"{MODULE}.scales": scales.T.contiguous(),
    }
    if g_idx is not None:
        found[f"{MODULE}.g_idx"] = torch.tensor(g_idx, dtype=torch.int32)
    return found


def dequantized(q: np.ndarray, zeros: np.ndarray, scales: torch.Tensor, g_idx: np.ndarray) -> np.ndarray:
    """W[n, k] = scales[n, g] * (q[n, k] - zeros[n, g]), g = g_idx[k], in float32."""
    return ((q - zeros[:, g_idx]).astype(np.float32) * scales.float().numpy()[:, g_idx]).astype(np.float32)
