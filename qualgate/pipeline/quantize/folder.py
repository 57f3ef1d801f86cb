"""`qualgate quantize`: make a quantized folder from a full-precision one, and rank the layers by harm."""

from __future__ import annotations

import resource
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from qualgate.engine.device import Device
from qualgate.errors import Interrupted, UsageError
from qualgate.evalsets.calibration_sets import with_calibration
from qualgate.pipeline.quantize.provenance import EVIDENCE, calibration_coverage, card_rows, stability
from qualgate.quant.model_folder import ModelFolder, read_model_folder
from qualgate.quant.recipes import layer_recipe, plain
from qualgate.quant.shapes import check_fits
from qualgate.records import QuantizeRecipe

if TYPE_CHECKING:
    from qualgate.quant.checkpoint import PackedModel
    from qualgate.quant.writers.folder import Format

Progress = Callable[[str, int, int], None]
_DTYPES: dict[str, Literal["bfloat16", "float16", "float32"]] = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The settings for quantizing a full-precision folder."""

    model: Path
    recipe: QuantizeRecipe
    out: Path
    format: str = ""  # of the folder; "": a library's own choice
    relative_to: Path  # base of relative paths of evalsets and calibration sets
    against: Sequence[str] = ()  # evalsets for the calibration's coverage
    device: Device = "cpu"
    date: str = ""  # copied into the card


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantized:
    """A written folder's measurements."""

    folder: str
    format: str
    recipe: str
    layers: int
    weights: int  # numbers in the quantized layers
    code_bytes: int
    packed_bytes: int  # codes, scales, zero points and everything else
    effective_bits: float  # 8 * packed_bytes / weights
    source_bytes: int  # of the same weights before
    written_bytes: int  # of the whole folder
    peak_bytes: int  # of this process's memory, plus the GPU's if used
    seconds: float
    errors: dict[str, float]  # by layer, calibrated methods: mean square of the output's error, relative
    evidence: dict[str, Any]  # coverage of the calibration, stability of the weights

    def as_json(self) -> dict[str, Any]:
        """Return the content of `--json`."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """The effect of quantizing one layer alone."""

    layer: str
    precision: str
    kl: float  # mean over the calibration's answers, nats
    loss_increase: float  # nats a token
    top1_agreement: float
    saved_bytes: int

    def as_json(self) -> dict[str, Any]:
        """Return the content of `--json`."""
        return asdict(self)


def quantize(order: Order, progress: Progress = lambda what, done, total: None) -> Quantized:
    """Quantize a folder with our own methods.

    Finished layers are stored beside `order.out` until it is written, so an interrupted order (Interrupted, exit 130)
    resumes. Raises UsageError if the model cannot be quantized or the folder not written.
    """
    from qualgate.quant.writers.card import Provenance
    from qualgate.quant.writers.folder import FORMATS, write_folder

    if order.format not in FORMATS:
        raise UsageError(f"--format {order.format}: not one of {', '.join(FORMATS)}.")
    work, start = _work_folder(order.out), time.monotonic()
    source = full_precision(order.model, order.recipe)
    recipe, dtype = with_calibration(order.recipe, order.relative_to), stored_dtype(source)
    coverage = calibration_coverage(
        order.model, order.recipe.calibration, order.against, relative_to=order.relative_to, dtype=dtype,
        device=order.device,
    )  # fmt: skip
    try:
        packed, tokens = _packed(order, source, recipe, work, progress)
        evidence = {"coverage": coverage, "stability": stability(packed.stability)}
        written = write_folder(
            order.model, packed, order.out, cast("Format", order.format),
            Provenance(
                model=order.model.resolve().name, source_sha256=source.shards.sha256, dtype=dtype,
                versions=_versions(), date=order.date, calibration=Path(recipe.calibration).stem,
                calibration_cases=len(tokens), calibration_tokens=sum(tokens),
            ),
            more={EVIDENCE: evidence}, more_rows=card_rows(evidence),
        )  # fmt: skip
    except KeyboardInterrupt:
        raise Interrupted(f"finished layers are kept in {work}: run the same command again to go on") from None
    shutil.rmtree(work, ignore_errors=True)
    weights = sum(weight.shape[0] * weight.shape[1] for weight in packed.weights.values())
    packed_bytes = sum(weight.nbytes for weight in packed.weights.values())
    return Quantized(
        folder=str(order.out),
        format=order.format,
        recipe=recipe.label,
        layers=len(packed.weights),
        weights=weights,
        code_bytes=sum(weight.codes.nbytes for weight in packed.weights.values()),
        packed_bytes=packed_bytes,
        effective_bits=8 * packed_bytes / weights,
        source_bytes=sum(source.shards.entries[f"{name}.weight"].nbytes for name in packed.weights),
        written_bytes=sum(file.stat().st_size for file in written),
        peak_bytes=_peak(order.device),
        seconds=time.monotonic() - start,
        errors=packed.errors,
        evidence=evidence,
    )


def _work_folder(out: Path) -> Path:
    """Make the folder for finished layers. UsageError if `out` exists already, or cannot be written."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} already exists. Give another folder, or remove this one.")
    work = out.parent / f".{out.name}.work"
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{out.parent} cannot be written ({error.strerror}). Give another --out.") from None
    return work


def _packed(
    order: Order, source: ModelFolder, recipe: QuantizeRecipe, work: Path, progress: Progress
) -> tuple[PackedModel, list[int]]:
    """Return (quantized layers, tokens of each calibration case). recipe: the order's, with the set located."""
    import torch

    from qualgate.engine.calibration import calibration_prompts
    from qualgate.quant.checkpoint import checkpoint_name, pack, read_packed
    from qualgate.quant.writers.folder import float_dtype

    dtype, tokens = stored_dtype(source), []
    scales = float_dtype(cast("Format", order.format), dtype)

    def prompts() -> Sequence[Sequence[int]]:
        """Return the calibration's prompts, and note their lengths in `tokens` for the model card."""
        rows = calibration_prompts(order.model, recipe)
        tokens.extend(map(len, rows))
        return rows

    folder = pack(
        order.model, recipe, work / f"{checkpoint_name(source.shards.sha256, recipe, dtype)}-{scales}", dtype,
        prompts=prompts, scale_dtype=getattr(torch, scales), device=order.device, progress=progress,
    )  # fmt: skip
    packed = read_packed(folder)
    if recipe.calibration and not tokens:  # packed before the interruption
        prompts()
    return packed, tokens


def sensitivity(
    model: Path,
    recipe: QuantizeRecipe,
    calibration: str,
    *,
    relative_to: Path,
    device: Device = "cpu",
    progress: Progress = lambda what, index, total: None,
) -> tuple[Sensitivity, ...]:
    """Quantize each layer of the recipe alone, and return the effects, the most harmful first.

    Layers are rounded to nearest on the recipe's grid, since a calibrated method's result also depends on the layers
    before. For methods without data this is their result, bit for bit.
    """
    import torch

    from qualgate.engine.calibration import calibration_pairs
    from qualgate.engine.divergence import Reference
    from qualgate.quant.activations import PER_TOKEN
    from qualgate.quant.checkpoint import float_model, linear_names
    from qualgate.quant.layers import fused_with
    from qualgate.quant.linear import QuantizedLinear
    from qualgate.quant.packing import quantize_weight

    if not calibration:
        raise UsageError("Sensitivity compares answers, and no cases are named. Give --calibration.")
    folder = full_precision(model, replace(recipe, calibration=calibration))
    data = with_calibration(replace(recipe, calibration=calibration), relative_to)
    grid = plain(recipe)
    dtype = stored_dtype(folder)
    floats = float_model(model, dtype, device)
    reference = Reference(floats, calibration_pairs(model, data))
    names = linear_names(model)
    ranked = []
    for index, name in enumerate(names):
        progress(name, index, len(names))
        layer_grid = layer_recipe(grid, name)
        if layer_grid is None:
            continue
        parent, _, attribute = name.rpartition(".")
        holder = floats.get_submodule(parent)
        module: Any = getattr(holder, attribute)
        fused_weights = [floats.get_parameter(f"{sibling}.weight") for sibling in fused_with(name) if sibling in names]
        absmax = torch.stack([weight.abs().amax() for weight in fused_weights]).amax()  # they share a tensor's scale
        packed = quantize_weight(module.weight.detach(), layer_grid, name, dtype=getattr(torch, dtype), absmax=absmax)
        setattr(holder, attribute, QuantizedLinear(packed, module.bias, PER_TOKEN[layer_grid.activations]))
        divergence = reference.against(floats)
        setattr(holder, attribute, module)
        ranked.append(
            Sensitivity(
                layer=name,
                precision=layer_grid.label,
                kl=divergence.kl,
                loss_increase=divergence.loss_increase,
                top1_agreement=divergence.top1_agreement,
                saved_bytes=module.weight.numel() * getattr(torch, dtype).itemsize - packed.nbytes,
            )
        )
    progress("", len(names), len(names))
    return tuple(sorted(ranked, key=lambda layer: -layer.kl))


def full_precision(model: Path, recipe: QuantizeRecipe) -> ModelFolder:
    """Read the folder `model`. Raises UsageError if it is quantized already, or `recipe` does not fit it."""
    folder = read_model_folder(model)
    if folder.format is not None:
        raise UsageError(f"{model} is quantized already. Give the full-precision model it was made from.")
    check_fits(folder.shards, recipe)
    return folder


def stored_dtype(folder: ModelFolder) -> Literal["bfloat16", "float16", "float32"]:
    """Return the dtype of most of the model's bytes, by its headers.

    Raises UsageError for a dtype that no quantizer starts from.
    """
    nbytes: dict[str, int] = {}
    for entry in folder.shards.entries.values():
        nbytes[entry.dtype] = nbytes.get(entry.dtype, 0) + entry.nbytes
    stored = max(nbytes, key=lambda name: nbytes[name])
    if stored not in _DTYPES:
        config = folder.files.config
        raise UsageError(
            f"{folder.path} holds {stored} weights (its config says {config.get('dtype') or config.get('torch_dtype')})"
            ". Quantizing starts from bfloat16, float16 or float32."
        )
    return _DTYPES[stored]


def _versions() -> dict[str, str]:
    """Return the versions of the packages that made the folder."""
    versions = {}
    for package in ("qualgate", "torch", "transformers"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:  # a source tree that was never installed
            versions[package] = "source"
    return versions


def _peak(device: str) -> int:
    """Return the peak bytes of this process, plus torch's peak on the GPU."""
    import torch

    unit = 1 if sys.platform == "darwin" else 1024
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return resident + (torch.cuda.max_memory_allocated() if device == "cuda" else 0)
