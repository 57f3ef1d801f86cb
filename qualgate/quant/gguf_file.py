"""A GGUF file, or all parts of one that was split: its tensors and what it says of itself, read by the `gguf` package
(optional) and checked. No torch.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qualgate.errors import UsageError
from qualgate.errors.extras import needs
from qualgate.text.numbers import counted

if TYPE_CHECKING:
    import numpy

_AGAIN = "Fetch this file again."
_SMALLEST_KEY, _SMALLEST_TENSOR = 13, 24  # bytes that one entry takes in the header, names left out


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GGUFTensor:
    """One tensor. shape is in torch's order, [out_features, in_features]; data is the file's bytes, memory-mapped."""

    type: str  # "Q4_K", "F16", …
    shape: tuple[int, ...]
    block: int  # weights in a block of the type
    path: Path  # the file that holds it
    data: numpy.ndarray[Any, Any]

    @property
    def nbytes(self) -> int:
        """Bytes as stored."""
        return int(self.data.nbytes)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GGUFFile:
    """A file's header, and where its tensors lie; of a split model, the first part's header, and all tensors."""

    path: Path
    fields: dict[str, Any]  # general.architecture, llama.attention.head_count, …; without arrays, see `array`
    tensors: dict[str, GGUFTensor]
    arrays: dict[str, Any]  # the package's own entries

    @property
    def architecture(self) -> str:
        """The architecture's name in the header, "" without one."""
        return str(self.fields.get("general.architecture", ""))

    def array(self, name: str) -> list[Any] | None:
        """Return the texts or numbers of an array of the header; None if it has none of that name. UsageError for
        others."""
        field = self.arrays.get(name)
        if field is None:
            return None
        raw = [field.parts[index] for index in field.data]
        try:
            if field.types[-1].name == "STRING":
                return [str(text, "utf-8") for text in map(bytes, raw)]
            return [number for part in raw for number in part.tolist()]
        except ValueError as error:  # no UTF-8, among others
            raise UsageError(f"{self.path}: {name} cannot be read ({error}). {_AGAIN}") from None


def gguf_parts(path: Path) -> tuple[Path, ...]:
    """Return all parts of the split model that a file's name says it is of, whether they exist or not; else the file.

    llama.cpp names them NAME-00001-of-00003.gguf, and reads all when it is given the first.
    """
    name = re.fullmatch(r"(.*)-([0-9]{5})-of-([0-9]{5})\.gguf", path.name)
    if name is None or not 1 <= int(name[2]) <= int(name[3]):
        return (path,)
    return tuple(path.with_name(f"{name[1]}-{number + 1:05}-of-{name[3]}.gguf") for number in range(int(name[3])))


def open_gguf(path: Path) -> GGUFFile:
    """Read a file's header and tensors, and those of all parts of a split model; every part gives the same result.

    Raises UsageError when the `gguf` package is missing, a part is missing or of another model, or a file is damaged,
    naming the tensor where it can.
    """
    parts = gguf_parts(path)
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise UsageError(
            f"{path.parent} lacks {counted(len(missing), 'part')} of a model split into {len(parts)}: "
            f"{', '.join(missing[:3])}{', …' if len(missing) > 3 else ''}. Fetch the rest of this model."
        )
    stats = [part.stat() for part in parts]
    return _read_all(parts, tuple((stat.st_size, stat.st_mtime_ns) for stat in stats))


@lru_cache(maxsize=1)  # a vocabulary in the header takes seconds, and every question about the folder asks for it
def _read_all(parts: tuple[Path, ...], sizes: tuple[tuple[int, int], ...]) -> GGUFFile:
    """Read and join all parts of a model. sizes: their bytes and times, so that only the same files are reused."""
    files = [_read(path, size) for path, (size, _) in zip(parts, sizes, strict=True)]
    _check_parts(files)
    tensors = {name: tensor for file in files for name, tensor in file.tensors.items()}
    return replace(files[0], tensors=tensors)


def _check_parts(files: Sequence[GGUFFile]) -> None:
    """Raise UsageError unless the headers say that these files, in this order, are one model."""
    first, seen, total = files[0], dict[str, Path](), sum(len(file.tensors) for file in files)
    for number, file in enumerate(files):
        expected = {"split.count": len(files), "split.no": number, "split.tensors.count": total}
        if len(files) == 1 and file.fields.get("split.count") in (None, 0, 1):
            continue  # a whole model
        if number:  # later parts repeat few keys or none: the first's, if they are of its model
            repeated = (key for key in file.fields if key in first.fields and not key.startswith("GGUF."))
            expected = {key: first.fields[key] for key in repeated} | expected
        for key, value in expected.items():
            if file.fields.get(key) != value:
                raise UsageError(
                    f"{file.path}: {key} is {file.fields.get(key)!s:.60}, expected {value!s:.60} of part {number + 1} "
                    f"of {len(files)}, by the files' names and their tensors. A part is missing, has another's name, "
                    "or is of another model: fetch all parts again, and do not rename them."
                )
        for name in file.tensors:
            if name in seen:
                raise UsageError(
                    f"{file.path} and {seen[name].name} both hold tensor {name}: they are parts of different models. "
                    "Fetch all parts again."
                )
            seen[name] = file.path


def _read(path: Path, size: int) -> GGUFFile:
    """Read the header and tensors of one file of `size` bytes. UsageError for a damaged file, or without the `gguf`
    package."""
    try:
        from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType
        from gguf.constants import GGML_QUANT_SIZES
    except ImportError:
        raise UsageError(needs(f"{path}, a GGUF file,", "gguf")) from None
    with path.open("rb") as stream:
        head = stream.read(24)
    if len(head) < 24 or head[:4] != b"GGUF":
        raise UsageError(f"{path} is not a GGUF file, or is cut within its header. {_AGAIN}")
    tensors, keys = struct.unpack_from("<QQ", head, 8)
    if tensors * _SMALLEST_TENSOR + keys * _SMALLEST_KEY > size:  # the reader would count up to it
        raise UsageError(
            f"{path} announces {tensors} tensors and {keys} keys, more than its {size} bytes hold. {_AGAIN}"
        )
    try:
        reader = _strict(GGUFReader)(path)
        fields = {name: _value(field) for name, field in reader.fields.items() if field.types[0] != GGUFValueType.ARRAY}
        arrays = {name: field for name, field in reader.fields.items() if field.types[0] == GGUFValueType.ARRAY}
        by_name = {}
        for tensor in reader.tensors:
            kind = GGMLQuantizationType(tensor.tensor_type)
            shape = tuple(int(extent) for extent in reversed(tensor.shape.tolist()))
            block, block_bytes = GGML_QUANT_SIZES[kind]
            if prod(shape) % block or tensor.data.nbytes != prod(shape) // block * block_bytes:
                raise UsageError(
                    f"{path}: tensor {tensor.name}, {kind.name} {list(shape)}, does not fit its "
                    f"{tensor.data.nbytes} bytes. {_AGAIN}"
                )
            by_name[tensor.name] = GGUFTensor(type=kind.name, shape=shape, block=block, path=path, data=tensor.data)
    except UsageError:
        raise
    except MemoryError:
        raise UsageError(f"{path} needs more memory than there is: it is damaged. {_AGAIN}") from None
    except Exception as error:  # numpy and the reader raise whatever a damaged offset makes of them
        raise UsageError(f"{path} cannot be read as GGUF ({type(error).__name__}: {error}). {_AGAIN}") from None
    return GGUFFile(path=path, fields=fields, tensors=by_name, arrays=arrays)


def _strict(reader: type[Any]) -> type[Any]:
    """Return a subclass of the package's reader that stops where the file ends.

    The package itself would go on counting past the end. Arrays are read at once: entry by entry a vocabulary of
    150,000 tokens takes 15 s.
    """
    from gguf import GGUFValueType

    class Strict(reader):
        def _get(self, offset: int, dtype: Any, count: Any = 1, override_order: Any = None) -> Any:
            values = super()._get(offset, dtype, count, override_order)
            if len(values) != int(count):
                raise ValueError(f"the file ends within the entry at byte {offset}")
            return values

        def _get_field_parts(self, orig_offs: int, raw_type: int) -> tuple[int, list[Any], list[int], list[Any]]:
            if raw_type != GGUFValueType.ARRAY or self.byte_order == "S":
                return super()._get_field_parts(orig_offs, raw_type)
            raw, offset = memoryview(self.data), orig_offs + 12
            number, count = struct.unpack_from("<IQ", raw, orig_offs)
            value_types = [GGUFValueType.ARRAY, GGUFValueType(number)]
            if (numbers := self.gguf_scalar_to_np.get(value_types[1])) is not None:
                part = self._get(offset, numbers, count)
                return 12 + int(part.nbytes), [part], [0], value_types
            if value_types[1] != GGUFValueType.STRING:
                raise ValueError("an array of arrays")
            parts: list[Any] = []
            for _ in range(count):
                (length,) = struct.unpack_from("<Q", raw, offset)
                offset += 8 + length
                if offset > len(raw):
                    raise ValueError(f"the file ends within the entry at byte {offset - length}")
                parts.append(raw[offset - length : offset])
            return offset - orig_offs, parts, list(range(count)), value_types

    return Strict


def _value(field: Any) -> Any:
    from gguf import GGUFValueType

    raw = field.parts[field.data[0]]
    return bytes(raw).decode("utf-8", "replace") if field.types[0] == GGUFValueType.STRING else raw.tolist()[0]
