"""Benchmark `quantize`: what calibration is worth, each method against round-to-nearest on the same grid.

The measure is the mean KL to the full-precision model over the answers of shipped evalset cases, teacher-forced. No
case of a calibration set is among them. The shipped calibration set is the first draw; others are made like it with
other seeds, which shows how much of a difference is the data's.
"""

from __future__ import annotations

import json
import sys
import tempfile
from copy import deepcopy
from dataclasses import replace
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from torch import nn

from qualgate.engine.calibration import answered, calibration_prompts
from qualgate.engine.device import choose_device
from qualgate.engine.divergence import Reference
from qualgate.quant.calibrate import install
from qualgate.quant.checkpoint import PackedModel, float_model, pack, read_packed
from qualgate.quant.recipes import parse_recipe, plain
from qualgate.records import Case, QuantizeRecipe
from tests.verification.goals import QUANTIZE

SETS = ("arithmetic", "json_extract", "tool_calls", "code", "transform", "reformat", "grounded_qa")
DRAWS = 3  # of the calibration set
METHODS: dict[str, dict[str, Any]] = {
    "gptq_int4": {"method": "gptq", "bits": 4, "group_size": 128},
    "gptq_int4_act_order": {"method": "gptq", "bits": 4, "group_size": 128, "act_order": True},
    "gptq_int4_static": {"method": "gptq", "bits": 4, "group_size": 128, "act_order": "static"},
    "gptq_int4_asym": {"method": "gptq", "bits": 4, "group_size": 128, "symmetric": False},
    "gptq_int3": {"method": "gptq", "bits": 3, "group_size": 128, "act_order": True},
    "gptq_int2": {"method": "gptq", "bits": 2, "group_size": 32, "act_order": True},
    "gptq_int8": {"method": "gptq", "bits": 8, "group_size": 128},
    "awq_int4": {"method": "awq", "bits": 4, "group_size": 128},
    "awq_int3": {"method": "awq", "bits": 3, "group_size": 128},
    "smoothquant_w8a8": {"method": "smoothquant"},
    "nvfp4_calibrated": {"method": "nvfp4"},
}


def run(quick: bool, model: str | None = None) -> dict[str, Any]:
    """Every method over 3 calibration draws, 700 cases (quick: 1 draw, 280 cases). `model`: the shipped one.

    Fewer cases tell less: a hundredth of them carries a third of the KL of int8 weights and activations.
    """
    folder = Path(model) if model else Path(str(files("qualgate") / "refmodel" / "weights"))
    device = choose_device("auto")
    floats = float_model(folder, "bfloat16", device)
    reference = Reference(floats, answered(folder, held_out(40 if quick else 100)))

    def measured(recipe: QuantizeRecipe) -> dict[str, Any]:
        return _measured(folder, recipe, floats, reference, device)

    rounds: list[dict[str, Any]] = [{"cases": len(reference.pairs), "positions": 0, "calibration_draws": 0}]
    goals = []
    with tempfile.TemporaryDirectory() as room:
        draws = _calibrations(Path(room), 1 if quick else DRAWS)
        rounds[0]["calibration_draws"] = len(draws)
        nearest: dict[QuantizeRecipe, dict[str, Any]] = {}
        for name, words in METHODS.items():
            asked = parse_recipe(words | {"calibration": "drawn"})
            twin = plain(asked)
            if twin not in nearest:
                nearest[twin] = measured(twin)
                rounds[0]["positions"] = nearest[twin]["positions"]
            ratios = []
            for number, (path, digest) in enumerate(draws):
                found = measured(replace(asked, calibration=str(path), calibration_sha256=digest))
                ratio = found["kl"] / nearest[twin]["kl"]
                ratios.append(ratio)
                print(f"{name}, draw {number + 1} of {len(draws)}: {ratio:.3f} of rounding's KL", file=sys.stderr)
                rounds.append(
                    {"method": name, "draw": number, **found, "nearest": nearest[twin], "kl_ratio": ratio}
                )  # fmt: skip
            middle = median(ratios)
            goals.append(QUANTIZE.row(name, middle, spread=[min(ratios), max(ratios)], met=max(ratios) < 1.0))
    return QUANTIZE.result(rounds=rounds, rows=goals)


def held_out(per_set: int) -> list[Case]:
    """So many cases of every shipped evalset, evenly spaced: its templates stand in turn."""
    found = []
    for name in SETS:
        lines = (files("qualgate_evalsets") / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        found += [Case(evalset=name, body=json.loads(line)) for line in lines[:: len(lines) // per_set][:per_set]]
    return found


def _calibrations(room: Path, count: int) -> list[tuple[Path, str]]:
    """(file, sha256) of the shipped calibration set and of `count - 1` more of its make."""
    from qualgate_evalsets.making.generate import CALIBRATION_CASES, CALIBRATION_SEED, as_lines, calibration_cases

    folder = files("qualgate_evalsets")
    exam = [json.loads(line) for name in SETS for line in (folder / f"{name}.jsonl").read_text("utf-8").splitlines()]
    found = []
    for number in range(count):
        file = room / f"calibration-{number}.jsonl"
        if number == 0:
            file.write_bytes((folder / "calibration.jsonl").read_bytes())
        else:
            file.write_bytes(as_lines(calibration_cases(CALIBRATION_SEED + number, CALIBRATION_CASES, exam)))
        found.append((file, sha256(file.read_bytes()).hexdigest()))
    return found


def _measured(
    folder: Path, recipe: QuantizeRecipe, floats: nn.Module, reference: Reference, device: str
) -> dict[str, Any]:
    """Make the variant as `qualgate quantize` does, and hold it against `floats`, the model it was made from."""
    start = perf_counter()
    with tempfile.TemporaryDirectory() as room:
        packed: PackedModel = read_packed(
            pack(
                folder, recipe, Path(room) / "packed", prompts=lambda: calibration_prompts(folder, recipe),
                device=device,
            )
        )  # fmt: skip
    seconds = perf_counter() - start
    model: Any = deepcopy(floats)
    install(model, packed.recipe, packed.weights, packed.folded)
    divergence = reference.against(model)
    held = sum(weight.nbytes for weight in packed.weights.values())
    weights = sum(weight.shape[0] * weight.shape[1] for weight in packed.weights.values())
    return {
        "recipe": recipe.label,
        "kl": divergence.kl,
        "loss_increase": divergence.loss_increase,
        "top1_agreement": divergence.top1_agreement,
        "positions": divergence.positions,
        "effective_bits": 8 * held / weights,
        "seconds": seconds,
    }
