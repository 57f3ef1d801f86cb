"""A model folder's safetensors files, read from their headers alone: no torch, no weights in memory.

A header is 8 bytes of length (little-endian), then JSON: tensor name → dtype, shape, [start, stop) in the data.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from qualgate.errors import UsageError
from qualgate.identity import content_hash, file_hash

_ITEM_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64, "C64": 64,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
_HEADER_LIMIT = 100_000_000  # bytes, the format's own limit
_AGAIN = "Fetch or save this checkpoint again."


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """Where one tensor lies."""

    file: Path
    dtype: str  # safetensors' name, e.g. "BF16"
    shape: tuple[int, ...]
    nbytes: int


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The safetensors files transformers would load: `model.safetensors`, or the shards of its index.

    Raises UsageError when there are none, when only pickled weights are there, or when a shard is missing.
    """
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file():
        return (single,)
    if index.is_file():
        return tuple(sorted({folder / shard for shard in _weight_map(index).values()}))
    pickled = sorted(path.name for path in folder.iterdir() if path.suffix in (".bin", ".pt", ".pth", ".pkl"))
    if pickled:
        raise UsageError(
            f"{folder} holds only pickled weights ({', '.join(pickled[:3])}). Loading a pickle can run any code, so "
            "qualgate refuses it. Save the model again with save_pretrained, which writes model.safetensors."
        )
    raise UsageError(f"{folder} holds no weights: expected model.safetensors or model.safetensors.index.json.")


def tensor_entries(folder: Path) -> dict[str, TensorEntry]:
    """Every tensor of the model, by name. Raises UsageError naming the file and tensor that are damaged."""
    files = weight_files(folder)
    entries = {name: entry for file in files for name, entry in read_header(file).items()}
    index = folder / "model.safetensors.index.json"
    if not (folder / "model.safetensors").is_file():
        for name, shard in _weight_map(index).items():
            if name not in entries or entries[name].file.name != shard:
                raise UsageError(f"{index} says that {name} is in {shard}, but it is not. {_AGAIN}")
    return entries


def weights_hash(folder: Path) -> str:
    """sha256 over the model's safetensors files, in the order of their names."""
    stats = [(file, file.stat()) for file in weight_files(folder)]
    return content_hash([_file_hash(file, stat.st_size, stat.st_mtime_ns) for file, stat in stats])


@cache
def _file_hash(file: Path, size: int, mtime_ns: int) -> str:
    """Once for each state of a file: every arm made from one checkpoint asks for it."""
    return file_hash(file)


def read_header(file: Path) -> dict[str, TensorEntry]:
    """The tensors of one safetensors file, after checking that sizes, bounds and the file's length agree."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > min(size - 8, _HEADER_LIMIT):
            raise UsageError(f"{file} is not a whole safetensors file: {size} bytes, cut within its header. {_AGAIN}")
        raw = stream.read(length)
    try:
        header = json.loads(raw)
        header.pop("__metadata__", None)
        entries = {name: _entry(file, name, fields) for name, fields in header.items()}
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError):
        raise UsageError(f"{file} has no readable safetensors header. {_AGAIN}") from None
    position = 0
    for name, (start, entry) in sorted(entries.items(), key=lambda item: item[1][0]):
        if start != position:
            fault = "overlaps the tensor before it" if start < position else "leaves a gap before it"
            raise UsageError(f"{file}: tensor {name} {fault}. {_AGAIN}")
        position += entry.nbytes
        if 8 + length + position > size:
            raise UsageError(
                f"{file} is truncated: tensor {name} ends at byte {8 + length + position}, the file at {size}. {_AGAIN}"
            )
    if 8 + length + position != size:
        raise UsageError(f"{file} has {size - 8 - length - position} bytes after its last tensor. {_AGAIN}")
    return {name: entry for name, (_, entry) in entries.items()}


def _entry(file: Path, name: str, fields: dict[str, Any]) -> tuple[int, TensorEntry]:
    """(start, entry) of one tensor of the header."""
    dtype, shape, (start, stop) = fields["dtype"], tuple(fields["shape"]), fields["data_offsets"]
    if dtype not in _ITEM_BITS:
        raise UsageError(f"{file}: tensor {name} has dtype {dtype!r}, which safetensors does not define. {_AGAIN}")
    if any(type(extent) is not int or extent < 0 for extent in (*shape, start, stop)):
        raise UsageError(f"{file}: tensor {name} has shape {list(shape)} at {[start, stop]}. {_AGAIN}")
    nbytes = (prod(shape) * _ITEM_BITS[dtype] + 7) // 8
    if stop - start != nbytes:
        raise UsageError(
            f"{file}: tensor {name}, {dtype} {list(shape)}, needs {nbytes} bytes but the header gives {stop - start}. "
            f"{_AGAIN}"
        )
    return start, TensorEntry(file=file, dtype=dtype, shape=shape, nbytes=nbytes)


def _weight_map(index: Path) -> dict[str, str]:
    try:
        weight_map = json.loads(index.read_bytes())["weight_map"]
        shards = set(weight_map.values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError(f"{index} is not a safetensors index: expected JSON with weight_map. {_AGAIN}") from None
    for shard in sorted(shards, key=str):
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise UsageError(f"{index} names the shard {shard!r}: expected a file name in the same folder.")
        if not (index.parent / shard).is_file():
            raise UsageError(f"{index} names the shard {shard}, which is missing. Fetch the rest of this checkpoint.")
    return weight_map
