"""AutoRound folders (quant_method "auto-round"): integers in the layouts of GPTQ and AWQ, by `packing_format`:

    auto_round:auto_gptq   GPTQ v1, without g_idx: zero points stored less one
    auto_round             GPTQ v2: zero points themselves
    auto_round:auto_awq    AWQ gemm

`extra_config` gives some layers other bits, groups or zero points than the rest, or leaves them in 16 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from qualgate.errors import NotInThisVersion
from qualgate.quant.agreement.auto_round import FLOAT_BITS, settings_of
from qualgate.quant.agreement.plain_layers import check_listed
from qualgate.quant.formats import Format
from qualgate.quant.readers import awq, gptq
from qualgate.quant.readers.source import Layer, Source

_LAYOUTS = {
    "auto_round:auto_gptq": "gptq v1", "auto_round:gptq": "gptq v1", "auto_round": "gptq v2",
    "auto_round:auto_awq": "awq gemm", "auto_round:awq": "awq gemm",
}  # fmt: skip


def read(source: Source) -> Iterator[tuple[str, Layer]]:
    """Yield every quantized layer, by module name. NotInThisVersion for packings that are not read."""
    format = source.format
    layout = _layout(format, "the model", format.settings)
    for module in source.modules(".qweight"):
        settings = settings_of(format, module)
        _layout(format, module, settings)
        check_listed(format, module)  # before its bits of 16 are called wrong
        if layout == "awq gemm":
            yield module, awq.read_layer(source, module, {**settings, "zero_point": settings["sym"] is False})
        else:
            yield module, gptq.read_layer(source, module, settings, v1=layout == "gptq v1")


def _layout(format: Format, name: str, settings: Mapping[str, Any]) -> str:
    """Return the layout of the packing. name: whose settings these are. NotInThisVersion for one that is not read."""
    packing = format.setting("packing_format", kind=str, default="auto_round:auto_gptq")
    data_type, act_bits = settings.get("data_type") or "int", settings.get("act_bits") or FLOAT_BITS
    if packing not in _LAYOUTS or data_type != "int" or act_bits != FLOAT_BITS:
        raise NotInThisVersion(
            f"{format.where}: AutoRound's packing_format {packing!r:.60} with data_type {data_type!r:.20} and act_bits "
            f"{act_bits!r:.20}, which {name} has, is not read. Read are integer weights with plain inputs, in "
            f'{", ".join(_LAYOUTS)}. Save the model with AutoRound and format="llm_compressor".'
        )
    return _LAYOUTS[packing]
