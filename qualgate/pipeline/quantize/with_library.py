"""`qualgate quantize --backend`: make a quantized folder with another library, in an interpreter of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qualgate.errors import InfrastructureError, UsageError
from qualgate.evalsets.calibration_sets import with_calibration
from qualgate.pipeline.quantize.folder import Order, full_precision, stored_dtype
from qualgate.pipeline.quantize.provenance import EVIDENCE, calibration_coverage, card_rows, stability
from qualgate.quant.backends.call import Made, check_free, run_backend
from qualgate.quant.backends.environment import find
from qualgate.quant.backends.job import backend_job
from qualgate.quant.model_folder import ModelFolder
from qualgate.quant.shards import Shards
from qualgate.records import QuantizeRecipe

if TYPE_CHECKING:
    from qualgate.quant.stability import WeightStability
    from qualgate_kernels.packed import PackedWeight

FOLDS = ("awq", "smoothquant")  # methods that change the weights before rounding; the folder does not record how


@dataclass(frozen=True, slots=True, kw_only=True)
class Outsourced:
    """A folder written by a library, with its measurements."""

    folder: str
    backend: str
    recipe: str
    format: str
    layers: dict[str, int]  # format as read back here → number of layers
    versions: dict[str, str]
    patches: tuple[str, ...]
    written_bytes: int
    seconds: float
    evidence: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Return the content of `--json`."""
        return asdict(self)


def quantize_with(
    backend: str, order: Order, folder: Path | None = None, progress: Callable[[str], None] = lambda line: None
) -> Outsourced:
    """Quantize with the library `backend`. folder: parent of the environments. UsageError if the library has none.

    The output appears once it was read back here: InfrastructureError if it cannot be read.
    """
    from qualgate.engine.calibration import calibration_prompts

    start = time.monotonic()
    environment = find(backend, folder)
    check_free(order.out)
    source = full_precision(order.model, order.recipe)
    recipe = with_calibration(order.recipe, order.relative_to)
    texts = calibration_prompts(order.model, recipe) if recipe.calibration else []
    job = backend_job(backend, order.model, recipe, texts, order.out, order.format, order.device)
    progress("measuring coverage")
    coverage = calibration_coverage(
        order.model, order.recipe.calibration if texts else "", order.against, relative_to=order.relative_to,
        dtype=stored_dtype(source), device=order.device,
    )  # fmt: skip
    evidence: dict[str, Any] = {"coverage": coverage}
    layers: dict[str, int] = {}

    def finish(output: Made) -> None:
        """Read the library's folder back and write the evidence and the model card into it."""
        steady: dict[str, WeightStability] = {}
        for name, weight in _read_back(output):
            layers[weight.format] = layers.get(weight.format, 0) + 1
            if recipe.method not in FOLDS:
                steady |= _stability(source.shards, name, weight)
        if not layers:
            raise InfrastructureError(f"{backend} said it was done and quantized no layer.")
        reason = f"{recipe.method} changes weights before it rounds them, and {backend} does not say how"
        evidence["stability"] = stability(steady, reason)
        (output.folder / EVIDENCE).write_text(json.dumps(evidence, indent=2) + "\n", encoding="utf-8")
        card = _card(source, recipe, output, layers, len(texts), order.date, evidence)
        (output.folder / "README.md").write_text(card, encoding="utf-8")

    output = run_backend(environment, job, progress, finish)
    return Outsourced(
        folder=str(order.out),
        backend=backend,
        recipe=recipe.label,
        format=job.format,
        layers=layers,
        versions=output.versions,
        patches=output.patches,
        written_bytes=sum(file.stat().st_size for file in output.folder.iterdir() if file.is_file()),
        seconds=time.monotonic() - start,
        evidence=evidence,
    )


def _read_back(output: Made) -> Iterator[tuple[str, PackedWeight]]:
    """Yield every quantized layer that the library wrote."""
    from qualgate.quant.readers import layers

    try:
        for name, layer in layers(output.folder):
            yield name, layer.weight
    except UsageError as error:
        raise InfrastructureError(f"{output.backend} wrote a folder that qualgate cannot read: {error}") from None


def _stability(source: Shards, name: str, weight: PackedWeight) -> dict[str, WeightStability]:
    """Return the stability of one packed layer against its source weight."""
    from safetensors import safe_open

    from qualgate.quant.stability import weight_stability

    entry = source.entries.get(f"{name}.weight")
    if entry is None:
        return {}
    with safe_open(entry.file, framework="pt") as shard:
        return {name: weight_stability(shard.get_tensor(f"{name}.weight"), weight)}


def _card(
    source: ModelFolder,
    recipe: QuantizeRecipe,
    output: Made,
    layers: dict[str, int],
    cases: int,
    date: str,
    evidence: dict[str, Any],
) -> str:
    """Return the model card: the recipe, the library's versions and patches, and the measured evidence. date: "" for
    none."""
    name = source.path.resolve().name
    return "\n".join(
        [
            f"# {name}, {recipe.label}",
            "",
            f"Made from `{name}` by {output.backend}, which qualgate ran in an environment of its own"
            + (f", on {date}." if date else "."),
            "",
            "| | |",
            "|---|---|",
            f"| source weights, sha256 | `{source.shards.sha256}` |",
            *(
                f"| {key} | {value if isinstance(value, int) else f'`{value}`'} |"
                for key, value in recipe.content.items()
            ),
            *(f"| layers in {name} | {count} |" for name, count in layers.items()),
            f"| calibration cases | {cases} |",
            *(f"| {package} | {version} |" for package, version in sorted(output.versions.items())),
            *(f"| changed in the library to run here | {patch} |" for patch in output.patches),
            *card_rows(evidence),
            "",
            "Whether it may replace its baseline is not known from this card: that is what `qualgate run` decides.",
            "",
        ]
    )
