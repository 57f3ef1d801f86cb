"""`qualgate quantize --backend`: a quantized folder made by another library, in an interpreter of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qualgate.calibration import with_calibration
from qualgate.engine.load import check_model, recognise
from qualgate.errors import UsageError
from qualgate.provenance import EVIDENCE, calibration_coverage, card_rows, stability
from qualgate.quant.backends.call import Made, run_backend
from qualgate.quant.backends.environment import find
from qualgate.quant.backends.job import backend_job
from qualgate.quant.shards import weights_hash
from qualgate.quantize import stored_dtype
from qualgate.records import QuantizeRecipe

if TYPE_CHECKING:
    from qualgate.engine.identify import Device
    from qualgate.quant.stability import WeightStability

FOLDS = ("awq", "smoothquant")  # these change the weights before they round them, and the folder does not say how


@dataclass(frozen=True, slots=True, kw_only=True)
class Outsourced:
    """What was written, by whom."""

    folder: str
    backend: str
    recipe: str
    versions: dict[str, str]
    patches: tuple[str, ...]
    written_bytes: int
    seconds: float
    evidence: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def quantize_with(
    backend: str,
    model: Path,
    recipe: QuantizeRecipe,
    out: Path,
    *,
    against: Sequence[str] = (),
    folder: Path | None = None,
    relative_to: Path,
    device: Device = "cpu",
    date: str = "",
    progress: Callable[[str], None] = lambda line: None,
) -> Outsourced:
    """Let `backend` make `recipe` from `model`. folder: where environments lie. UsageError when there is none.

    against: evalsets that the calibration's coverage is measured on.
    """
    from qualgate.engine.calibration import calibration_prompts

    start = time.monotonic()
    environment = find(backend, folder)
    check_model(model)
    if recognise(model) is not None:
        raise UsageError(f"{model} is quantized already. Give the full-precision model it was made from.")
    calibration, recipe = recipe.calibration, with_calibration(recipe, relative_to)
    texts = calibration_prompts(model, recipe) if recipe.calibration else []
    job = backend_job(backend, model, recipe, texts, out)
    progress("measuring coverage")
    coverage = calibration_coverage(
        model, calibration if texts else "", against, relative_to=relative_to, dtype=stored_dtype(model), device=device
    )
    evidence: dict[str, Any] = {"coverage": coverage}

    def finish(made: Made) -> None:
        layers = {} if recipe.method in FOLDS else _stability(model, made.folder)
        reason = f"{recipe.method} changes weights before it rounds them, and {backend} does not say how"
        evidence["stability"] = stability(layers, reason)
        (made.folder / EVIDENCE).write_text(json.dumps(evidence, indent=2) + "\n", encoding="utf-8")
        (made.folder / "README.md").write_text(_card(model, recipe, made, len(texts), date, evidence), encoding="utf-8")

    made = run_backend(environment, job, progress, finish)
    return Outsourced(
        folder=str(out),
        backend=backend,
        recipe=recipe.label,
        versions=made.versions,
        patches=made.patches,
        written_bytes=sum(file.stat().st_size for file in made.folder.iterdir() if file.is_file()),
        seconds=time.monotonic() - start,
        evidence=evidence,
    )


def _stability(model: Path, made: Path) -> dict[str, WeightStability]:
    """Of every packed layer, against the weight the library was given."""
    from safetensors import safe_open

    from qualgate.quant.readers import layers
    from qualgate.quant.shards import tensor_entries
    from qualgate.quant.stability import weight_stability

    entries, found = tensor_entries(model), {}
    for name, layer in layers(made):
        if (entry := entries.get(f"{name}.weight")) is not None:
            with safe_open(entry.file, framework="pt") as shard:
                found[name] = weight_stability(shard.get_tensor(f"{name}.weight"), layer.weight)
    return found


def _card(model: Path, recipe: QuantizeRecipe, made: Made, cases: int, date: str, evidence: dict[str, Any]) -> str:
    name = model.resolve().name
    return "\n".join(
        [
            f"# {name}, {recipe.label}",
            "",
            f"Made from `{name}` by {made.backend}, which qualgate ran in an environment of its own"
            + (f", on {date}." if date else "."),
            "",
            "| | |",
            "|---|---|",
            f"| source weights, sha256 | `{weights_hash(model)}` |",
            *(
                f"| {key} | {value if isinstance(value, int) else f'`{value}`'} |"
                for key, value in recipe.content.items()
            ),
            f"| calibration cases | {cases} |",
            *(f"| {package} | {version} |" for package, version in sorted(made.versions.items())),
            *(f"| changed in the library to run here | {patch} |" for patch in made.patches),
            *card_rows(evidence),
            "",
            "Whether it may replace its baseline is not known from this card: that is what `qualgate run` decides.",
            "",
        ]
    )
