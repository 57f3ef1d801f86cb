"""GPTQ folders, written by AutoGPTQ, GPTQModel or us: layouts v1 and v2, 2, 3, 4 and 8 bits.

    qweight  int32 [K * bits / 32, N]   a bitstream down each column, lowest bits first
    qzeros   int32 [groups, N * bits / 32]   a bitstream along each row. v1 stores the zero point minus 1, v2 itself
    scales   float [groups, N]
    g_idx    int32 [K], the group of each in_feature (optional)

The shapes of v1 and v2 are the same: only the config tells them apart. In v1 a true zero point of 0 becomes -1, and
AutoGPTQ's packing then sets that place and all higher ones of the word to ones: what stood above it is lost. Kernels
disagree on how a stored 15 is read; here it is (15 + 1) & 15 = 0, as AutoGPTQ's default kernel reads it, and words that
hold one are reported. GPTQModel takes the 1 from, and adds it to, a whole word of 2, 4 or 8 bit places at once: a zero
point of 0 then borrows from the place above, and nothing is lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.agreement.conventions import check_order, check_zero_points
from qualgate.quant.agreement.patterns import regex_fits
from qualgate.quant.formats import Format
from qualgate.quant.readers.source import FLOATS, Layer, Source, packed, per_row_words
from qualgate_kernels.packed import unpack_codes

_BITS = {"gptq": (2, 3, 4, 8), "auto-round": (2, 3, 4, 5, 6, 7, 8)}
_ONES = {2: 0x55555555, 4: 0x11111111, 8: 0x01010101}  # a 1 in every place of a word


def read(source: Source) -> Iterator[tuple[str, Layer]]:
    """Yield every quantized layer, by module name. Raises UsageError for what the config and the tensors disagree
    on."""
    v1 = _is_v1(source.format)
    borrows = v1 and _by_gptqmodel(source.format)
    for module in source.modules(".qweight"):
        yield module, read_layer(source, module, _of_module(source.format, module), v1=v1, borrows=borrows)


def _by_gptqmodel(format: Format) -> bool:
    """Return whether a GPTQModel of 0.9 or later wrote the folder, which subtracts from whole words, as its loader
    does."""
    meta = format.settings.get("meta")
    makers = meta.get("quantizer", []) if isinstance(meta, dict) else []
    for maker in makers if isinstance(makers, list) else [makers]:
        name, _, version = str(maker).lower().partition(":")
        if name == "gptqmodel":
            return not re.match(r"0\.[0-8](\.|$)", version)
    return False


def _is_v1(format: Format) -> bool:
    """Return whether zero points are stored less one (layout v1). NotInThisVersion for other layouts than v1 and v2."""
    if format.settings.get("is_marlin_format"):
        raise NotInThisVersion(
            f"{format.where}: is_marlin_format is true: these weights are permuted in tiles for one GPU kernel, and "
            "that layout is not read. Quantize the model again without it, or convert it back with AutoGPTQ."
        )
    layout = format.setting("checkpoint_format", "format", kind=str, default="gptq")
    if layout not in ("gptq", "gptq_v2"):
        raise NotInThisVersion(
            f"{format.where}: checkpoint_format {layout!r:.40} is not read. Layouts that are read: gptq, gptq_v2."
        )
    return layout == "gptq"


def _of_module(format: Format, module: str) -> dict[str, Any]:
    """Return bits, group_size, sym and desc_act of one module; GPTQModel's `dynamic` gives some modules their own."""
    settings = {
        "bits": format.setting("bits", kind=int),
        "group_size": format.setting("group_size", kind=int, default=-1),
        **{key: format.settings.get(key) for key in ("sym", "desc_act")},
    }
    dynamic = format.setting("dynamic", kind=dict, default={})
    for pattern, own_settings in dynamic.items():
        takes = isinstance(own_settings, dict) and not pattern.startswith("-:")
        if takes and regex_fits(pattern.removeprefix("+:"), module, format.where):
            settings |= {key: own_settings[key] for key in settings if key in own_settings}
            break
    return settings


def _checked(format: Format, bits: Any, group_size: Any) -> tuple[int, int]:
    widths = _BITS[format.method]
    if type(bits) is not int or bits not in widths:
        raise UsageError(f"{format.where}: bits is {bits!r:.20}, expected one of {', '.join(map(str, widths))}.")
    if type(group_size) is not int or group_size < -1 or group_size == 0:
        raise UsageError(f"{format.where}: group_size is {group_size!r:.20}, expected -1 (a whole row) or more than 0.")
    return bits, group_size


def read_layer(source: Source, module: str, settings: Mapping[str, Any], *, v1: bool, borrows: bool = False) -> Layer:
    """Read one layer, checked against its bits, group_size, sym and desc_act in `settings`.

    v1: zero points are stored less one; borrows: they were subtracted from whole words, not code by code.
    """
    bits, group_size = _checked(source.format, settings["bits"], settings["group_size"])
    stored_v1 = v1
    words = source.expect(f"{module}.qweight", (torch.int32,), (None, None))
    columns, out_features = words.shape[0] * 32 // bits, words.shape[1]
    stored_g_idx = source.expect(f"{module}.g_idx", (torch.int32,), (None,)) if source.has(f"{module}.g_idx") else None
    in_features = columns if stored_g_idx is None else stored_g_idx.shape[0]
    where, name = source.where(f"{module}.qweight"), f"{module}.qweight"
    if words.shape[0] * 32 != in_features * bits or not in_features or not out_features:
        raise UsageError(
            f"{where}: tensor {name} {list(words.shape)} holds {words.shape[0] * 32} bits a column, but the config "
            f"says {bits} bits for {in_features} in_features. Set `bits` in {source.format.where.name} to what the "
            "model was quantized to, or fetch it again."
        )
    groups = source.groups(name, in_features, group_size)
    meaning = f"{in_features} in_features at {bits} bits, in groups of {group_size if group_size > 0 else 'a row'}"
    scales = source.expect(f"{module}.scales", FLOATS, (groups, out_features), meaning)
    if out_features * bits % 32:
        raise UsageError(
            f"{where}: tensor {name} has {out_features} out_features, whose {bits}-bit zero points do not fill whole "
            "words. GPTQ cannot hold such a layer."
        )
    stored = source.expect(f"{module}.qzeros", (torch.int32,), (groups, out_features * bits // 32), f"{bits} bits")
    oddities: tuple[str, ...] = ()
    layout = f"gptq {'v1' if v1 else 'v2'}"
    if borrows and bits in _ONES:
        stored, v1 = stored + _ONES[bits], False  # int32 wraps, as the library's does
    zeros = unpack_codes(per_row_words(stored), bits, out_features)
    if v1:
        lost = 0 if borrows else int((zeros == 2**bits - 1).sum())
        if lost:
            oddities += (
                f"{lost} stored zero points of {2**bits - 1}, read as 0: where AutoGPTQ met a true zero point of 0, "
                "those above it in the word are lost",
            )
        zeros = (zeros + 1) & (2**bits - 1)
    symmetric = bool((zeros == 2 ** (bits - 1)).all())
    codes, g_idx = per_row_words(words.T), _g_idx(stored_g_idx, in_features, groups)
    config = source.format.where
    key = "packing_format" if source.format.method == "auto-round" else "checkpoint_format"
    check_zero_points(config, module, codes, zeros, bits, v1=stored_v1, sym=settings["sym"], key=key)
    check_order(config, module, g_idx, given=stored_g_idx is not None, desc_act=settings.get("desc_act"), groups=groups)
    bias, odd_bias = source.bias(module, out_features)
    weight = packed(
        source,
        name,
        code="int",
        bits=bits,
        shape=(out_features, in_features),
        codes=codes,
        scales=scales.T.contiguous(),
        group_size=in_features // groups if groups > 1 else 0,
        zero_points=None if symmetric else zeros.T.contiguous(),
        g_idx=g_idx,
    )
    return Layer(weight=weight, layout=layout, bias=bias, oddities=oddities + odd_bias)


def _g_idx(given: torch.Tensor | None, in_features: int, groups: int) -> torch.Tensor | None:
    """Return the layer's g_idx; None if every in_feature is in the group of its place, as most checkpoints have it."""
    if given is None:
        return None
    plain = torch.arange(in_features, dtype=torch.int32) // (in_features // groups)
    return None if torch.equal(given, plain) else given.contiguous()
