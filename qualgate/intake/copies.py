"""Refuse score files that are copies of each other: comparing a file with itself proves nothing.

Equal ids, values, texts and hashes make a copy, whatever the notes, labels, order or times. Two models may answer
alike: then the rows of each file name their model.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from itertools import combinations
from pathlib import Path

from qualgate.errors import UsageError
from qualgate.intake.score_rows import ScoreRow, Scores, is_score
from qualgate.text.names import folded

RowId = tuple[str, str, int, str]  # evalset, case, repeat, metric


def refuse_one_file_twice(files: Mapping[str, Path], advice: str = "") -> None:
    """Raise UsageError where one file is given for two arms. advice: what else can be done."""
    for first, second in combinations(files.values(), 2):
        if first.exists() and second.exists() and first.samefile(second):
            raise UsageError(f"{first} is given for two arms; give each arm its own file{advice}")


NAME_THE_MODEL = (
    "If two models truly gave equal answers, or one only adds speculation, name the model in each row (`model`), as "
    "`qualgate score` does where the outputs name it."
)


def refuse_copies(sides: Mapping[str, Scores], advice: str = NAME_THE_MODEL) -> None:
    """Raise UsageError where two arms have the same answers and nothing says that two models gave them. advice: how to
    say so."""
    for first, second in combinations(sides.values(), 2):
        if _same_answers(first, second) and not _two_models(first, second):
            raise UsageError(
                f"{second.source} holds the answers of {first.source}: every id, value, text and hash is equal, so "
                f"nothing is compared. Give the variant's own rows. {advice}"
            )


def _same_answers(first: Scores, second: Scores) -> bool:
    first_rows, second_rows = _by_id(first), _by_id(second)
    return (
        bool(first_rows)
        and first_rows.keys() == second_rows.keys()
        and not any(_rows_differ(row, second_rows[key]) for key, row in first_rows.items())
    )


def _by_id(side: Scores) -> dict[RowId, ScoreRow]:
    return {(row.evalset, row.id, row.repeat, row.metric): row for row in side.rows if is_score(row)}


def _rows_differ(row: ScoreRow, other: ScoreRow) -> bool:
    """Return whether the rows differ in value, or in a text or a hash that both state."""
    stated = (
        (row.case_hash, other.case_hash),
        (_plain(row.extracted), _plain(other.extracted)),
        (row.served.tokens_sha256, other.served.tokens_sha256),
        (row.served.text_sha256, other.served.text_sha256),
    )
    return row.value != other.value or any(
        first_text and second_text and first_text != second_text for first_text, second_text in stated
    )


def _plain(text: str) -> str:
    """Normalise numbers, as tables may write 7 as 7.0."""
    try:
        return str(Decimal(text.strip()).normalize())
    except (ArithmeticError, ValueError):
        return text.strip()


def _two_models(first: Scores, second: Scores) -> bool:
    """Whether every row names a model, and the files share no name, letter case and blanks aside."""
    first_models, second_models = ({folded(row.model) for row in side.rows} for side in (first, second))
    return "" not in first_models | second_models and first_models.isdisjoint(second_models)
