"""AWQ's interleaved words, written nibble by nibble."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from qualgate.quant.readers import read_quantized
from qualgate_kernels.dequantize import dequantize_torch
from tests.quant.readers.made import MODULE, dequantized, folder_of

ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # nibble i of a word holds column 8j + ORDER[i]


def interleaved(codes: np.ndarray) -> torch.Tensor:
    """[rows, N] → int32 [rows, N / 8]."""
    out = np.zeros((codes.shape[0], codes.shape[1] // 8), dtype=np.uint32)
    for word in range(out.shape[1]):
        for nibble, column in enumerate(ORDER):
            out[:, word] |= codes[:, 8 * word + column].astype(np.uint32) << np.uint32(4 * nibble)
    return torch.tensor(out.view(np.int32))


def made(rows: int, columns: int, groups: int):
    random = np.random.default_rng(rows + columns)
    q, zeros = random.integers(0, 16, (rows, columns)), random.integers(0, 16, (rows, groups))
    return q, zeros, torch.tensor(random.uniform(0.001, 0.1, (rows, groups))).half()


def tensors_of(q, zeros, scales) -> dict[str, torch.Tensor]:
    return {
        f"{MODULE}.qweight": interleaved(q.T),
        f"{MODULE}.qzeros": interleaved(zeros.T),
        f"{MODULE}.scales": scales.T.contiguous(),
    }


def config(group_size: int, **more) -> dict:
    return {"quant_method": "awq", "bits": 4, "group_size": group_size, "zero_point": True, "version": "gemm", **more}


@pytest.mark.parametrize(
    ("rows", "columns", "group_size"), [(8, 16, 16), (24, 40, 8), (72, 96, 32), (16, 24, -1), (8, 7, -1)]
)
def test_interleaved_words_are_read_to_the_bit(tmp_path, rows, columns, group_size):
    groups = columns // group_size if group_size > 0 else 1
    q, zeros, scales = made(rows, columns, groups)
    layer = read_quantized(folder_of(tmp_path, tensors_of(q, zeros, scales), config(group_size))).layers[MODULE]
    expected = dequantized(q, zeros, scales, np.arange(columns) // (columns // groups))
    assert np.array_equal(dequantize_torch(layer.weight).numpy(), expected)
    assert layer.weight.zero_points is not None  # no + 1, unlike GPTQ: 0 and 15 stay what they are


def test_autoawqs_own_config_file_is_recognised(tmp_path):
    q, zeros, scales = made(8, 16, 1)
    folder = folder_of(tmp_path, tensors_of(q, zeros, scales), None)
    (folder / "quant_config.json").write_text('{"zero_point": true, "q_group_size": 16, "w_bit": 4, "version": "GEMM"}')
    layer = read_quantized(folder).layers[MODULE]
    assert np.array_equal(
        dequantize_torch(layer.weight).numpy(), dequantized(q, zeros, scales, np.zeros(16, dtype=int))
    )
