"""A model folder's weight files, read from their headers alone: no torch, no weights in memory.

A safetensors header is 8 bytes of length (little-endian), then JSON: tensor name → dtype, shape, [start, stop) in the
data. GGUF files are read by the package of that name.
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
from qualgate.quant.gguf_file import open_gguf

_ITEM_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64, "C64": 64,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
_HEADER_LIMIT = 100_000_000  # bytes, the format's own limit
_MOST_DIMENSIONS = 16
_AGAIN = "Fetch or save this checkpoint again."


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """Where one tensor lies."""

    file: Path
    dtype: str  # safetensors' name, e.g. "BF16", or GGUF's, e.g. "Q4_K"
    shape: tuple[int, ...]
    nbytes: int


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The files that hold the model: `model.safetensors` or the shards of its index, as transformers would load them;
    else those auto-gptq names after bits and group size (`gptq_model-4bit-128g.safetensors`), else one GGUF file.

    Raises UsageError when there are none, when only pickled weights are there, or when a shard is missing.
    """
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file():
        return (single,)
    if index.is_file():
        return tuple(sorted({folder / shard for shard in _weight_map(index).values()}))
    named = sorted(path for path in folder.glob("gptq_model-*.safetensors") if path.is_file())
    index = _index(folder)
    if index is not None:
        return tuple(sorted({folder / shard for shard in _weight_map(index).values()}))
    for found, kind in ((named, "safetensors"), (_ggufs(folder), "GGUF")):
        if len(found) > 1:
            raise UsageError(
                f"{folder} holds {len(found)} {kind} files ({', '.join(path.name for path in found[:3])}), and nothing "
                "says which is the model. Keep one in the folder."
            )
        if found:
            return (found[0],)
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
    index = _index(folder)
    if index is not None and not (folder / "model.safetensors").is_file():
        for name, shard in _weight_map(index).items():
            if name not in entries or entries[name].file.name != shard:
                raise UsageError(f"{index} says that {name} is in {shard}, but it is not. {_AGAIN}")
    return entries


def file_metadata(folder: Path) -> dict[str, str]:
    """The texts that safetensors headers carry beside their tensors, all files' together."""
    found: dict[str, str] = {}
    for file in weight_files(folder):
        if file.suffix != ".gguf":
            extra = _json_header(file)[0].get("__metadata__")
            if isinstance(extra, dict):
                found |= {key: value for key, value in extra.items() if isinstance(value, str)}
    return found


def _index(folder: Path) -> Path | None:
    found = sorted(folder.glob("gptq_model-*.safetensors.index.json"))
    plain = folder / "model.safetensors.index.json"
    return plain if plain.is_file() else found[0] if len(found) == 1 else None


def _ggufs(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.gguf") if path.is_file())


def weights_hash(folder: Path) -> str:
    """sha256 over the model's safetensors files, in the order of their names."""
    stats = [(file, file.stat()) for file in weight_files(folder)]
    return content_hash([_file_hash(file, stat.st_size, stat.st_mtime_ns) for file, stat in stats])


@cache
def _file_hash(file: Path, size: int, mtime_ns: int) -> str:
    """Once for each state of a file: every arm made from one checkpoint asks for it."""
    return file_hash(file)


def read_header(file: Path) -> dict[str, TensorEntry]:
    """The tensors of one file, after checking that sizes, bounds and the file's length agree."""
    if file.suffix == ".gguf":
        return {
            name: TensorEntry(file=file, dtype=tensor.type, shape=tensor.shape, nbytes=tensor.nbytes)
            for name, tensor in open_gguf(file).tensors.items()
        }
    size = file.stat().st_size
    header, length = _json_header(file)
    header.pop("__metadata__", None)
    try:
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


def _json_header(file: Path) -> tuple[dict[str, Any], int]:
    """(the header as JSON, its length in bytes)."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > min(size - 8, _HEADER_LIMIT):
            raise UsageError(f"{file} is not a whole safetensors file: {size} bytes, cut within its header. {_AGAIN}")
        raw = stream.read(length)
    try:
        header = json.loads(raw)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise UsageError(f"{file} has no readable safetensors header. {_AGAIN}")
    return header, length


def _entry(file: Path, name: str, fields: dict[str, Any]) -> tuple[int, TensorEntry]:
    """(start, entry) of one tensor of the header."""
    dtype, shape, (start, stop) = fields["dtype"], tuple(fields["shape"]), fields["data_offsets"]
    if dtype not in _ITEM_BITS:
        raise UsageError(f"{file}: tensor {name} has dtype {dtype!r}, which safetensors does not define. {_AGAIN}")
    whole = len(shape) <= _MOST_DIMENSIONS and all(type(extent) is int for extent in (*shape, start, stop))
    if not whole or any(not 0 <= extent < 2**63 for extent in (*shape, start, stop)):
        raise UsageError(f"{file}: tensor {name} has shape {list(shape)!s:.60} at {[start, stop]}. {_AGAIN}")
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
