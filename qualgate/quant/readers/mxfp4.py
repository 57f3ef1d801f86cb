"""MXFP4 as gpt-oss publishes it (quant_method "mxfp4"): only the experts are quantized, all of a layer in one tensor.

    NAME_blocks  uint8 [experts, N, K / 32, 16], low nibble = even k
    NAME_scales  uint8 [experts, N, K / 32], E8M0

Each expert becomes a weight of its own, [N, K], called NAME.0, NAME.1, … (transformers' own parameter NAME is
[experts, K, N]). Biases (NAME_bias) stay plain tensors.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from qualgate.errors import UsageError
from qualgate.quant.readers.source import Layer, Source, packed
from qualgate_kernels.packed import MXFP4_BLOCK


def read(source: Source) -> Iterator[tuple[str, Layer]]:
    """Yield every expert's weight, by the parameter's name and the expert's number."""
    for parameter in source.modules("_blocks"):
        name = f"{parameter}_blocks"
        blocks = source.expect(name, (torch.uint8,), (None, None, None, MXFP4_BLOCK // 2), "16 bytes a block of 32")
        experts, out_features, groups, _ = blocks.shape
        scales = source.expect(f"{parameter}_scales", (torch.uint8,), (experts, out_features, groups), "one a block")
        if not blocks.numel():
            raise UsageError(f"{source.where(name)}: tensor {name} is empty. Fetch or save this checkpoint again.")
        for expert in range(experts):
            yield (
                f"{parameter}.{expert}",
                Layer(
                    weight=packed(
                        source,
                        name,
                        code="e2m1",
                        bits=4,
                        shape=(out_features, groups * MXFP4_BLOCK),
                        codes=blocks[expert].reshape(out_features, -1).contiguous(),
                        scales=scales[expert].contiguous(),
                        group_size=MXFP4_BLOCK,
                    ),
                    layout="gpt-oss experts",
                ),
            )
