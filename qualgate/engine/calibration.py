"""Calibration cases as token ids: prompt, answer and end token, as in a correct answer of the model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from qualgate.engine.prompts import Renderer
from qualgate.errors import UsageError
from qualgate.quant.model_files import read_files
from qualgate.records import Case, QuantizeRecipe


def calibration_prompts(model_folder: Path, recipe: QuantizeRecipe) -> list[tuple[int, ...]]:
    """Token ids of every case of the recipe's calibration set, prompt and answer, cut to the model's context.

    Raises UsageError when the file is not the one the recipe was planned with.
    """
    limit = read_files(model_folder).context_length
    return [(*prompt, *answer)[:limit] for prompt, answer in calibration_pairs(model_folder, recipe)]


def calibration_pairs(model_folder: Path, recipe: QuantizeRecipe) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the pairs of `calibration_prompts`, prompt and answer apart."""
    if not recipe.calibration:
        raise UsageError(f"{recipe.label} needs its calibration set, which this recipe does not name.")
    file = Path(recipe.calibration)
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise UsageError(f"The calibration set {file} cannot be read ({error.strerror}).") from None
    digest = hashlib.sha256(raw).hexdigest()
    if digest != recipe.calibration_sha256:
        raise UsageError(
            f"{file} has changed since it was planned: its sha256 is {digest}, not {recipe.calibration_sha256}. "
            "Start again, so that the variant says which data made it."
        )
    cases = [Case(evalset=file.stem, body=json.loads(line)) for line in raw.splitlines() if line.strip()]
    return answered(model_folder, cases)


def answered(model_folder: Path, cases: Sequence[Case]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return (prompt, answer) token ids of each case: its `answer` and the end token, or nothing where it has none."""
    renderer = Renderer(read_files(model_folder))
    tokenizer = renderer.tokenizer
    end = [tokenizer.eos_token_id] if isinstance(tokenizer.eos_token_id, int) else []
    pairs = []
    for case, prompt in zip(cases, renderer.render(cases), strict=True):
        answer: list[int] = []
        if isinstance(case.body.get("answer"), str):
            answer = [*tokenizer(case.body["answer"], add_special_tokens=False)["input_ids"], *end]
        pairs.append((prompt, tuple(answer)))
    return pairs
