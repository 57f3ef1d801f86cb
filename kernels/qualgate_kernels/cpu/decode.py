"""A pass through a plain decoder in C: see qualgate_kernels/plain_decoder.py, its torch twin."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from qualgate_kernels.cpu.int8 import PreparedInt8
from qualgate_kernels.cpu.library import INT8_PATHS, PATHS, Library, check, described, load
from qualgate_kernels.cpu.paged import Kept, kept
from qualgate_kernels.paged import Blocks, Places
from qualgate_kernels.plain_decoder import DecoderLayer, Layout, PlainDecoder, Products

UNIT = 16  # what widths and head_dim are multiples of
PARTS_MAX = 3
PLACES = (
    "what enters {attention_norm}", "{attention_norm}", "{q}", "{q_norm}", "{k}", "{k_norm}", "{v}",
    "keys of layer {layer}", "values of layer {layer}", "what enters {o}", "{o}", "what enters {feed_norm}",
    "{feed_norm}", "{gate}", "{up}", "what enters {down}", "{down}",
)  # fmt: skip
"""What is looked at in a layer, in the order of the pass; behind the last layer, what enters the last norm and it."""

STORED = {"float32": 0, "bfloat16": 1, "float16": 2}
"""To which dtype what a server stores is rounded, by its number in C."""

_INT, _POINTER = ctypes.c_int64, ctypes.c_void_p


class _Linear(ctypes.Structure):
    _fields_ = [
        *((name, _INT) for name in ("bytes", "rows", "columns")),
        *((name, _POINTER) for name in ("weight", "codes", "sums", "scales")),
        *((name, _INT) for name in ("codes_bytes", "scales_bytes")),
        ("bias", _POINTER),
    ]


class _Linears(ctypes.Structure):
    _fields_ = [("count", _INT), ("part", _Linear * PARTS_MAX)]


class _Layer(ctypes.Structure):
    _fields_ = [
        *((name, _Linears) for name in ("heads", "out", "gates", "down")),
        *((name, _POINTER) for name in ("attention_norm", "feed_norm", "query_norm", "key_norm")),
        ("kept", Kept),
        ("sinks", _POINTER),
        ("scale", ctypes.c_float),
        ("soft_cap", ctypes.c_float),
        ("window", _INT),
    ]


class _Decoder(ctypes.Structure):
    _fields_ = [
        *(
            (name, _INT)
            for name in ("bytes", "layers", "width", "heads", "kv_heads", "dim", "rotary", "inner", "positions")
        ),
        *((name, _POINTER) for name in ("layer", "norm", "cosines", "sines")),
        ("eps", ctypes.c_float),
    ]


class _Pass(ctypes.Structure):
    _fields_ = [
        *((name, _INT) for name in ("bytes", "rows", "wanted", "blocks", "sequences", "width")),
        *((name, _POINTER) for name in ("x", "table", "sequence", "position", "slots", "want", "states")),
        ("limit", ctypes.c_float),
        ("beyond", _POINTER),
        ("stored", _INT),
    ]


@cache
def _entry() -> Any:
    """Return the C function, or the reason why there is none."""
    library = load()
    if not isinstance(library, Library):
        return library
    function = library.handle.qualgate_decode
    function.argtypes = [_POINTER, _POINTER, ctypes.c_int, ctypes.c_int, ctypes.c_int]
    return function


def missing() -> str:
    """Why there is no kernel; "" where there is."""
    entry = _entry()
    return entry if isinstance(entry, str) else ""


def unfit(decoder: PlainDecoder) -> str:
    """Return why the kernel does not take a decoder; "" if it does."""
    if missing():
        return missing()
    sizes = {"width": decoder.width, "inner width": decoder.inner, "head_dim": decoder.head_dim}
    for name, size in sizes.items():
        if size % UNIT:
            return f"its {name} of {size} is no multiple of {UNIT}"
    return ""


@dataclass(slots=True)
class Decode:
    """A decoder bound to its layers' blocks, so that a pass makes no structure anew. Both live as long as this does."""

    decoder: PlainDecoder
    blocks: Sequence[Blocks]
    _layers: Any
    _described: _Decoder

    def __init__(self, decoder: PlainDecoder, blocks: Sequence[Blocks]) -> None:
        """ValueError for a decoder that `unfit` names, for tensors of other shapes or dtypes than its records give, and
        for blocks of other heads or of several formats."""
        if reason := unfit(decoder):
            raise ValueError(f"decoder: {reason}")
        shape, count = (decoder.kv_heads, decoder.head_dim), blocks[0].count if blocks else 0
        form = blocks[0].form if blocks else ""
        uniform = all(
            (layer_blocks.count, layer_blocks.kv_heads, layer_blocks.head_dim, layer_blocks.form)
            == (count, *shape, form)
            for layer_blocks in blocks
        )
        if len(blocks) != len(decoder.layers) or not uniform:
            raise ValueError(
                f"blocks: expected {len(decoder.layers)} layers of as many blocks of {shape[0]} heads of {shape[1]}, "
                "in one format"
            )
        self.decoder, self.blocks = decoder, blocks
        layers = [_layer(decoder, *pair) for pair in zip(decoder.layers, blocks, strict=True)]
        self._layers = (_Layer * len(layers))(*layers)
        angles = decoder.cosines.shape
        self._described = _Decoder(
            bytes=ctypes.sizeof(_Decoder), layers=len(layers), width=decoder.width, heads=decoder.heads,
            kv_heads=decoder.kv_heads, dim=decoder.head_dim, rotary=2 * angles[1], inner=decoder.inner,
            positions=angles[0], layer=ctypes.addressof(self._layers), norm=_at(decoder.norm, decoder.width),
            cosines=_at(decoder.cosines, *angles), sines=_at(decoder.sines, *angles), eps=decoder.eps,
        )  # fmt: skip

    def __call__(
        self,
        x: torch.Tensor,
        places: Places,
        slots: torch.Tensor,
        wanted: torch.Tensor,
        threads: int,
        *,
        limit: float = 0.0,
        beyond: torch.Tensor | None = None,
        stored: str = "float32",
        path: str = "",
    ) -> torch.Tensor:
        """As `decode_torch`; `x` is written over. slots: `Places.slots`; wanted: ascending. ValueError for tensors of
        other shapes or dtypes, RuntimeError for numbers out of range.

        limit: numbers beyond are counted in `beyond`, int64 [layers * len(PLACES) + 2], in the last layer those of rows
        that are wanted; 0.0: they are not. stored: as in `decode_torch`; what it makes infinite is counted as well.
        path: one of the library's, for tests.
        """
        rows, (sequences, width) = len(x), places.table.shape
        table, sequence, position = places.table, places.sequence, places.position
        call = _Pass(
            bytes=ctypes.sizeof(_Pass), rows=rows, wanted=len(wanted), blocks=self.blocks[0].count,
            sequences=sequences, width=width, x=_at(x, rows, self.decoder.width),
            table=_at(table, sequences, width, dtype=torch.int32), sequence=_at(sequence, rows, dtype=torch.int32),
            position=_at(position, rows, dtype=torch.int32), slots=_at(slots, rows, dtype=torch.int64),
            want=_at(wanted, len(wanted), dtype=torch.int64), limit=limit,
            beyond=_at(beyond, len(self.blocks) * len(PLACES) + 2, dtype=torch.int64),
            stored=STORED[stored],
        )  # fmt: skip
        states = torch.empty(len(wanted), self.decoder.width)
        call.states = states.data_ptr()
        library = load()
        assert isinstance(library, Library)
        path_number = PATHS[path or library.path]
        int8_path = INT8_PATHS[library.int8_paths[-1]]
        check(_entry()(ctypes.byref(self._described), ctypes.byref(call), threads, path_number, int8_path))
        return states


def _layer(decoder: PlainDecoder, layer: DecoderLayer, blocks: Blocks) -> _Layer:
    """Return one layer as C reads it: addresses of its tensors, checked, and its attention's settings."""
    width, dim, seen = decoder.width, decoder.head_dim, layer.seen
    return _Layer(
        heads=_linears(layer.heads), out=_linears(layer.out), gates=_linears(layer.gates), down=_linears(layer.down),
        attention_norm=_at(layer.attention_norm, width), feed_norm=_at(layer.feed_norm, width),
        query_norm=_at(layer.query_norm, dim), key_norm=_at(layer.key_norm, dim),
        kept=kept(blocks), sinks=_at(seen.sinks, decoder.heads), scale=seen.scale, soft_cap=seen.soft_cap,
        window=seen.window,
    )  # fmt: skip


def _linears(products: Products) -> _Linears:
    parts = [_linear(*pair) for pair in zip(products.weights, products.biases, strict=True)]
    return _Linears(count=len(parts), part=(_Linear * PARTS_MAX)(*parts))


def _linear(weight: Layout, bias: torch.Tensor | None) -> _Linear:
    """Return one product as C reads it. weight: laid out as floats, packed codes, or int8 codes with their sums."""
    rows, columns = weight.shape
    common = {"bytes": ctypes.sizeof(_Linear), "rows": rows, "columns": columns, "bias": _at(bias, rows)}
    if not isinstance(weight, PreparedInt8):
        return _Linear(weight=ctypes.addressof(described(weight)), **common)
    return _Linear(
        codes=weight.codes.data_ptr(), sums=weight.sums.data_ptr(), scales=weight.scales.data_ptr(),
        codes_bytes=weight.codes.nbytes, scales_bytes=weight.scales.nbytes, **common,
    )  # fmt: skip


def _at(tensor: torch.Tensor | None, *shape: int, dtype: torch.dtype = torch.float32) -> int | None:
    """Return the address of a tensor's numbers, after checking the tensor, because C cannot."""
    if tensor is None:
        return None
    readable = tensor.is_cpu and tensor.is_contiguous()
    if not readable or tensor.dtype != dtype or tensor.shape != shape:
        raise ValueError(
            f"decoder: expected {dtype} {list(shape)}, contiguous, on the CPU, got {tensor.dtype} {list(tensor.shape)}"
        )
    return tensor.data_ptr()
