"""Faults of the score files that others bring."""

from __future__ import annotations

import gzip
import json
from math import nan
from pathlib import Path
from typing import Any

from qualgate.errors import QualgateError
from qualgate.intake.row_evidence import KnownCases
from qualgate.intake.score_rows import read_score_rows
from qualgate.pipeline.from_files import judge_scores
from tests.verification.verdicts.faults.given import SIDES, one_rule


def _twice(text: str) -> tuple[str, str]:
    return text, text


def _line(case: int, **over: Any) -> str:
    row = {"id": f"q{case}", "metric": "exact_match", "value": float(case % 10 > 0), "case_hash": f"h{case}"}
    row = {key: value for key, value in (row | {"scorer": "exact_match/1"} | over).items() if value is not ...}
    return json.dumps(row) + "\n"


GOOD_FILE = "".join(_line(case) for case in range(240))


def _first(**over: Any) -> str:
    """The file with something else in its first row, whose value is 0."""
    return _line(0, **over) + GOOD_FILE.partition("\n")[2]


FILES: dict[str, tuple[str | bytes, str | bytes]] = {
    "both empty": ("", ""),
    "baseline empty": ("", GOOD_FILE),
    "variant empty": (GOOD_FILE, ""),
    "blank lines alone": ("\n\n", "\n\n"),
    "variant cut inside a line": (GOOD_FILE, GOOD_FILE[:-20]),
    "variant cut between lines": (GOOD_FILE, "".join(_line(case) for case in range(12))),
    "baseline cut between lines": ("".join(_line(case) for case in range(12)), GOOD_FILE),
    "not UTF-8": (GOOD_FILE, GOOD_FILE.encode() + b"\xff\xfe\n"),
    "an array": (GOOD_FILE, "[]\n"),
    "a row twice": (GOOD_FILE, GOOD_FILE + _line(3)),
    "a row twice, better the second time": (GOOD_FILE, GOOD_FILE + _line(10, value=1.0)),
    "a key twice": (GOOD_FILE, GOOD_FILE.replace('{"id"', '{"value": 1, "id"', 1)),
    "NaN": (GOOD_FILE, "".join(_line(case, value=nan) for case in range(240))),
    "one NaN": (GOOD_FILE, _line(0, value=nan) + GOOD_FILE.partition("\n")[2]),
    "a score of 1e999": (GOOD_FILE, GOOD_FILE.replace("1.0", "1e999", 1)),
    "a score of 7": (GOOD_FILE, _line(0, value=7.0) + GOOD_FILE.partition("\n")[2]),
    "a score in words": (GOOD_FILE, _line(0, value="1.0") + GOOD_FILE.partition("\n")[2]),
    "null scores": (GOOD_FILE, "".join(_line(case, value=None) for case in range(240))),
    "no scores": (GOOD_FILE, "".join(_line(case, value=...) for case in range(240))),
    "no ids": (GOOD_FILE, "".join(_line(case, id=...) for case in range(240))),
    "no hashes on one side": (GOOD_FILE, "".join(_line(case, case_hash=...) for case in range(240))),
    "no hashes on both": _twice("".join(_line(case, case_hash=...) for case in range(240))),
    "hashes of another version": (GOOD_FILE, "".join(_line(case, case_hash=f"v2 {case}") for case in range(240))),
    "shifted ids": (GOOD_FILE, "".join(_line(case, id=f"q{(case + 1) % 240}") for case in range(240))),
    "another metric": (GOOD_FILE, "".join(_line(case, metric="json.valid") for case in range(240))),
    "another scorer": (GOOD_FILE, "".join(_line(case, scorer="exact_match/2") for case in range(240))),
    "ten rows, no flip": _twice("".join(_line(case, value=1.0) for case in range(10))),
    "all wrong on both": _twice("".join(_line(case, value=0.0) for case in range(240))),
    "12 cases under 20 ids each": _twice("".join(_line(case, case_hash=f"h{case % 12}") for case in range(240))),
    "12 cases under 20 ids and in 20 clusters": _twice(
        "".join(_line(case, case_hash=f"h{case % 12}", cluster=f"c{case // 12}") for case in range(240))
    ),
    "12 cases in 20 evalsets": _twice("".join(_line(case % 12, evalset=f"s{case // 12}") for case in range(240))),
    "12 cases 20 times each": _twice("".join(_line(case % 12, repeat=case // 12) for case in range(240))),
    "ids in another letter case": (GOOD_FILE, GOOD_FILE.replace('"id": "q', '"id": "Q')),
    "ids composed and decomposed": (GOOD_FILE.replace('"q', '"\u00e9'), GOOD_FILE.replace('"q', '"e\u0301')),
    "ids with a space after": (GOOD_FILE, GOOD_FILE.replace('", "metric', ' ", "metric')),
    "an evalset of times alone": _twice(
        GOOD_FILE + "".join(_line(case, evalset="b", metric="latency.e2e", value=1.0) for case in range(240, 300))
    ),
    "a time below nothing": (GOOD_FILE, GOOD_FILE + _line(0, metric="latency.e2e", value=-1)),
    "a repeat below nothing": (GOOD_FILE, GOOD_FILE + _line(0, repeat=-1)),
    "a score in a list": (GOOD_FILE, _line(0, value=[1.0]) + GOOD_FILE.partition("\n")[2]),
    "a whole number beyond a double": (GOOD_FILE, GOOD_FILE.replace("1.0", "1" + "0" * 400, 1)),
    "a line nested too deep": (GOOD_FILE, "[" * 10**5 + "\n" + GOOD_FILE),
    **{
        f"{fault}, {side}": (_first(**over), GOOD_FILE) if side == "baseline" else (GOOD_FILE, _first(**over))
        for fault, over in {
            "a verdict of null": {"verdict": None},
            "a verdict of null and a crash": {"verdict": None, "error_type": "scorer_crashed"},
            "a verdict against its value": {"verdict": True},
            "a verdict in words": {"verdict": "false"},
            "an error type": {"error_type": "truncated"},
            "an error's status": {"status": "error"},
            "a status nobody knows": {"status": "skipped"},
            "an error": {"error": "connection refused"},
            "a fraction of right": {"value": 0.5},
            "an end nobody knows": {"finish_reason": "lenght"},
            "an end by the server": {"finish_reason": "abort"},
            "an end by a content filter": {"finish_reason": "content_filter"},
        }.items()
        for side in SIDES
    },
    "baseline cut off": ("".join(_line(case, finish_reason="length") for case in range(240)), GOOD_FILE),
    "compressed": (GOOD_FILE, gzip.compress(GOOD_FILE.encode(), mtime=0)),
    "UTF-16": (GOOD_FILE, GOOD_FILE.encode("utf-16")),
    "a blank line inside": (GOOD_FILE, GOOD_FILE.replace("\n", "\n\n", 1)),
    "all wrong on the variant": (GOOD_FILE, "".join(_line(case, value=0.0) for case in range(240))),
}
"""name → the baseline's and the variant's file of score rows."""


def file_exit(baseline: str | bytes, variant: str | bytes, folder: Path) -> int:
    """The code for two files of score rows, judged with the margin of 5 points."""
    paths = (folder / "baseline.jsonl", folder / "variant.jsonl")
    for path, text in zip(paths, (baseline, variant), strict=True):
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    try:
        sides = {path.stem: read_score_rows(path) for path in paths}
        return int(judge_scores(sides, one_rule(), KnownCases(default="code"))[1].exit)
    except QualgateError as error:
        return int(error.exit)
