"""The reference is made from the code, every key of it has a meaning, and its examples are taken."""

from __future__ import annotations

import re
from typing import Annotated, Any

import yaml
from pydantic import TypeAdapter

from docs.generate import FILES, NIGHTLY, PAGES, SECTIONS, pages, parts
from qualgate.config.evalset_refs import LM_EVAL_KEYS
from qualgate.config.rules import RuleEntry
from qualgate.quant.recipes import OPTIONS, parse_recipe
from qualgate.records.metrics import METRICS
from tests.tables import each_row

KEYS = [(model, key) for _, model, _ in (*SECTIONS, *FILES, *NIGHTLY) for key in model.model_fields]


def test_the_committed_pages_are_what_the_code_makes():
    for name, text in pages().items():
        assert (PAGES / name).read_text(encoding="utf-8") == text, f"{name} is old; run: python -m docs.generate"


@each_row(("model", "key"), KEYS)
def test_every_key_says_what_it_means_with_an_example_that_is_taken(model: Any, key: str):
    field = model.model_fields[key]
    meaning, example = parts(field.description or "")
    assert meaning.endswith("."), key
    value = yaml.safe_load(example.strip("`"))
    assert list(value) == [key]
    TypeAdapter(Annotated[field.annotation, field]).validate_python(value[key])


def test_every_example_of_a_rule_is_one():
    found = re.findall(r"`(\{metric: [^`]*\})`", pages()["metrics.md"])
    assert [RuleEntry.model_validate(yaml.safe_load(rule)).metric for rule in found] == list(METRICS)


def test_every_option_of_a_recipe_says_so_too():
    for key, option in OPTIONS.items():
        meaning, example = parts(option.meaning)
        assert meaning.endswith(".")
        value = yaml.safe_load(example.strip("`"))
        data = {"calibration": "calibration"} if option.methods[0] in ("gptq", "awq", "smoothquant") else {}
        accepted = [
            method for method in option.methods if _taken({"method": method, **data, **value}) or method == "gptq"
        ]
        assert accepted, key


def _taken(recipe: dict[str, Any]) -> bool:
    try:
        parse_recipe(recipe)
    except Exception:
        return False
    return True


def test_every_key_of_a_task_of_lm_evals_says_so_too():
    for key, (kind, said) in LM_EVAL_KEYS.items():
        value = yaml.safe_load(parts(said)[1].strip("`"))
        assert list(value) == [key]
        assert isinstance(value[key], kind)
