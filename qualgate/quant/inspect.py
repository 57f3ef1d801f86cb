"""A checkpoint, tensor by tensor: formats, sizes, statistics, and its distance from another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import inf, log10, sqrt
from pathlib import Path

import torch

from qualgate.errors import UsageError, close_names
from qualgate.errors.misplaced import no_model_folder
from qualgate.quant.agreement.config_keys import unused_keys
from qualgate.quant.formats import Format
from qualgate.quant.linear import QuantizedLinear
from qualgate.quant.model_files import CONFIG_FILES, read_files, readable
from qualgate.quant.model_folder import read_weights
from qualgate.quant.readers.checkpoint import Layer, QuantizedCheckpoint, read_checkpoint
from qualgate.quant.readers.source import Source, natural, open_source
from qualgate_kernels.dequantize import dequantize_torch
from qualgate_kernels.packed import PackedWeight, unpack_codes

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorReport:
    """One tensor. Statistics are of the numbers it stands for, in float64; None for tensors that hold no numbers."""

    name: str
    format: str  # "int4 g64", "mxfp4", "bfloat16", …
    layout: str  # how the file holds it, e.g. "gptq v1"; "plain" for float tensors
    bits: int  # of one code
    group_size: int | None  # in_features that share a scale, 0 = the whole row; None where there are no scales
    shape: tuple[int, ...]
    nbytes: int  # codes, scales and all else that belongs to it
    effective_bits: float  # 8 * nbytes / numbers
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    std: float | None = None
    zeros: float | None = None  # share of numbers that are 0
    saturated: float | None = None  # share of codes at either end of the format's range
    oddities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReport:
    """What a folder holds."""

    folder: str
    method: str  # quant_method, or "full precision"
    tensors: tuple[TensorReport, ...]
    inputs: tuple[str, ...]  # what quantized layers do to their inputs, each once; empty = nothing
    oddities: tuple[tuple[str, int], ...]  # and of how many tensors each was found
    kernels: tuple[tuple[str, int], ...]  # what would multiply the packed layers on this machine's CPU, and how many
    unused_keys: tuple[str, ...]  # of the quantization config, by which no weight is read
    refused: str  # why a plan or a run refuses the folder, for another reason than its weights; "" where neither does

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors)

    @property
    def effective_bits(self) -> float:
        """Bits per weight of the whole model."""
        bits = [(tensor.nbytes * 8, tensor.effective_bits) for tensor in self.tensors if tensor.effective_bits]
        return sum(size for size, _ in bits) / (sum(size / bits_each for size, bits_each in bits) or 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How far a tensor is from the one of the same name in another checkpoint, which counts as the truth."""

    name: str
    relative_error: float  # |ours - theirs| / |theirs|, Frobenius norms; inf when theirs is zero and ours is not
    sqnr: float  # dB: 20 log10(1 / relative_error); inf when they are equal


class Weights:
    """A folder's tensors by name, packed ones with all that belongs to them under MODULE.weight. method: see
    `ModelReport`."""

    def __init__(self, method: str, source: Source | None, checkpoint: QuantizedCheckpoint | None) -> None:
        """Hold a folder's tensors, of a plain folder by `source`, of a quantized one by `checkpoint`."""
        self.method = method
        self.unused_keys = () if checkpoint is None else unused_keys(checkpoint.format)
        self._source, self._checkpoint = source, checkpoint
        if checkpoint is None:
            assert source is not None
            self.names = tuple(source.entries)
        else:
            # Experts of a fused tensor have names of their own, which end in their number.
            self._layers = {f"{name}.weight": layer for name, layer in checkpoint.layers.items()}
            self.names = (*self._layers, *checkpoint.tensors)

    def get(self, name: str) -> Layer | torch.Tensor:
        """Return a layer with all that belongs to its weight, or a plain tensor."""
        if self._checkpoint is None:
            assert self._source is not None
            return self._source.tensor(name)
        return self._layers[name] if name in self._layers else self._checkpoint.tensors[name]

    def numbers(self, name: str) -> torch.Tensor:
        """float32, dequantized: [out_features, in_features] for a layer's weight."""
        entry = self.get(name)
        return dequantize_torch(entry.weight) if isinstance(entry, Layer) else entry.float()


@contextmanager
def opened(folder: Path) -> Iterator[Weights]:
    """Raises UsageError when the folder's weights cannot be read."""
    with readable(folder):
        if not folder.is_dir():
            raise UsageError(no_model_folder(str(folder), folder))
        shards, format = read_weights(read_files(folder, CONFIG_FILES))
    if format is not None:
        yield Weights(format.method, None, read_checkpoint(shards, format))
        return
    plain = Format(method="full precision", settings={}, where=folder / "config.json")
    with open_source(shards, plain) as source:
        yield Weights(plain.method, source, None)


def inspect(
    folder: Path,
    progress: Progress = lambda what, done, total: None,
    refusal: Callable[[Path], str] = lambda folder: "",
) -> ModelReport:
    """Report on every tensor of the folder, in the order of their names. Raises UsageError as reading it would.

    refusal: why a plan refuses the folder, which takes the architecture to know.
    """
    tensors, inputs, oddities, kernels = [], set(), Counter(), Counter()
    with opened(folder) as weights:
        names = sorted(weights.names, key=natural)
        for done, name in enumerate(names):
            progress(name, done, len(names))
            entry = weights.get(name)
            report = _of_layer(name, entry) if isinstance(entry, Layer) else _of_tensor(name, entry)
            tensors.append(report)
            if isinstance(entry, Layer) and entry.activations.rounding is not None:
                inputs.add(entry.activations.rounding.label)
            elif isinstance(entry, Layer) and entry.activations.unsupported:
                inputs.add(f"{entry.activations.unsupported} (not computed in this version)")
            if isinstance(entry, Layer):
                kernels[QuantizedLinear(entry.weight, activations=entry.activations.rounding).fuse()] += 1
            oddities.update(report.oddities)
        progress("", len(names), len(names))
    return ModelReport(
        folder=str(folder),
        method=weights.method,
        tensors=tuple(tensors),
        inputs=tuple(sorted(inputs)),
        oddities=tuple(sorted(oddities.items())),
        kernels=tuple(sorted(kernels.items())),
        unused_keys=weights.unused_keys,
        refused=refusal(folder),
    )


def write_tensor(folder: Path, name: str, out: Path) -> tuple[int, ...]:
    """Write tensor `name` (or the weight of module `name`) as float32 into the safetensors file `out`; its shape.

    Raises UsageError when there is no such tensor, naming those that are most alike.
    """
    from safetensors.torch import save_file

    with opened(folder) as weights:
        full_name = name if name in weights.names else f"{name}.weight"
        if full_name not in weights.names:
            near = close_names(name, weights.names, most=3)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise UsageError(f"{folder} has no tensor {name}.{hint} `qualgate inspect {folder}` lists them all.")
        numbers = weights.numbers(full_name).contiguous()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        save_file({full_name: numbers}, out)
    except OSError as error:
        raise UsageError(f"{out} cannot be written ({error.strerror or error}). Give another --out.") from None
    return tuple(numbers.shape)


def compare(
    folder: Path, other: Path, progress: Progress = lambda what, done, total: None
) -> tuple[tuple[Difference, ...], tuple[str, ...]]:
    """Return (differences of `folder` from `other` by tensor, names that only one has or that differ in shape).

    AWQ and SmoothQuant move scales from one layer into another, so single weights differ from the original's by design.
    """
    differences, unmatched = [], []
    with ExitStack() as stack:
        first, second = (stack.enter_context(opened(path)) for path in (folder, other))
        shared = sorted(set(first.names) & set(second.names), key=natural)
        for done, name in enumerate(shared):
            progress(name, done, len(shared))
            left, right = first.numbers(name).double(), second.numbers(name).double()
            if left.shape != right.shape:
                unmatched.append(f"{name} ({list(left.shape)} and {list(right.shape)})")
                continue
            distance, norm = float((left - right).norm()), float(right.norm())
            error = distance / norm if norm else (inf if distance else 0.0)
            differences.append(Difference(name=name, relative_error=error, sqnr=-20 * log10(error) if error else inf))
        progress("", len(shared), len(shared))
        unmatched += sorted(set(first.names) ^ set(second.names), key=natural)
    if not differences:
        raise UsageError(f"{folder} and {other} have no tensor in common: these are not two forms of one model.")
    return tuple(differences), tuple(unmatched)


def _of_layer(name: str, layer: Layer) -> TensorReport:
    """Report on a quantized layer, by its dequantized weight."""
    weight = layer.weight
    low, high, mean, std, zeros = _statistics(dequantize_torch(weight))
    return TensorReport(
        name=name,
        format=weight.format,
        layout=layer.layout,
        bits=weight.bits,
        group_size=weight.group_size,
        shape=weight.shape,
        nbytes=weight.nbytes,
        effective_bits=weight.effective_bits,
        min=low,
        max=high,
        mean=mean,
        std=std,
        zeros=zeros,
        saturated=_saturated(weight),
        oddities=layer.oddities,
    )


def _of_tensor(name: str, tensor: torch.Tensor) -> TensorReport:
    """Report on a plain tensor; statistics leave out NaN and infinities, and are None without finite numbers."""
    oddities: tuple[str, ...] = ()
    low = high = mean = std = zeros = None
    if tensor.numel():
        numbers = tensor.float()
        if not numbers.isfinite().all():
            oddities = ("NaN or infinite values",)
            numbers = numbers[numbers.isfinite()]
        if numbers.numel():
            low, high, mean, std, zeros = _statistics(numbers)
            if not numbers.any():
                oddities += ("zeros only",)
    return TensorReport(
        name=name,
        format=str(tensor.dtype).removeprefix("torch."),
        layout="plain",
        bits=tensor.element_size() * 8,
        group_size=None,
        shape=tuple(tensor.shape),
        nbytes=tensor.nbytes,
        effective_bits=tensor.element_size() * 8.0,
        min=low,
        max=high,
        mean=mean,
        std=std,
        zeros=zeros,
        oddities=oddities,
    )


def _statistics(numbers: torch.Tensor) -> tuple[float, float, float, float, float]:
    """Return (min, max, mean, standard deviation over all of them, share of zeros)."""
    low, high = (float(end) for end in torch.aminmax(numbers))
    mean = float(numbers.mean(dtype=torch.float64))
    square = float(numbers.double().square().mean()) - mean * mean
    return low, high, mean, sqrt(max(0.0, square)), float((numbers == 0).double().mean())


def _saturated(weight: PackedWeight) -> float:
    """Share of codes that spell the format's largest magnitude, where a larger weight would have been clipped to."""
    codes = unpack_codes(weight.codes, weight.bits, weight.shape[1])
    if weight.code == "int":
        ends = (codes == 0) | (codes == 2**weight.bits - 1)
    elif weight.code == "nf4":
        ends = (codes == 0) | (codes == 15)
    else:
        largest = {"e2m1": 7, "e4m3": 0x7E, "e5m2": 0x7B}[weight.code]
        ends = (codes & (2 ** (weight.bits - 1) - 1)) == largest
    return float(ends.double().mean())
