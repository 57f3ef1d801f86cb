"""The table of docs/scorers.md on how three scorers read the same answers is what they do."""

from __future__ import annotations

import re
from pathlib import Path

from qualgate.records import Score
from qualgate.scoring.exact_match import score_exact_match
from qualgate.scoring.mathematics import score_math
from qualgate.scoring.numeric import score_numeric

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "scorers.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `([^`]+)` \| `([^`]+)` \| (right|wrong|no verdict) \| ([a-z ]+) \| ([a-z ]+) \|$", re.MULTILINE)


def test_every_row_of_the_page_is_how_the_three_read_it():
    rows = ROW.findall(PAGE)
    assert len(rows) >= 14
    for answer, reference, *said in rows:
        body: dict[str, object] = {"answer": reference}
        found: list[Score] = [
            *score_exact_match(body, answer).values(),
            *score_numeric(body, answer).values(),
            *score_math(body, answer).values(),
        ]
        assert [{True: "right", False: "wrong", None: "no verdict"}[one.verdict] for one in found] == said, answer
