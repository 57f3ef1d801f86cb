"""A model folder's weight files, read from their headers alone: no torch, no weights in memory.

A safetensors header is 8 bytes of length (little-endian), then JSON: tensor name → dtype, shape, [start, stop) in the
data. GGUF files are read by the package of that name.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from io import BufferedReader
from math import prod
from pathlib import Path
from typing import Any

from qualgate.errors import UsageError
from qualgate.quant.agreement.weight_files import check_index, files_beside
from qualgate.quant.gguf_file import gguf_parts, open_gguf
from qualgate.quant.tensor_entry import TensorEntry
from qualgate.records.identity import cached_hash, content_hash

_ITEM_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64, "C64": 64,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
_HEADER_LIMIT = 100_000_000  # bytes, the format's own limit
_MOST_DIMENSIONS = 16
_AGAIN = "Fetch or save this checkpoint again."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shards:
    """A folder's weight files, as their headers describe them."""

    folder: Path
    files: tuple[Path, ...]
    nbytes: int  # of the files
    entries: dict[str, TensorEntry]
    metadata: dict[str, str]  # the texts that safetensors headers carry beside their tensors, all files' together
    sha256: str  # over the files, in the order of their names; "" where it was not asked for


def read_shards(folder: Path, *, hashed: bool = False) -> Shards:
    """Return every tensor of the model, by name; each file is opened once, for its header and its hash.

    Raises UsageError when there are no weights, and naming the file and tensor that are damaged.
    """
    files, index, weight_map = _located(folder)
    headers = [_read(file, hashed=hashed) for file in files]
    check_index(index, weight_map, {file.name: shard.entries for file, shard in zip(files, headers, strict=True)})
    return Shards(
        folder=folder,
        files=files,
        nbytes=sum(shard.size for shard in headers),
        entries={name: entry for shard in headers for name, entry in shard.entries.items()},
        metadata={key: value for shard in headers for key, value in shard.metadata.items()},
        sha256=content_hash([shard.sha256 for shard in headers]) if hashed else "",
    )


def other_files(shards: Shards) -> dict[str, int]:
    """See `files_beside`. UsageError for a file that some server would load in place of the model's, or over it."""
    beside = files_beside(shards.folder, shards.entries, listed_files(shards), read_header)
    own_files = {file.name for file in shards.files}  # the first part of a split GGUF may hold no tensor
    return {name: count for name, count in beside.items() if name not in own_files}


def listed_files(shards: Shards) -> set[str] | None:
    """The files that model.safetensors.index.json names, None without one."""
    index = shards.folder / "model.safetensors.index.json"
    return {*_weight_map(index, missing=True).values()} if index.is_file() else None


def tensor_entries(folder: Path) -> dict[str, TensorEntry]:
    """Every tensor of the model, by name. Raises UsageError as `read_shards` does."""
    return read_shards(folder).entries


def weights_hash(folder: Path) -> str:
    """sha256 over the model's weight files, in the order of their names. Raises UsageError as `read_shards` does."""
    return read_shards(folder, hashed=True).sha256


def read_header(file: Path) -> dict[str, TensorEntry]:
    """The tensors of one file, after checking that sizes, bounds and the file's length agree."""
    return _read(file, hashed=False).entries


def _located(folder: Path) -> tuple[tuple[Path, ...], Path | None, dict[str, str]]:
    """Return (the weight files, the index that names them, which tensor it says is in which of them).

    The files are `model.safetensors` or the shards of its index, as transformers would load them; else those auto-gptq
    names after bits and group size (`gptq_model-4bit-128g.safetensors`), else one GGUF file. UsageError without any.
    """
    single, index = folder / "model.safetensors", _index(folder)
    if single.is_file():
        return (single,), None, {}
    if index is not None:
        weight_map = _weight_map(index)
        return tuple(sorted({folder / shard for shard in weight_map.values()})), index, weight_map
    named = sorted(path for path in folder.glob("gptq_model-*.safetensors") if path.is_file())
    ggufs = _ggufs(folder)
    if not named and ggufs and {*ggufs} <= {*(parts := gguf_parts(ggufs[0]))}:
        return parts, None, {}
    for files, kind in ((named, "safetensors"), (ggufs, "GGUF")):
        if len(files) > 1:
            raise UsageError(
                f"{folder} holds {len(files)} {kind} files ({', '.join(path.name for path in files[:3])}), and nothing "
                "says which is the model. Keep one in the folder."
            )
        if files:
            return (files[0],), None, {}
    pickled = sorted(path.name for path in folder.iterdir() if path.suffix in (".bin", ".pt", ".pth", ".pkl"))
    if pickled:
        raise UsageError(
            f"{folder} holds only pickled weights ({', '.join(pickled[:3])}). Loading a pickle can run any code, so "
            "qualgate refuses it. Save the model again with save_pretrained, which writes model.safetensors."
        )
    raise UsageError(f"{folder} holds no weights: expected model.safetensors or model.safetensors.index.json.")


def _index(folder: Path) -> Path | None:
    indexes = sorted(folder.glob("gptq_model-*.safetensors.index.json"))
    plain = folder / "model.safetensors.index.json"
    return plain if plain.is_file() else indexes[0] if len(indexes) == 1 else None


def _ggufs(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.gguf") if path.is_file())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Shard:
    """One weight file."""

    size: int
    entries: dict[str, TensorEntry]
    metadata: dict[str, str]
    sha256: str


def _read(file: Path, *, hashed: bool) -> _Shard:
    """Read one file's header. hashed: hash the file as well, else sha256 is ""."""
    if file.suffix == ".gguf":
        entries = {
            name: TensorEntry(file=file, dtype=tensor.type, shape=tensor.shape, nbytes=tensor.nbytes)
            for name, tensor in open_gguf(file).tensors.items()
            if tensor.path == file
        }
        with file.open("rb") as stream:
            size, sha256 = os.fstat(stream.fileno()).st_size, cached_hash(stream) if hashed else ""
        return _Shard(size=size, entries=entries, metadata={}, sha256=sha256)
    with file.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        header, length = _json_header(file, stream, size)
        extra = header.pop("__metadata__", None)
        entries = _entries(file, header, length, size)
        metadata = extra if isinstance(extra, dict) else {}
        return _Shard(
            size=size,
            entries=entries,
            metadata={key: value for key, value in metadata.items() if isinstance(value, str)},
            sha256=cached_hash(stream) if hashed else "",
        )


def _entries(file: Path, header: dict[str, Any], length: int, size: int) -> dict[str, TensorEntry]:
    """Return the tensors of a header of `length` bytes in a file of `size`. UsageError unless they fill the file
    exactly."""
    try:
        entries = {name: _entry(file, 8 + length, name, fields) for name, fields in header.items()}
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


def _json_header(file: Path, stream: BufferedReader, size: int) -> tuple[dict[str, Any], int]:
    """Return (the header as JSON, its length in bytes)."""
    length = int.from_bytes(stream.read(8), "little")
    if size < 8 or length > min(size - 8, _HEADER_LIMIT):
        raise UsageError(f"{file} is not a whole safetensors file: {size} bytes, cut within its header. {_AGAIN}")
    try:
        header = json.loads(stream.read(length))
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise UsageError(f"{file} has no readable safetensors header. {_AGAIN}")
    return header, length


def _entry(file: Path, data: int, name: str, fields: dict[str, Any]) -> tuple[int, TensorEntry]:
    """Return (start, entry) of one tensor of the header. data: the byte at which tensors begin."""
    dtype, shape, (start, stop) = fields["dtype"], tuple(fields["shape"]), fields["data_offsets"]
    if dtype not in _ITEM_BITS:
        raise UsageError(f"{file}: tensor {name} has dtype {dtype!r}, which safetensors does not define. {_AGAIN}")
    valid = len(shape) <= _MOST_DIMENSIONS and all(type(extent) is int for extent in (*shape, start, stop))
    if not valid or any(not 0 <= extent < 2**63 for extent in (*shape, start, stop)):
        raise UsageError(f"{file}: tensor {name} has shape {list(shape)!s:.60} at offsets {[start, stop]}. {_AGAIN}")
    nbytes = (prod(shape) * _ITEM_BITS[dtype] + 7) // 8
    if stop - start != nbytes:
        raise UsageError(
            f"{file}: tensor {name}, {dtype} {list(shape)}, needs {nbytes} bytes but the header gives {stop - start}. "
            f"{_AGAIN}"
        )
    return start, TensorEntry(file=file, dtype=dtype, shape=shape, nbytes=nbytes, start=data + start)


def _weight_map(index: Path, *, missing: bool = False) -> dict[str, str]:
    """Return which file holds which tensor. missing: allow files that are not there."""
    try:
        weight_map = json.loads(index.read_bytes())["weight_map"]
        shards = set(weight_map.values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError(f"{index} is not a safetensors index: expected JSON with weight_map. {_AGAIN}") from None
    for shard in sorted(shards, key=str):
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise UsageError(f"{index} names the shard {shard!r}: expected a file name in the same folder.")
        if not missing and not (index.parent / shard).is_file():
            raise UsageError(f"{index} names the shard {shard}, which is missing. Fetch the rest of this checkpoint.")
    return weight_map
