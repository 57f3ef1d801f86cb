"""One face for every family: a folder becomes packed layers and plain tensors, checked before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.agreement.plain_layers import check_listed
from qualgate.quant.agreement.scales import with_scales_checked
from qualgate.quant.formats import Format, said_by_config, said_by_headers
from qualgate.quant.full_precision import has_no_say
from qualgate.quant.model_files import CONFIG_FILES, read_files
from qualgate.quant.readers import (
    auto_round,
    awq,
    bitsandbytes,
    compressed_tensors,
    fp8,
    gguf,
    gptq,
    modelopt,
    mxfp4,
    torchao,
)
from qualgate.quant.readers.source import AGAIN, Layer, Source, open_source
from qualgate.quant.shards import Shards, read_shards

_READERS: dict[str, Callable[[Source], Iterator[tuple[str, Layer]]]] = {
    "gptq": gptq.read,
    "awq": awq.read,
    "auto-round": auto_round.read,
    "compressed-tensors": compressed_tensors.read,
    "fp8": fp8.read,
    "fbgemm_fp8": fp8.read,
    "modelopt": modelopt.read,
    "mxfp4": mxfp4.read,
    "torchao": torchao.read,
    "bitsandbytes": bitsandbytes.read,
    "gguf": gguf.read,
}
# Endings that only quantized layers have. What is left of them when a reader is done belongs to another format.
_QUANTIZED = (
    ".qweight", ".qzeros", ".g_idx", ".scales", ".weight_packed", ".weight_scale", ".weight_scale_2",
    ".weight_scale_inv", ".SCB", "_blocks", "_scales", "._weight_qdata", "._weight_scale", ".weight_zero_point",
    ".weight_global_scale", ".weight_shape", ".input_scale", ".input_zero_point", ".input_global_scale",
    ".activation_scale", ".weight.absmax", ".weight.quant_map",
)  # fmt: skip
_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuantizedCheckpoint:
    """A quantized folder, read. Everything is as the files have it; nothing has been rounded or converted."""

    folder: Path
    format: Format
    layers: dict[str, Layer]  # by module
    tensors: dict[str, torch.Tensor]  # every other tensor, by name

    @property
    def oddities(self) -> dict[str, int]:
        """Return what readers would want to know about the layers, with the number of layers that have it."""
        counts: dict[str, int] = {}
        for layer in self.layers.values():
            for oddity in layer.oddities:
                counts[oddity] = counts.get(oddity, 0) + 1
        return counts


def read_quantized(folder: Path) -> QuantizedCheckpoint:
    """Everything the folder holds, see `read_checkpoint`."""
    shards, format = _headers(folder)
    return read_checkpoint(shards, format)


def read_checkpoint(shards: Shards, format: Format | None, *, weightless: bool = False) -> QuantizedCheckpoint:
    """Everything a folder holds whose headers and format are known. Raises UsageError for one that is not quantized,
    damaged or contradictory, and NotInThisVersion for formats and layouts that are not read.

    weightless: all is read and checked, one layer at a time, and weights are kept as shapes alone, on the meta device.
    """
    with _opened(shards, format) as source:
        layers = {name: _weightless(layer) if weightless else layer for name, layer in _checked(source)}
        tensors = {name: tensor.to("meta") if weightless else tensor for name, tensor in _plain(source).items()}
        return QuantizedCheckpoint(folder=shards.folder, format=source.format, layers=layers, tensors=tensors)


def _weightless(layer: Layer) -> Layer:
    return replace(layer, weight=layer.weight.to("meta"))


def layers(folder: Path) -> Iterator[tuple[str, Layer]]:
    """Yield the quantized layers one after another, none of them kept; the same checks as `read_quantized`."""
    with _opened(*_headers(folder)) as source:
        yield from _checked(source)
        _plain(source)


def check_runnable(checkpoint: QuantizedCheckpoint) -> None:
    """Raise NotInThisVersion when running it needs what the engine does not compute. Reading it needs none of that."""
    for name, layer in checkpoint.layers.items():
        if layer.activations.unsupported:
            raise NotInThisVersion(
                f"{checkpoint.folder}: {name} quantizes its input in a way that is not computed in this version: "
                f"{layer.activations.unsupported}. A verdict on its weights alone would be about another model. "
                "`qualgate inspect` still reads the weights."
            )
    if checkpoint.format.method == "gguf":
        gguf.check_architecture(checkpoint.format)


def _headers(folder: Path) -> tuple[Shards, Format | None]:
    """What the folder holds and in which format, as its files are now."""
    format = said_by_config(read_files(folder, CONFIG_FILES))
    shards = read_shards(folder)
    return shards, format or said_by_headers(shards)


@contextmanager
def _opened(shards: Shards, format: Format | None) -> Iterator[Source]:
    if format is None:
        raise UsageError(f"{shards.folder} is not a quantized checkpoint: nothing in its configs or headers says so.")
    with open_source(shards, format) as source:
        yield source


def _checked(source: Source) -> Iterator[tuple[str, Layer]]:
    """Yield the format's layers, checked. UsageError for doubled layers, for none, and for tensors of another
    format."""
    names: set[str] = set()
    for name, layer in _READERS[source.format.method](source):
        if name in names:
            raise UsageError(f"{source.folder}: {name} is stored twice, in two formats. {AGAIN}")
        names.add(name)
        check_listed(source.format, name)
        yield name, with_scales_checked(source.where(name), name, layer)
    if not names:
        raise UsageError(
            f"{source.format.where} says the weights are {source.format.method}, but no tensor of that format is in "
            f"{source.folder}. Remove the quantization config if these are plain weights, else fetch the checkpoint "
            "again."
        )
    for name in source.rest():
        if name.endswith(_QUANTIZED):
            raise UsageError(
                f"{source.where(name)}: tensor {name} belongs to another quantized format than {source.format.method}, "
                f"which {source.format.where} names, or its layer is incomplete. One model cannot mix formats. {AGAIN}"
            )


def _plain(source: Source) -> dict[str, torch.Tensor]:
    """Return the tensors that belong to no quantized layer. UsageError for a matrix of integers among them."""
    if source.format.method == "gguf":
        return gguf.plain_tensors(source)
    tensors = {}
    for name in source.rest():
        if source.taken(name):  # by a computed tensor of this loop
            continue
        tensor = source.tensor(name)
        if tensor.dtype not in _FLOATS and tensor.dim() >= 2 and not has_no_say(name, tuple(tensor.shape)):
            raise UsageError(
                f"{source.where(name)}: tensor {name} is {str(tensor.dtype).removeprefix('torch.')} "
                f"{list(tensor.shape)}, which does not fit {source.format.method} as {source.format.where} describes "
                f"it. It may be a quantized weight without its scales. {AGAIN}"
            )
        tensors[name] = tensor
    return tensors
