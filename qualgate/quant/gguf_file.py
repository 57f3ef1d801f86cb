"""A GGUF file: its tensors and what it says of itself, read by the `gguf` package (optional) and checked. No torch."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qualgate.errors import UsageError
from qualgate.errors.extras import needs

if TYPE_CHECKING:
    import numpy

_AGAIN = "Fetch this file again."
_SMALLEST_KEY, _SMALLEST_TENSOR = 13, 24  # bytes that one entry takes in the header, names left out


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GGUFTensor:
    """One tensor. shape is in torch's order, [out_features, in_features]; data is the file's bytes, memory-mapped."""

    type: str  # "Q4_K", "F16", …
    shape: tuple[int, ...]
    data: numpy.ndarray[Any, Any]

    @property
    def nbytes(self) -> int:
        """Bytes as stored."""
        return int(self.data.nbytes)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GGUFFile:
    """A file's header, and where its tensors lie."""

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


def open_gguf(path: Path) -> GGUFFile:
    """Raises UsageError when the `gguf` package is missing or the file is damaged, naming the tensor where it can."""
    stat = path.stat()
    return _read(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=1)  # a vocabulary in the header takes seconds, and every question about the folder asks for it
def _read(path: Path, size: int, mtime_ns: int) -> GGUFFile:
    """Read a file's header and tensors. UsageError for a damaged file, or without the `gguf` package.

    size, mtime_ns: the file's, so that a cached result is used only for the same file.
    """
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
            by_name[tensor.name] = GGUFTensor(type=kind.name, shape=shape, data=tensor.data)
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
