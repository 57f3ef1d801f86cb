"""A library's job: from a QuantizeRecipe to the plain JSON that `inside` reads, or why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from qualgate.errors import UsageError
from qualgate.records import QuantizeRecipe

METHODS = {
    "gptqmodel": ("gptq", "awq"),
    "llmcompressor": ("gptq", "awq", "smoothquant", "fp8", "nvfp4", "mxfp4"),
    "auto-gptq": ("gptq",),
    "autoawq": ("awq",),
}
STATIC_ONLY = ("llmcompressor",)  # its act-order keeps the groups in their places
DIRECT = ("fp8", "nvfp4", "mxfp4")  # need no data from llmcompressor as we ask for them


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendJob:
    """A frozen order. texts: token ids, one list a calibration case; none for direct casts."""

    backend: str
    model: str  # folder
    out: str  # folder, which must not exist
    method: str
    format: str  # of the folder
    bits: int
    group_size: int  # -1: a whole row
    symmetric: bool
    act_order: str  # "", "group", "static", as in the recipe
    granularity: str  # "", "block"
    activations: str  # "", "int8", "fp8"
    device: str  # "cpu": not even where there is a GPU
    texts: tuple[tuple[int, ...], ...]

    def as_json(self) -> dict[str, Any]:
        """The order as `inside` reads it."""
        return asdict(self)


def formats_of(backend: str, method: str) -> tuple[str, ...]:
    """Folders that `backend` can write for `method`, its own choice first."""
    if backend == "llmcompressor":
        return ("compressed-tensors",)
    if method == "awq":
        return ("awq",)
    return ("gptq", "gptq_v2") if backend == "gptqmodel" else ("gptq",)


def backend_job(
    backend: str,
    model: Path,
    recipe: QuantizeRecipe,
    texts: Sequence[Sequence[int]],
    out: Path,
    format: str = "",
    device: str = "cpu",
) -> BackendJob:
    """Return the order for `recipe`. format: "" is the backend's own. UsageError when this backend does not make it."""
    if recipe.method not in METHODS[backend]:
        others = [name for name, methods in METHODS.items() if recipe.method in methods]
        elsewhere = f" {recipe.method} is made by: {', '.join(others)}." if others else ""
        raise UsageError(
            f"Backend {backend} makes {', '.join(METHODS[backend])}, not {recipe.method}.{elsewhere} Without "
            "--backend qualgate makes it itself."
        )
    unsupported: dict[str, Any] = {"keep": recipe.keep, "clip": recipe.clip, "element": recipe.element}
    unsupported["granularity"] = recipe.granularity if recipe.granularity != "block" else ""
    for option, value in unsupported.items():
        if value:
            raise UsageError(f"Backend {backend} does not support `{option}`. Leave it out, or leave --backend out.")
    formats = formats_of(backend, recipe.method)
    if format and format not in formats:
        raise UsageError(f"Backend {backend} writes {recipe.method} as {' or '.join(formats)}, not as {format}.")
    if recipe.act_order == "group" and backend in STATIC_ONLY:
        raise UsageError(f"Backend {backend} supports only the act-order `static`. Write `act_order=static`.")
    bits = recipe.bits or {"gptq": 4, "awq": 4}.get(recipe.method, 0)
    if backend == "autoawq" and (bits != 4 or recipe.symmetric):
        raise UsageError(f"autoawq makes only asymmetric 4-bit weights, not {recipe.label}.")
    if recipe.method in ("gptq", "awq", "smoothquant") and not texts:
        raise UsageError(f"{recipe.method} needs calibration data: give --calibration.")
    if recipe.method in DIRECT and recipe.calibration:
        raise UsageError(f"Backend {backend} needs no data for {recipe.method}: leave --calibration out.")
    return BackendJob(
        backend=backend,
        model=str(model.resolve()),
        out=str(out.resolve()),
        method=recipe.method,
        format=format or formats[0],
        bits=bits,
        group_size=recipe.group_size or -1,
        symmetric=recipe.symmetric,
        act_order=recipe.act_order,
        granularity=recipe.granularity,
        activations=recipe.activations,
        device=device,
        texts=tuple(tuple(text) for text in texts) if recipe.method not in DIRECT else (),
    )
