"""The shipped files: what the generator writes, byte for byte, within the bounds the design sets."""

from __future__ import annotations

import json
import re
from collections import Counter
from hashlib import sha256
from itertools import combinations
from math import ceil
from pathlib import Path

import pytest
import yaml
from tokenizers import Tokenizer

import qualgate_evalsets
from qualgate.records.identity import case_hash
from qualgate.refmodel import PATH
from qualgate_evalsets.families import FAMILIES, family
from qualgate_evalsets.making.generate import (
    CALIBRATION,
    CASES,
    OVERLAP,
    VERSION,
    calibration_cases,
    eval_cases,
    five_grams,
    overlap,
    thirteen_grams,
    write,
    write_calibration,
)
from qualgate_evalsets.making.values import split_of

FOLDER = Path(qualgate_evalsets.__file__).parent


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(PATH / "tokenizer.json"))


@pytest.fixture(scope="module", params=FAMILIES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def manifest(name: str) -> dict:
    return yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def cases(name: str) -> list[dict]:
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def test_manifest_names_the_set_and_the_hash_of_its_cases(name: str, manifest: dict):
    assert manifest["name"] == name
    assert manifest["version"] == VERSION
    assert "exact_match" in manifest["metrics"]
    assert manifest["sha256"] == sha256((FOLDER / f"{name}.jsonl").read_bytes()).hexdigest()


def test_the_generator_writes_the_shipped_bytes_again(name: str, manifest: dict, tokenizer: Tokenizer, tmp_path: Path):
    write(name, manifest["seed"], CASES, tmp_path, tokenizer)
    for file in (f"{name}.jsonl", f"{name}.yaml"):
        assert (tmp_path / file).read_bytes() == (FOLDER / file).read_bytes(), (
            "run: python -m qualgate_evalsets.making.generate"
        )


def test_set_has_enough_cases_with_unique_ids_and_contents_over_all_templates(name: str, cases: list[dict]):
    assert len(cases) >= 400
    assert len({case["id"] for case in cases}) == len(cases)
    assert len({case_hash(case) for case in cases}) == len(cases)
    used = {tag for case in cases for tag in case["tags"] if tag.startswith("template:")}
    assert used == {f"template:{template}" for template in family(name).TEMPLATES}


def test_no_two_cases_share_more_than_nine_tenths_of_their_five_grams(cases: list[dict]):
    grams = [five_grams(case) for case in cases]
    assert max(overlap(left, right) for left, right in combinations(grams, 2)) <= OVERLAP


def test_token_budget_is_one_and_a_half_references_and_sixteen(cases: list[dict], tokenizer: Tokenizer):
    for case in cases:
        tokens = len(tokenizer.encode(case["answer"], add_special_tokens=False).ids)
        assert case["max_new_tokens"] == ceil(1.5 * tokens) + 16


def test_reformatted_answers_have_100_to_200_tokens(tokenizer: Tokenizer):
    lines = (FOLDER / "reformat.jsonl").read_text(encoding="utf-8").splitlines()
    lengths = [len(tokenizer.encode(json.loads(line)["answer"]).ids) for line in lines]
    assert min(lengths) >= 100
    assert max(lengths) <= 200


def test_another_seed_gives_other_cases(name: str, tokenizer: Tokenizer):
    first, second = (
        {case_hash({**case, "id": ""}) for case in eval_cases(name, seed, 60, tokenizer)} for seed in (1, 2)
    )
    assert len(first & second) <= 2  # "30% of 80" has few operands: two seeds may draw the same


def test_overlap_counts_shared_runs_of_five_words():
    def grams(text: str) -> set[tuple[str, ...]]:
        return five_grams({"messages": [{"role": "user", "content": text}]})

    assert overlap(grams("a b c d e f"), grams("a b c d e f")) == 1
    assert overlap(grams("a b c d e f"), grams("a b c d e g")) == pytest.approx(1 / 3)
    assert overlap(grams("a b"), grams("a c")) == 0


@pytest.fixture(scope="module")
def exam() -> list[dict]:
    return [json.loads(line) for name in FAMILIES for line in (FOLDER / f"{name}.jsonl").open(encoding="utf-8")]


@pytest.fixture(scope="module")
def calibration() -> list[dict]:
    return [json.loads(line) for line in (FOLDER / f"{CALIBRATION}.jsonl").open(encoding="utf-8")]


def test_the_generator_writes_the_shipped_calibration_set_again(calibration: list[dict], tmp_path: Path):
    for name in FAMILIES:
        (tmp_path / f"{name}.jsonl").write_bytes((FOLDER / f"{name}.jsonl").read_bytes())
    seed = yaml.safe_load((FOLDER / f"{CALIBRATION}.yaml").read_text(encoding="utf-8"))["seed"]
    write_calibration(seed, len(calibration), tmp_path)
    for file in (f"{CALIBRATION}.jsonl", f"{CALIBRATION}.yaml"):
        assert (tmp_path / file).read_bytes() == (FOLDER / file).read_bytes(), (
            "run: python -m qualgate_evalsets.making.generate"
        )


def test_the_calibration_set_holds_every_family_alike_and_every_template(calibration: list[dict]):
    counts = Counter(case["task"] for case in calibration)
    assert set(counts) == set(FAMILIES)
    assert len(set(counts.values())) == 1
    used = {tag for case in calibration for tag in case["tags"] if tag.startswith("template:")}
    assert used == {f"template:{template}" for name in FAMILIES for template in family(name).TEMPLATES}


def test_a_calibration_set_smaller_than_the_templates_is_spread_over_them():
    cases = calibration_cases(1, 7 * 5, exam=[])
    for name in FAMILIES:
        templates = [f"template:{template}" for template in family(name).TEMPLATES]
        places = [
            templates.index(tag) for case in cases if case["task"] == name for tag in case["tags"] if tag in templates
        ]
        assert len(places) == len(set(places)) == 5
        assert max(places) >= 0.75 * len(templates)


def test_no_13_words_in_a_row_and_no_value_of_the_calibration_set_stand_in_an_evalset(
    calibration: list[dict], exam: list[dict]
):
    grams = {gram for case in exam for gram in thirteen_grams(case)}
    assert not any(thirteen_grams(case) & grams for case in calibration)
    # Values of three digits and more are split by hash: whatever stands in a calibration case is on the training side.
    numbers = {number for case in calibration for number in re.findall(r"\b[A-Z]\d{3}\b", json.dumps(case["messages"]))}
    assert numbers
    assert {split_of(number) for number in numbers} == {"train"}


def test_a_case_that_the_exam_holds_is_not_drawn_for_calibration(calibration: list[dict]):
    again = calibration_cases(20261, 7, exam=[])  # each family's first template
    assert [case["answer"] for case in again] == [case["answer"] for case in calibration[:7]]
    others = calibration_cases(20261, 7, exam=again)
    assert not {case["answer"] for case in others} & {case["answer"] for case in again}
