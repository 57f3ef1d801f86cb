"""bitsandbytes' int8 and NF4, with and without nested scales."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from qualgate.errors import NotInThisVersion
from qualgate.quant.readers import read_quantized
from qualgate_kernels.dequantize import NF4, dequantize_torch
from tests.quant.readers.made import MODULE, folder_of

EIGHT, FOUR = {"load_in_8bit": True}, {"quant_method": "bitsandbytes", "load_in_4bit": True}
LEVELS = np.array(NF4, dtype=np.float32)


def test_int8_rows_are_scaled_by_their_absmax(tmp_path):
    weight, absmax = torch.randint(-127, 128, (6, 20)).to(torch.int8), torch.rand(6) + 0.1
    tensors = {
        f"{MODULE}.weight": weight,
        f"{MODULE}.SCB": absmax,
        f"{MODULE}.weight_format": torch.tensor(0, dtype=torch.uint8),
    }
    layer = read_quantized(folder_of(tmp_path, tensors, EIGHT)).layers[MODULE]
    expected = weight.double() * absmax.double()[:, None] / 127
    # The library multiplies in another order, so the last bit may differ.
    assert torch.allclose(dequantize_torch(layer.weight).double(), expected, rtol=2**-22, atol=0)
    assert "LLM.int8()" in layer.activations.unsupported


def nf4_tensors(rows: int, columns: int, block: int, *, nested: bool) -> tuple[dict[str, torch.Tensor], np.ndarray]:
    """(tensors, the float32 weight they stand for), flattened block by flattened block."""
    random = np.random.default_rng(rows * columns)
    codes = random.integers(0, 16, rows * columns)
    blocks = -(-rows * columns // block)
    state: dict = {"quant_type": "nf4", "blocksize": block, "dtype": "float16", "shape": [rows, columns]}
    tensors = {
        f"{MODULE}.weight": torch.tensor((codes[0::2] << 4 | codes[1::2])[:, None], dtype=torch.uint8),  # high first
        f"{MODULE}.weight.quant_map": torch.tensor(LEVELS),
    }
    if nested:
        stored = random.integers(0, 256, blocks)
        levels, scales = random.uniform(-1, 1, 256).astype(np.float32), random.uniform(0.1, 0.2, -(-blocks // 4))
        scales = scales.astype(np.float32)
        state |= {"nested_blocksize": 4, "nested_offset": 1.5, "nested_dtype": "float32"}
        absmax = levels[stored] * scales[np.arange(blocks) // 4] + np.float32(1.5)
        tensors |= {
            f"{MODULE}.weight.absmax": torch.tensor(stored, dtype=torch.uint8),
            f"{MODULE}.weight.nested_absmax": torch.tensor(scales),
            f"{MODULE}.weight.nested_quant_map": torch.tensor(levels),
        }
    else:
        absmax = random.uniform(0.1, 1, blocks).astype(np.float32)
        tensors[f"{MODULE}.weight.absmax"] = torch.tensor(absmax)
    tensors[f"{MODULE}.weight.quant_state.bitsandbytes__nf4"] = torch.tensor(
        list(json.dumps(state).encode()), dtype=torch.uint8
    )
    weight = LEVELS[codes] * absmax[np.arange(rows * columns) // block]
    return tensors, weight.reshape(rows, columns)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(("rows", "columns", "block"), [(6, 128, 64), (4, 64, 64), (5, 96, 64), (3, 32, 64)])
def test_nf4_blocks_run_over_the_flattened_matrix(tmp_path, rows, columns, block, nested):
    tensors, expected = nf4_tensors(rows, columns, block, nested=nested)
    layer = read_quantized(folder_of(tmp_path, tensors, FOUR)).layers[MODULE]
    assert np.array_equal(dequantize_torch(layer.weight).numpy(), expected)
    assert layer.weight.code == "nf4"
    assert bool(layer.oddities) == (columns % block != 0)


def test_other_layouts_are_refused(tmp_path):
    tensors = {
        f"{MODULE}.weight": torch.ones(4, 8, dtype=torch.int8),
        f"{MODULE}.SCB": torch.ones(4),
        f"{MODULE}.weight_format": torch.tensor(2, dtype=torch.uint8),
    }
    with pytest.raises(NotInThisVersion, match="permuted for one kind of GPU"):
        read_quantized(folder_of(tmp_path / "a", tensors, EIGHT))
    fp4 = {f"{MODULE}.weight.quant_state.bitsandbytes__fp4": torch.zeros(2, dtype=torch.uint8)}
    with pytest.raises(NotInThisVersion, match="fp4, which is not read"):
        read_quantized(folder_of(tmp_path / "b", fp4, FOUR))
