"""AWQ folders of version "gemm", written by AutoAWQ, GPTQModel or us: 4 bits, always with zero points.

qweight  int32 [K, N / 8]   eight out_features a word, interleaved: nibble i holds out_feature 8j + ORDER[i]
qzeros   int32 [groups, N / 8]   the same way; unlike GPTQ v1 the zero point itself
scales   float16 [groups, N]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.readers.source import AGAIN, FLOATS, Layer, Source, packed, per_row_words
from qualgate_kernels.packed import pack_codes, unpack_codes

ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
_PLACES = torch.tensor([ORDER.index(column) for column in range(8)])  # the nibble of each out_feature


def read(source: Source) -> Iterator[tuple[str, Layer]]:
    """Yield every quantized layer, by module name. Raises UsageError for what the config and the tensors disagree
    on."""
    format = source.format
    version = format.setting("version", "checkpoint_format", kind=str, default="gemm").lower()
    if version != "gemm":
        raise NotInThisVersion(
            f"{format.where}: AWQ version {version!r:.40} lays its weights out for other kernels and is not read. "
            'Save the model again with version "gemm".'
        )
    settings = {
        "bits": format.setting("bits", "w_bit", kind=int, default=4),
        "group_size": format.setting("group_size", "q_group_size", kind=int, default=-1),
        "zero_point": format.settings.get("zero_point"),
    }
    for module in source.modules(".qweight"):
        yield module, read_layer(source, module, settings)


def read_layer(source: Source, module: str, settings: Mapping[str, Any]) -> Layer:
    """Read one layer, checked against its bits, group_size (-1: one group) and zero_point in `settings`."""
    where, bits, group_size = source.format.where, settings["bits"], settings["group_size"]
    if bits != 4:
        raise UsageError(f"{where}: bits is {bits!r:.20}, but AWQ's gemm layout holds 4-bit weights.")
    if type(group_size) is not int or group_size < -1 or group_size == 0:
        raise UsageError(f"{where}: group_size is {group_size!r:.20}, expected -1 (a whole row) or more than 0.")
    layer = _layer(source, module, group_size)
    # GPTQModel writes them all the same; every loader takes zero points from the file, or 8 for all.
    zeros = layer.weight.zero_points
    if settings["zero_point"] is False and zeros is not None and not bool((zeros == 8).all()):
        key = "`sym: true`" if source.format.method == "auto-round" else "`zero_point: false`"
        raise UsageError(
            f"{where} says {key}, but the zero points of {module} are not all 8: servers that follow the config use 8, "
            f"others the stored values. Write the opposite if the file is right. {AGAIN}"
        )
    return layer


def _layer(source: Source, module: str, group_size: int) -> Layer:
    """Read one layer. group_size: as the config gives it."""
    name = f"{module}.qweight"
    words = source.expect(name, (torch.int32,), (None, None))
    in_features, out_features = words.shape[0], words.shape[1] * 8
    if not in_features or not out_features:
        raise UsageError(f"{source.where(name)}: tensor {name} is empty. Fetch or save this checkpoint again.")
    groups = source.groups(name, in_features, group_size)
    meaning = f"{in_features} in_features in groups of {group_size}" if group_size > 0 else "one group"
    scales = source.expect(f"{module}.scales", FLOATS, (groups, out_features), meaning)
    zeros = source.expect(f"{module}.qzeros", (torch.int32,), (groups, out_features // 8), meaning)
    bias, oddities = source.bias(module, out_features)
    weight = packed(
        source,
        name,
        code="int",
        bits=4,
        shape=(out_features, in_features),
        codes=pack_codes(_out_features(words).T, 4),
        scales=scales.T.contiguous(),
        group_size=group_size if groups > 1 else 0,
        zero_points=_out_features(zeros).T.contiguous(),
    )
    return Layer(weight=weight, layout="awq gemm", bias=bias, oddities=oddities)


def _out_features(words: torch.Tensor) -> torch.Tensor:
    """int32 [rows, N / 8] → uint8 [rows, N], in the order of the out_features."""
    nibbles = unpack_codes(per_row_words(words), 4)
    return nibbles.view(words.shape[0], -1, 8)[..., _PLACES].flatten(1)
