"""Both arms' answers to one case, with all measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from qualgate.errors import UsageError
from qualgate.records import Score
from qualgate.store import seal
from qualgate.store.database import Store
from qualgate.store.rescored_sets import corrected
from qualgate.store.rows import SCORE, check_case
from qualgate.store.scorings import newest_scoring, newest_sets
from qualgate.store.tables import cases, scores, units


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One arm's answer to one case, with all measurements."""

    status: str
    error: str
    text: str
    finish_reason: str | None
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    margins: tuple[float, ...]
    ttft: float | None
    e2e: float | None
    kl: tuple[float, ...]  # this and the next two: variants only; () if known only within bounds
    top1_agreement: float | None
    first_divergence: int | None
    scores: tuple[Score, ...]

    @property
    def margin_at_divergence(self) -> float | None:
        """The variant's margin at the first token that differs from the baseline's."""
        position = self.first_divergence
        return self.margins[position] if position is not None and position < len(self.margins) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseDetail:
    """One case, and both arms' answers to it."""

    evalset: str
    case_id: str
    repeat: int
    body: dict[str, Any]  # the case as it stands in the evalset
    baseline: Answer
    variant: Answer


def case_detail(store: Store, run_id: str, variant: str, evalset: str, case_id: str, repeat: int = 0) -> CaseDetail:
    """Return both answers to one case. Raises UsageError if the run has no such case."""
    with store.read() as connection:
        by_arm = {
            row.arm: row
            for row in connection.execute(
                select(units, cases.c.body_json)
                .join(cases, cases.c.case_hash == units.c.case_hash)
                .where(
                    units.c.run_id == run_id,
                    units.c.arm.in_(("baseline", variant)),
                    units.c.evalset == evalset,
                    units.c.case_id == case_id,
                    units.c.repeat == repeat,
                )
            )
        }
        if set(by_arm) != {"baseline", variant}:
            raise UsageError(f"run {run_id!r} has no case {evalset}/{case_id} for {variant!r}.")
        return CaseDetail(
            evalset=evalset,
            case_id=case_id,
            repeat=repeat,
            body=corrected(check_case(by_arm[variant]), evalset, newest_sets(connection, run_id)),
            baseline=_answer(connection, by_arm["baseline"]),
            variant=_answer(connection, by_arm[variant]),
        )


def _answer(connection: Connection, row: Any) -> Answer:
    """Return one unit's answer with its newest scores. row: the unit; a KL known only within bounds gives an empty
    `kl`."""
    newest = scores.c.scoring == newest_scoring(connection, row.run_id)
    rows = connection.execute(select(*SCORE).where(scores.c.unit_id == row.unit_id, newest).order_by(scores.c.metric))
    return Answer(
        status=row.status,
        error=row.error,
        text=row.text or "",
        finish_reason=row.finish_reason,
        token_ids=seal.ints(row.token_ids),
        logprobs=seal.floats(row.logprobs),
        margins=seal.floats(row.margins),
        ttft=row.ttft,
        e2e=row.e2e,
        kl=seal.kl(row.kl, row.top1_agreement)[0] if row.kl_upper is None else (),
        top1_agreement=row.top1_agreement,
        first_divergence=row.first_divergence,
        scores=tuple(Score(**score._asdict()) for score in rows),
    )
