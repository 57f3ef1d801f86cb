"""Refuse score files that are copies of each other: a file is not worse than itself, and that says nothing.

Ids, values, texts and hashes make a copy; a note, a label, an order or a time that was changed makes it no other
answer. Two models may answer alike: then the rows of each file name their model.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

from qualgate.errors import UsageError
from qualgate.intake.score_rows import ScoreRow, Scores, is_score
from qualgate.intake.serving_rows import TIMES

RowId = tuple[str, str, int, str]  # evalset, case, repeat, metric


def refuse_one_file_twice(files: Mapping[str, Path]) -> None:
    """Raise UsageError where one file is given for two arms."""
    for one, other in combinations(files.values(), 2):
        if one.exists() and other.exists() and one.samefile(other):
            raise UsageError(f"{one} is given as the file of two arms; give each arm's own")


def refuse_copies(sides: Mapping[str, Scores], targets: Mapping[str, str]) -> None:
    """Raise UsageError where two arms have the same answers and nothing says that two models gave them.

    targets: of each arm that only speculates, whose answers it is to give; it differs in what its answers took.
    """
    for one, other in combinations(sides, 2):
        speculates = targets.get(other) == one or targets.get(one) == other
        if _same_answers(sides[one], sides[other], speculates) and not _two_models(sides[one], sides[other]):
            raise UsageError(
                f"{sides[other].source} holds the answers of {sides[one].source}: every id, value, text and hash is "
                "equal, and a copy says nothing of a variant. Give the variant's own rows. If two models truly "
                "answered alike, let each row say whose answer it is (`model`), as `qualgate score` does where the "
                "outputs say so."
            )


def _same_answers(one: Scores, other: Scores, times_count: bool) -> bool:
    ours, theirs = _by_id(one), _by_id(other)
    if not ours or ours.keys() != theirs.keys():
        return False
    return not any(_differ(row, theirs[at]) or (times_count and _took(row, theirs[at])) for at, row in ours.items())


def _by_id(side: Scores) -> dict[RowId, ScoreRow]:
    return {(row.evalset, row.id, row.repeat, row.metric): row for row in side.rows if is_score(row)}


def _differ(one: ScoreRow, other: ScoreRow) -> bool:
    """In its value, or in a text or a hash that both state."""
    stated = (
        (one.case_hash, other.case_hash),
        (one.extracted, other.extracted),
        (one.served.tokens_sha256, other.served.tokens_sha256),
        (one.served.text_sha256, other.served.text_sha256),
    )
    return one.value != other.value or any(mine and theirs and mine != theirs for mine, theirs in stated)


def _took(one: ScoreRow, other: ScoreRow) -> bool:
    """Whether the answers took different times, or tries, or drafts."""
    names = (*TIMES, "attempts", "draft_proposed", "draft_accepted")
    return any(getattr(one.served, name) != getattr(other.served, name) for name in names)


def _two_models(one: Scores, other: Scores) -> bool:
    ours, theirs = ({row.model for row in side.rows} for side in (one, other))
    return "" not in ours | theirs and ours.isdisjoint(theirs)
