"""What is asked of a library: from a QuantizeRecipe to the plain JSON that `inside` reads, or why it cannot be."""

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
DIRECT = ("fp8", "nvfp4", "mxfp4")  # need no data from llmcompressor as we ask for them


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendJob:
    """A frozen order. texts: token ids, one list a calibration case; none for direct casts."""

    backend: str
    model: str  # folder
    out: str  # folder, which must not exist
    method: str
    bits: int
    group_size: int  # -1: a whole row
    symmetric: bool
    act_order: bool
    granularity: str  # "", "tensor", "block"
    texts: tuple[tuple[int, ...], ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def backend_job(
    backend: str, model: Path, recipe: QuantizeRecipe, texts: Sequence[Sequence[int]], out: Path
) -> BackendJob:
    """The order for `recipe`. UsageError when this backend does not make it."""
    if recipe.method not in METHODS[backend]:
        others = [name for name, methods in METHODS.items() if recipe.method in methods]
        elsewhere = f" {recipe.method} is made by: {', '.join(others)}." if others else ""
        raise UsageError(
            f"Backend {backend} makes {', '.join(METHODS[backend])}, not {recipe.method}.{elsewhere} Without "
            "--backend qualgate makes it itself."
        )
    for what, asked in (("keep", recipe.keep), ("clip", recipe.clip), ("element", recipe.element)):
        if asked:
            raise UsageError(f"Backend {backend} cannot be told `{what}`. Leave it out, or leave --backend out.")
    bits = recipe.bits or {"gptq": 4, "awq": 4}.get(recipe.method, 0)
    if backend == "autoawq" and bits != 4:
        raise UsageError(f"autoawq makes 4 bits, not {bits}.")
    if recipe.method in ("gptq", "awq", "smoothquant") and not texts:
        raise UsageError(f"{recipe.method} learns from data: give --calibration.")
    return BackendJob(
        backend=backend,
        model=str(model.resolve()),
        out=str(out.resolve()),
        method=recipe.method,
        bits=bits,
        group_size=recipe.group_size or -1,
        symmetric=recipe.symmetric,
        act_order=bool(recipe.act_order),
        granularity=recipe.granularity,
        texts=tuple(tuple(text) for text in texts) if recipe.method not in DIRECT else (),
    )
