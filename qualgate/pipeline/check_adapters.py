"""Notes on adapters before a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from qualgate.quant.adapter_folder import read_adapter_folder
from qualgate.records import Plan


def trained_elsewhere(plan: Plan) -> Iterator[str]:
    """Yield a note for each adapter trained on a folder that is neither its arm's nor the baseline's. A Hub name is not
    a folder and passes: an adapter that does not fit is refused by its layers."""
    baseline = next(arm for arm in plan.arms if arm.is_baseline)
    reported: set[tuple[str, str]] = set()
    for arm in plan.arms:
        if arm.adapter is None or (arm.adapter.path, arm.model) in reported:
            continue
        reported.add((arm.adapter.path, arm.model))
        base = read_adapter_folder(Path(arm.adapter.path)).base
        run_folders = {Path(model).resolve() for model in (arm.model, baseline.model)}
        if base.startswith(("/", "./", "../")) and Path(base).resolve() not in run_folders:
            yield (
                f"{arm.name}: the adapter {arm.adapter.path} says that it was trained on {base}, and runs here over "
                f"{arm.model}: only you know whether these are the same weights"
            )
