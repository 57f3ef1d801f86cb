"""Faults planted in results of every harness: named, never approved, never blamed on the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.intake.harnesses.faults import FAULTS, FORMATS
from tests.intake.harnesses.formats import Format
from tests.intake.test_lm_eval import judged

OF_THE_MODEL = {"recipe", "adapter", "kv-cache", "weights", "model"}


def verdict(form: Format, folder: Path, base: Any, variant: Any) -> tuple[int, dict[str, Any], str]:
    paths = form.write(base, folder, "base"), form.write(variant, folder, "variant")
    code, text = judged(*paths, *form.arguments, "--max-drop", 0.1, "--json")
    found = json.loads(text)["verdicts"][0] if text.startswith("{") else {"cause": "", "reasons": [text]}
    return code, found, "\n".join(found["reasons"])


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_the_same_answers_approve_and_worse_ones_block(form, tmp_path):
    base, variant = form.grown("base"), form.grown("variant")
    code, _, text = verdict(form, tmp_path, base, variant)
    assert code == 0, text
    for sample in form.samples(variant)[::3]:
        form.say(sample, "I think it is 1", False)
    form.count(variant)
    code, found, text = verdict(form, tmp_path, base, variant)
    assert (code, found["cause"]) == (10, ""), text


@pytest.mark.parametrize(
    ("form", "fault"),
    [(form, fault) for form in FORMATS for fault in FAULTS if not FAULTS[fault][1] or getattr(form, FAULTS[fault][1])],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_fault_of_answers_is_named(form, fault, tmp_path):
    edit, _, said, codes = FAULTS[fault]
    variant = form.grown("variant")
    for sample in form.samples(variant)[::3]:
        edit(form, sample)
    form.count(variant)
    code, found, text = verdict(form, tmp_path, form.grown("base"), variant)
    assert (code in codes, said in text) == (True, True), text
    assert found["cause"] not in ({"", *OF_THE_MODEL} if code == 10 else OF_THE_MODEL)


@pytest.mark.parametrize(
    ("form", "fault"),
    [(form, fault) for form in FORMATS for fault in (*form.settings, *form.broken)],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_run_that_was_set_up_otherwise_or_is_not_whole_decides_nothing(form, fault, tmp_path):
    edit, said = (form.settings | form.broken)[fault]
    variant = form.grown("variant")
    edit(variant)
    code, found, text = verdict(form, tmp_path, form.grown("base"), variant)
    assert (code in (12, 13, 14), said in text) == (True, True), text
    assert found["cause"] not in OF_THE_MODEL
