"""Damaged results of every harness: an error that names the file, or a verdict that lost no row. No traceback."""

from __future__ import annotations

import json
import os
import random
import zipfile
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from qualgate.errors import QualgateError
from qualgate.intake.harnesses.log import Choice
from qualgate.intake.harnesses.recognise import read_log
from qualgate.pipeline.from_harnesses import judge_results
from tests.intake.harnesses.faults import FORMATS
from tests.intake.harnesses.formats import Format

SIZE = 72  # answers: enough for an approval of undamaged results
VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    1e400,
    float("nan"),
    10**30,
    "",
    "x" * 9,
    "\ud800",
    [],
    {},
    [[]],
    {"a": {}},
    0.5,
)


@cache
def _grown(name: str, model: str) -> str:
    form = next(form for form in FORMATS if form.name == name)
    return json.dumps(form.grown(model, form.repeats * SIZE // len(form.samples(form.load(form.golden)))))


def grown(form: Format, model: str) -> Any:
    """Undamaged results of about SIZE answers."""
    return json.loads(_grown(form.name, model))


def damaged(rng: random.Random, raw: bytes) -> bytes:
    """Flip bytes, cut, repeat or remove a piece, or nest without end."""
    at, end = sorted(rng.randrange(len(raw) + 1) for _ in range(2))
    way = rng.randrange(6)
    if way == 0:
        changed = bytearray(raw)
        for _ in range(rng.choice((1, 1, 3, 20))):
            changed[rng.randrange(len(raw))] = rng.randrange(256)
        return bytes(changed)
    if way == 1:
        return raw[:at]
    if way == 2:
        return raw[:at] + raw[min(end, at + 200) :]
    if way == 3:
        return raw[:at] + raw[at : min(end, at + 2000)] * 2 + raw[at:]
    if way == 4:
        return (
            raw[:at] + rng.choice((b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000, b"\xff\xfe", b"\\ud800")) + raw[at:]
        )
    return raw.replace(
        rng.choice((b":", b",", b'"', b"1", b"null", b"true")), rng.choice((b"", b"0", b"[", b"null")), 1
    )


def swapped(rng: random.Random, doc: Any) -> None:
    """Put a value of another kind in place of one, at any depth."""
    while True:
        keys = list(doc) if isinstance(doc, dict) else range(len(doc))
        key = rng.choice(list(keys))
        if not (isinstance(doc[key], dict | list) and doc[key]) or rng.random() < 0.15:
            doc[key] = deepcopy(rng.choice(VALUES))  # else the next swap may change `VALUES`
            return
        doc = doc[key]


def one(rng: random.Random, form: Format, folder: Path) -> Path:
    """Write one damaged copy of the format's results."""
    doc = grown(form, "variant")
    if rng.random() < 0.5:
        for _ in range(rng.choice((1, 1, 2, 8))):
            swapped(rng, doc)
        try:
            return form.write(doc, folder, "variant")
        except (TypeError, KeyError, AttributeError, ValueError):  # the damage leaves the writer nothing to write
            doc = grown(form, "variant")
    path = form.write(doc, folder, "variant")
    raw = path.read_bytes()
    if path.suffix == ".eval" and rng.random() < 0.5:  # damage within a member, whose checksum is then right
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        name = rng.choice(sorted(members))
        members[name] = damaged(rng, members[name])
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, content in members.items():
                archive.writestr(member, content)
        return path
    path.write_bytes(damaged(rng, raw))
    return path


def fuzzed(form: Format, folder: Path, rounds: int) -> dict[str, int]:
    """How many damaged files were refused, decided against, and approved with every row in place."""
    rng = random.Random(f"{form.name} 50")
    base = form.write(grown(form, "base"), folder, "base")
    choice = Choice(metric=form.arguments[1] if form.arguments else "")
    of_base = read_log(base, choice=choice)
    rows = {(row.id, row.repeat, row.metric) for row in of_base.scores.rows}
    read = lambda path, *arguments: of_base if path == base else read_log(path, *arguments)  # noqa: E731
    outcomes = {"refused": 0, "not approved": 0, "approved": 0}
    for number in range(rounds):
        path = one(rng, form, folder)
        try:
            with patch("qualgate.intake.log_pair.read_log", read):
                judged = judge_results(base, path, max_drop=0.19, choices=(choice, choice))
        except QualgateError as error:
            assert "variant" in str(error), (number, error)  # noqa: PT017
            outcomes["refused"] += 1
            continue
        approved = judged.decided.exit == 0
        outcomes["approved" if approved else "not approved"] += 1
        if approved:
            found = {(row.id, row.repeat, row.metric) for row in judged.pair.variant.scores.rows}
            assert found == rows, number
    return outcomes


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_damaged_results_are_refused_or_judged_whole(form, tmp_path):
    outcomes = fuzzed(form, tmp_path, 25)
    assert outcomes["refused"] > 3, outcomes


@pytest.mark.proof
@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_many_damaged_results(form, tmp_path):
    """`QUALGATE_FUZZ_ROUNDS=5000` for as many a format, which takes an hour for all."""
    rounds = int(os.environ.get("QUALGATE_FUZZ_ROUNDS", "300"))
    outcomes = fuzzed(form, tmp_path, rounds)
    print(form.name, json.dumps(outcomes))
    assert outcomes["refused"] > rounds / 5, outcomes


def test_bombs_are_refused(tmp_path):
    base = FORMATS[1].write(FORMATS[1].grown("base", 1), tmp_path, "base")
    bomb = tmp_path / "bomb.eval"
    with zipfile.ZipFile(base) as archive, zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("header.json", archive.read("header.json"))
        packed.writestr("samples/0.json", b'{"id": "' + b"a" * (300 * 2**20) + b'"}')
    with pytest.raises(QualgateError, match=r"bomb\.eval: samples/0\.json: unpacks to more than 256 MiB"):
        read_log(bomb)
    laughs = "".join(f"  a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12))
    yaml = tmp_path / "results.yaml"
    yaml.write_text(f"evalId: x\nresults:\n  prompts: &a0 [1]\n{laughs}  results: *a11\n")
    with pytest.raises(QualgateError, match=r"results\.yaml: its aliases stand for more than"):
        read_log(yaml)
