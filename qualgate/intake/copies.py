"""Refuse score files that are copies of each other: a file is not worse than itself, and that says nothing.

Ids, values, texts and hashes make a copy; a note, a label, an order or a time that was changed makes it no other
answer. Two models may answer alike: then the rows of each file name their model.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from decimal import Decimal
from itertools import combinations
from pathlib import Path

from qualgate.errors import UsageError
from qualgate.intake.score_rows import ScoreRow, Scores, is_score

RowId = tuple[str, str, int, str]  # evalset, case, repeat, metric


def refuse_one_file_twice(files: Mapping[str, Path]) -> None:
    """Raise UsageError where one file is given for two arms."""
    for one, other in combinations(files.values(), 2):
        if one.exists() and other.exists() and one.samefile(other):
            raise UsageError(f"{one} is given as the file of two arms; give each arm's own")


def refuse_copies(sides: Mapping[str, Scores]) -> None:
    """Raise UsageError where two arms have the same answers and nothing says that two models gave them."""
    for one, other in combinations(sides.values(), 2):
        if _same_answers(one, other) and not _two_models(one, other):
            raise UsageError(
                f"{other.source} holds the answers of {one.source}: every id, value, text and hash is equal, and a "
                "copy says nothing of a variant. Give the variant's own rows. If two models truly answered alike, or "
                "one only speculates, let each row say whose answer it is (`model`), as `qualgate score` does where "
                "the outputs say so."
            )


def _same_answers(one: Scores, other: Scores) -> bool:
    ours, theirs = _by_id(one), _by_id(other)
    return bool(ours) and ours.keys() == theirs.keys() and not any(_differ(row, theirs[at]) for at, row in ours.items())


def _by_id(side: Scores) -> dict[RowId, ScoreRow]:
    return {(row.evalset, row.id, row.repeat, row.metric): row for row in side.rows if is_score(row)}


def _differ(one: ScoreRow, other: ScoreRow) -> bool:
    """In its value, or in a text or a hash that both state."""
    stated = (
        (one.case_hash, other.case_hash),
        (_plain(one.extracted), _plain(other.extracted)),
        (one.served.tokens_sha256, other.served.tokens_sha256),
        (one.served.text_sha256, other.served.text_sha256),
    )
    return one.value != other.value or any(mine and theirs and mine != theirs for mine, theirs in stated)


def _plain(text: str) -> str:
    """A number by its value: a file that a table was made of writes 7 as 7.0."""
    try:
        return str(Decimal(text.strip()).normalize())
    except (ArithmeticError, ValueError):
        return text.strip()


def _two_models(one: Scores, other: Scores) -> bool:
    """Every row names a model, and no name of the one file is the other's but for letter case and blanks."""
    ours, theirs = ({_folded(row.model) for row in side.rows} for side in (one, other))
    return "" not in ours | theirs and ours.isdisjoint(theirs)


def _folded(name: str) -> str:
    plain = unicodedata.normalize("NFKC", name).casefold()
    return "".join(c for c in plain if not c.isspace() and unicodedata.category(c) != "Cf")
