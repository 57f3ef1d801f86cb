"""A quantized folder's tensors, opened: taken by name, checked against what the format expects, and accounted for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from qualgate.errors import UsageError
from qualgate.quant.activations import Rounding
from qualgate.quant.formats import Format
from qualgate.quant.shards import Shards
from qualgate_kernels.dequantize import dequantize_torch
from qualgate_kernels.packed import PackedWeight, pack_codes

AGAIN = "Fetch or save this checkpoint again."


@dataclass(frozen=True, slots=True, kw_only=True)
class Activations:
    """What a format does to the input of a quantized layer. Not what its weights need: those are read all the same."""

    rounding: Rounding | None = None  # None = left as they are
    unsupported: str = ""  # else, in words: what cannot be computed, and why


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layer:
    """One quantized matrix, and what stands beside it in the checkpoint."""

    weight: PackedWeight
    layout: str  # how the file holds it, e.g. "gptq v1", "nvfp4-pack-quantized", "Q4_K"
    bias: torch.Tensor | None = None  # [out_features], as stored
    activations: Activations = Activations()
    oddities: tuple[str, ...] = ()  # what a reader of the file would want to know, one sentence each


class Source:
    """The folder's tensors. What was taken is remembered, so that what nothing reads can be named."""

    def __init__(self, shards: Shards, format: Format, stack: ExitStack) -> None:
        self.folder, self.format = shards.folder, format
        self.entries, self.metadata = shards.entries, shards.metadata
        self._stack, self._open = stack, {}
        self.computed: dict[str, Callable[[], torch.Tensor]] = {}  # tensors that others of the folder are made into
        self._taken: set[str] = set()

    def modules(self, ending: str) -> list[str]:
        """Modules that have a tensor called MODULE + ending, in the order of their names, numbers as numbers."""
        modules = [name.removesuffix(ending) for name in self.entries if name.endswith(ending)]
        return sorted(modules, key=natural)

    def has(self, name: str) -> bool:
        """Whether the folder has a tensor of that name."""
        return name in self.entries or name in self.computed

    def rest(self) -> list[str]:
        """Names of tensors that nothing has taken."""
        return [name for name in (*self.computed, *self.entries) if name not in self._taken]

    def take(self, name: str) -> None:
        """Count a tensor as read that is read by other means or says nothing; it need not be there."""
        self._taken.add(name)

    def taken(self, name: str) -> bool:
        """Whether something has read it."""
        return name in self._taken

    def tensor(self, name: str) -> torch.Tensor:
        """Return the tensor, memory-mapped. Raises UsageError when it is not there or cannot be read."""
        entry = self.entries.get(name)
        if entry is None and name in self.computed:
            self._taken.add(name)
            return self.computed[name]()
        if entry is None:
            raise UsageError(f"{self.folder} has no tensor {name}, which {self.format.method} needs. {AGAIN}")
        self._taken.add(name)
        try:
            if entry.file not in self._open:
                self._open[entry.file] = self._stack.enter_context(safe_open(entry.file, framework="pt"))
            return self._open[entry.file].get_tensor(name)
        except (SafetensorError, OSError, RuntimeError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"{entry.file}: tensor {name} cannot be read ({error}). {AGAIN}") from None

    def expect(
        self, name: str, dtypes: Sequence[torch.dtype], shape: Sequence[int | None], meaning: str = ""
    ) -> torch.Tensor:
        """Return the tensor, of one of `dtypes` and of `shape` (None: any extent).

        meaning: why that shape, e.g. "64 in_features in groups of 32". Raises UsageError naming the tensor.
        """
        tensor = self.tensor(name)
        fits = len(tensor.shape) == len(shape) and all(
            want is None or have == want for have, want in zip(tensor.shape, shape, strict=True)
        )
        if tensor.dtype not in dtypes or not fits:
            extents = ["any" if extent is None else extent for extent in shape]
            raise UsageError(
                f"{self.where(name)}: tensor {name} is {_plain(tensor.dtype)} {list(tensor.shape)}, expected "
                f"{' or '.join(map(_plain, dtypes))} {extents}{f' ({meaning})' if meaning else ''}. Its config and its "
                "weights disagree: fetch or save this checkpoint again."
            )
        return tensor

    def bias(self, module: str, out_features: int) -> tuple[torch.Tensor | None, tuple[str, ...]]:
        """Return (the module's bias or None, oddities). AutoGPTQ writes biases of zeros for layers that have none."""
        name = f"{module}.bias"
        if not self.has(name):
            return None, ()
        bias = self.expect(name, FLOATS, (out_features,))
        if not bias.isfinite().all():
            raise UsageError(f"{self.where(name)}: tensor {name} holds NaN or infinite values. {AGAIN}")
        return bias, () if bias.any() else ("a bias of zeros, as AutoGPTQ writes for layers without one",)

    def scale(self, name: str, meaning: str = "one scale for all inputs") -> float:
        """Return the one number of a tensor, finite and above 0. Raises UsageError naming the tensor."""
        tensor = self.tensor(name)
        number = float(self.expect(name, FLOATS, [1] * tensor.dim(), meaning))
        if not 0 < number < float("inf"):
            raise UsageError(f"{self.where(name)}: tensor {name} is {number:g}, expected a positive number. {AGAIN}")
        return number

    def zero_point(self, name: str) -> int:
        """The one number of a tensor that zero is stored as, counted in codes of 8 bits."""
        tensor = self.tensor(name)
        return int(self.expect(name, (torch.int8,), [1] * tensor.dim(), "one zero point for all inputs"))

    def groups(self, name: str, in_features: int, size: int, holder: str = "") -> int:
        """Return how many groups of `size` a row has; 1 for a size that is not above 0. Raises UsageError for a rest.

        name: of the tensor; holder: what has the in_features, by default that tensor.
        """
        if size > 0 and in_features % size:
            raise UsageError(
                f"{self.where(name)}: {holder or f'tensor {name}'} has {in_features} in_features, not a multiple of "
                f"the group size {size} that {self.format.where.name} gives. Correct it there, or fetch this "
                "checkpoint again."
            )
        return in_features // size if size > 0 else 1

    def where(self, name: str) -> Path:
        """The tensor's file; the folder where there is none."""
        entry = self.entries.get(name)
        return entry.file if entry is not None else self.folder


def natural(name: str) -> list[tuple[bool, int, str]]:
    """Return a key that sorts numbers within names in their own order: layers.2 before layers.10."""
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in name.split(".")]


FLOATS = (torch.float16, torch.bfloat16, torch.float32)


@contextmanager
def open_source(shards: Shards, format: Format) -> Iterator[Source]:
    """The tensors that `shards` describes, for as long as the block lasts."""
    with ExitStack() as stack:
        yield Source(shards, format, stack)


def packed(source: Source, name: str, *, any_scale: bool = False, **fields: Any) -> PackedWeight:
    """Return a PackedWeight of tensor `name`, refused when its numbers cannot be what a quantizer wrote.

    Scales must be finite and not negative, and zero only where every weight of the group is zero anyway; `any_scale`:
    the format has both (GGUF). Floating-point codes must be numbers. Raises UsageError naming the tensor.
    """
    where = source.where(name)
    try:
        weight = PackedWeight(**fields)
    except ValueError as error:
        raise UsageError(f"{where}: {name} cannot be a quantized weight: {error}. {AGAIN}") from None
    if weight.code in ("e4m3", "e5m2"):
        special = (weight.codes & 0x7F) == 0x7F if weight.code == "e4m3" else (weight.codes & 0x7C) == 0x7C
        if special.any():
            raise UsageError(f"{where}: {name} holds codes that are not numbers (NaN): it is damaged. {AGAIN}")
    scales = weight.scales
    if scales.dtype == torch.uint8:
        if (scales == 255).any():
            raise UsageError(f"{where}: {name} has NaN scales (E8M0 255): the checkpoint is damaged. {AGAIN}")
    else:
        scales = scales.float()
        if not scales.isfinite().all():
            raise UsageError(f"{where}: {name} has NaN or infinite scales: the checkpoint is damaged. {AGAIN}")
        signed = any_scale or "autoround_version" in source.format.settings  # AutoRound writes them on purpose
        if not signed and (scales < 0).any():
            raise UsageError(
                f"{where}: {name} has negative scales, which {source.format.method} never writes: the checkpoint is "
                f"damaged or of another format. {AGAIN}"
            )
        if not any_scale and (scales == 0).any() and _weighs(weight, scales == 0):
            raise UsageError(
                f"{where}: {name} has a scale of 0 for weights that are not 0: the checkpoint is damaged. {AGAIN}"
            )
    if weight.offsets is not None and not weight.offsets.isfinite().all():
        raise UsageError(f"{where}: {name} has NaN or infinite offsets: the checkpoint is damaged. {AGAIN}")
    if weight.tensor_scale is not None and not (0 < float(weight.tensor_scale) < float("inf")):
        raise UsageError(
            f"{where}: {name} has a tensor scale of {float(weight.tensor_scale):g}, expected a positive number. {AGAIN}"
        )
    return weight


def float4_fields(source: Source, name: str, scales: str, dtype: torch.dtype, block: int) -> dict[str, Any]:
    """Return the fields of a PackedWeight of e2m1 codes, two a byte, with a scale of `dtype` for each block of a row.

    name, scales: of the tensors. Raises UsageError for in_features that do not fill blocks.
    """
    codes = source.expect(name, (torch.uint8,), (None, None), "two 4-bit floats a byte")
    rows, columns = codes.shape[0], codes.shape[1] * 2
    if columns % block:
        raise UsageError(
            f"{source.where(name)}: tensor {name} holds {columns} in_features, not a multiple of the blocks of "
            f"{block}. {AGAIN}"
        )
    words = f"{columns} in_features in blocks of {block}"
    return {
        "code": "e2m1",
        "bits": 4,
        "shape": (rows, columns),
        "codes": codes.contiguous(),
        "scales": source.expect(scales, (dtype,), (rows, columns // block), words).contiguous(),
        "group_size": block,
    }


def float8_codes(source: Source, name: str) -> dict[str, Any]:
    """Return the code, bits, shape and codes of a PackedWeight, from a tensor of 8-bit floats."""
    weight = source.expect(name, (torch.float8_e4m3fn, torch.float8_e5m2), (None, None), "8-bit float weights")
    return {
        "code": "e4m3" if weight.dtype == torch.float8_e4m3fn else "e5m2",
        "bits": 8,
        "shape": tuple(weight.shape),
        "codes": weight.contiguous().view(torch.uint8),
    }


def int8_codes(source: Source, name: str, bits: int, said_by: str) -> dict[str, Any]:
    """Return the codes' fields of a PackedWeight, from an int8 tensor that holds one signed code of `bits` each.

    said_by: the file that says so, for messages.
    """
    codes = source.expect(name, (torch.int8,), (None, None), "int8 weights")
    half = 2 ** (bits - 1)
    low, high = (int(codes.min()), int(codes.max())) if codes.numel() else (0, 0)
    if not 2 <= bits <= 8 or not -half <= low <= high < half:
        raise UsageError(
            f"{source.where(name)}: tensor {name} holds values from {low} to {high}, but {said_by} says {bits} bits. "
            f"{AGAIN}"
        )
    unsigned = (codes.to(torch.int16) + half).to(torch.uint8)
    return {"code": "int", "bits": bits, "shape": tuple(codes.shape), "codes": pack_codes(unsigned, bits)}


def as_exponents(scales: torch.Tensor) -> torch.Tensor:
    """E8M0 as PackedWeight holds it, in uint8; other scales as they are."""
    return (scales.view(torch.uint8) if scales.dtype == torch.float8_e8m0fnu else scales).contiguous()


def _weighs(weight: PackedWeight, zero: torch.Tensor) -> bool:
    """Whether a code under a `zero` scale is not the code of 0."""
    return bool(dequantize_torch(replace(weight, scales=zero.float(), tensor_scale=None)).any())


def per_row_words(words: torch.Tensor) -> torch.Tensor:
    """int32 [rows, words] → uint8 [rows, 4 * words], each row the same bitstream (the words are little-endian)."""
    return words.contiguous().view(torch.uint8)


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
