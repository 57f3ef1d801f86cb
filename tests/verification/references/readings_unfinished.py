"""Pairs of arms with unfinished answers, as a careful person judges them, beside what `gate` and `intake` say.

`readings/unfinished.jsonl`: baseline, variant, exit codes that are right, causes that are (`-…`: that are not),
`max_unfinished` or null, form (`scores` or `lm_eval`), what the reasons must name, kind. An arm is as many answers of
each sort: R right, W wrong, c cut and right, C cut and wrong, e empty, u right and not found by the filter, X an
endpoint's error. The rule is `max_drop: 0.02`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.intake.score_files import gate_file, gated
from tests.intake.test_lm_eval import judged, sample
from tests.verification.references.readings import Readings, rows

_ROWS = {
    "R": {"value": 1},
    "W": {"value": 0},
    "c": {"value": 1, "finish_reason": "length"},
    "C": {"value": 0, "finish_reason": "length"},
    "e": {"value": 0, "unanswered": "empty"},
    "u": {"value": 0, "unanswered": "unfiltered"},
    "X": {"value": 0, "extracted": "Error during inference: timeout"},
}
_ERROR = ("Error during inference: timeout", "[invalid]")
_LINES = {"R": ("1", "1"), "W": ("2", "2"), "e": ("", ""), "u": ("The answer is 1", "[invalid]"), "X": _ERROR}
_NAMES = {"cut": "cut off", "empty": "empty", "filter": "not found by the filter"}
_MIXED = "no cause, and the reasons name both: as many answers of one sort as of another"
LISTED = {  # baseline, variant, max_unfinished → why we say otherwise
    ("R400", "R200 C100 e100", None): _MIXED,
    ("R400", "R300 e50 u50", None): _MIXED,
    ("R400", "R200 C200", 0.5): "no cause: so many are allowed",
}


def unfinished(folder: Path, every: int = 1) -> Readings:
    """Each pair, by its files in `folder`."""
    found = Readings()
    for number, row in enumerate(rows("unfinished", every)):
        baseline, variant, codes, causes, most, form, named, kind = row
        place = folder / str(number)
        place.mkdir()
        exit, cause, reasons = (_gated if form == "scores" else _taken_in)(place, baseline, variant, most)
        right = exit in codes and (exit != 10 or _fits(cause, causes)) and _NAMES.get(named, "") in reasons
        given = "right" if right or exit == 0 else "wrong"
        listed = exit == 10 and (baseline, variant, most) in LISTED
        about = f"{kind}: {form}: {baseline} and {variant}: {exit} {cause}, not {codes} {causes}"
        found.take("right" if right or exit else "wrong", given, about, listed)
    return found


def _fits(cause: str, causes: str) -> bool:
    if causes.startswith("-"):
        return cause not in causes[1:].split("|")
    return not causes or cause in causes.split("|")


def _answers(arm: str) -> str:
    return "".join(word[0] * int(word[1:]) for word in arm.split())


def _gated(folder: Path, baseline: str, variant: str, most: float | None) -> tuple[int, str, str]:
    gate = "" if most is None else f"max_unfinished: {most}, "
    files = [gate_file(folder, "{name: s, cases: external}", "max_drop: 0.02", gate=gate)]
    for name, arm in (("a", baseline), ("b", variant)):
        shared = {"metric": "exact_match", "scorer": "s/1", "model": name}
        lines = [{"id": str(at), "case_hash": f"h{at}", **shared, **_ROWS[one]} for at, one in enumerate(_answers(arm))]
        files.append(folder / f"{name}.jsonl")
        files[-1].write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = gated(tuple(files))
    return (int(getattr(done.exception, "exit", done.exit_code)), *_said(done.output))


def _taken_in(folder: Path, baseline: str, variant: str, most: float | None) -> tuple[int, str, str]:
    files = []
    for name, arm in (("a", baseline), ("b", variant)):
        (folder / name).mkdir()
        files.append(folder / name / "samples_sums_2026-11-21T10-20-30.123456.jsonl")
        lines = [_line(at, one) for at, one in enumerate(_answers(arm))]
        files[-1].write_text("".join(json.dumps(line) + "\n" for line in lines))
        (folder / name / "results_2026-11-21T10-20-30.123456.json").write_text(json.dumps({"model_name": name}))
    exit, output = judged(*files, "--max-drop", 0.02, "--json")
    return exit, *_said(output)


def _line(at: int, sort: str) -> dict[str, Any]:
    text, filtered = _LINES[sort]
    return sample(at, sort == "R", resps=[[text]], filtered_resps=[filtered])


def _said(output: str) -> tuple[str, str]:
    if not output.startswith("{"):
        return "", output
    [verdict] = json.loads(output)["verdicts"]
    return verdict["cause"] or "", " ".join(verdict["reasons"])
