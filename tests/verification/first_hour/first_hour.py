"""The first hour of a new user: from `init` to a verdict, on a real chat model and cases of five shapes.

The variant is the model without a few words (`chat_model.without_words`), so it is known which answers are lost. The
commands are those that README shows. An oracle of a few lines, which reads the stored answers of `qualgate answers`,
counts what is right, lost and gained; the verdict must name the same loss, block the variant or say how many cases
would do, and may not be undecided because nothing was measured.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.verification.first_hour.cases import Shape, shapes
from tests.verification.first_hour.chat_model import chat_model, without_words
from tests.verification.goals import FIRST_HOUR
from tests.verification.references.agreement import NoReference

MOST_SECONDS = 600  # from `init` to the verdict


def _command(folder: Path, *words: str, codes: Sequence[int]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "qualgate", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode in codes, f"qualgate {' '.join(words)}: {done.returncode}\n{done.stderr[-2_000:]}"
    return done.stdout


def first_verdict(shape: Shape, model: Path, scratch: Path) -> dict[str, Any]:
    """What became of one shape: what was chosen, what the verdict names, what the oracle counts, and the seconds."""
    folder = scratch / shape.name.replace(" ", "-")
    folder.mkdir()
    without_words(model, shape.unsaid, folder / "worse")
    (folder / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in shape.rows), encoding="utf-8")
    start = time.monotonic()
    _command(folder, "init", "--model", str(model), "--variant", "worse", "--cases", "mine.jsonl", codes=(0,))
    _command(folder, "plan", "gate.yaml", codes=(0, 12))
    _command(folder, "run", "gate.yaml", "--limit", "3", codes=(0, 10, 12))
    said = json.loads(_command(folder, "run", "gate.yaml", "--json", codes=(0, 10, 11, 12)))
    seconds = time.monotonic() - start
    verdict = said["verdicts"][0]
    rows = [one for one in verdict["comparisons"] if one["metric"] == shape.metric]
    shown = _command(folder, "answers", said["run"], "--limit", str(len(shape.rows)), "--json", codes=(0,))
    return {
        "shape": shape.name,
        "exit": verdict["exit"],
        "reason": verdict["reasons"][0],
        "named": [rows[0]["lost"], rows[0]["gained"], rows[0]["n"]] if rows else None,
        "counted": _counted(shape, json.loads(shown)),
        "needed": rows[0]["needed"] if rows else None,
        "seconds": round(seconds, 1),
    }


def _counted(shape: Shape, answers: list[dict[str, Any]]) -> list[int]:
    """Lost, gained and all cases by the oracle."""
    lost = gained = 0
    for one in answers:
        row = shape.rows[int(one["case_id"].rpartition("-")[2]) - 1]  # `init` numbers cases by their line
        before, after = (
            shape.right(row, one[arm], ended == "eos")
            for arm, ended in zip(("baseline", "variant"), one["ended"], strict=True)
        )
        lost, gained = lost + (before and not after), gained + (after and not before)
    return [lost, gained, len(answers)]


def _holds(found: dict[str, Any]) -> bool:
    """The loss is named as it was counted, and the variant is blocked or the verdict says how many cases would do."""
    named = found["named"] is not None and found["named"] == found["counted"] and found["counted"][0] > 0
    return named and (found["exit"] == 10 or found["needed"] is not None)


def run(quick: bool = False) -> dict[str, Any]:
    """Every shape; quick: the first alone."""
    with tempfile.TemporaryDirectory() as made:
        scratch = Path(made)
        try:
            model = chat_model(scratch)
        except NoReference as why:
            return FIRST_HOUR.result(rounds=[], rows=[FIRST_HOUR.not_run("verdict", str(why))])
        found = [first_verdict(shape, model, scratch) for shape in shapes()[: 1 if quick else None]]
    failed = [one for one in found if not _holds(one)]
    slow = [one for one in found if one["seconds"] > MOST_SECONDS]
    said = {"shapes": len(found), "failed": failed, "slow": slow}
    few = f"{len(found)} of {len(shapes())} shapes" if quick else None
    row = FIRST_HOUR.row("verdict", said, met=not failed and not slow, few=few, by_chance=not failed)
    return FIRST_HOUR.result(rounds=found, rows=[row])
