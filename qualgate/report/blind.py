"""Two answers to compare blind: the pairs of a run, what is shown of one, and what people preferred."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from qualgate.gate.evidence.people import Share, Summary, agreement_text, side_lines, summary
from qualgate.records import UnitKey, Vote
from qualgate.records.judged import PairKey
from qualgate.records.metrics import PEOPLE
from qualgate.report.blocks import Block, Lines, Note, Section, Table
from qualgate.scoring.preference.asking import compared, question_text
from qualgate.scoring.reasoning import NONE
from qualgate.store import runs
from qualgate.store.database import Store
from qualgate.store.evidence import case_bodies
from qualgate.store.preferences import Blind, Preference, differing, material

STATED = (
    "A case is one observation, whoever compared it and however often; most votes decide it. p: exact sign test of won "
    "against lost cases, ties left out. Win rate: a tie counts half; 95 % Clopper–Pearson interval over cases."
)


@dataclass(frozen=True, slots=True)
class Shown:
    """What a reviewer sees of one pair."""

    question: str  # with the whole dialogue
    first: str
    second: str


def pairs_to_compare(store: Store, run_id: str) -> tuple[Blind, ...]:
    """Return the pairs of a complete run whose answers differ, thoughts aside; where each of its rules on `people.win`
    names an evalset, those of these sets."""
    sets = {rule.evalset for rule in runs.policy(store, run_id).rules if rule.metric == PEOPLE}
    pairs = [pair for pair in differing(store, run_id) if not sets or None in sets or pair.unit.evalset in sets]
    bodies = case_bodies(store, {pair.case_hash for pair in pairs})
    return tuple(
        pair for pair in pairs
        if bodies.get(pair.case_hash, {}).get("reasoning", NONE) == NONE or _answers_differ(store, run_id, pair)
    )  # fmt: skip


def _answers_differ(store: Store, run_id: str, pair: Blind) -> bool:
    first, second = compared(*material(store, run_id, pair))
    return first != second


def shown(store: Store, run_id: str, pair: Blind, reviewer: str) -> Shown:
    """Return a pair as this reviewer sees it, always on the same sides."""
    body, *answers = material(store, run_id, pair)
    first, second = compared(body, *answers)
    if pair.variant_first(run_id, reviewer):
        first, second = second, first
    return Shown(question_text(body), first, second)


def summaries(given: Iterable[Preference], variants: Sequence[str]) -> dict[str, Summary]:
    """Return what people preferred of each of these variants."""
    votes: dict[str, dict[PairKey, list[Vote]]] = {variant: {} for variant in variants}
    for one in given:
        if one.variant in votes:
            votes[one.variant].setdefault((one.evalset, one.case_id, one.repeat), []).append(one.vote)
    return {variant: summary(some) for variant, some in votes.items()}


def results_section(found: dict[str, Summary], pairs: Sequence[UnitKey] = ()) -> Section:
    """Return the results by variant. pairs: what there is to compare; (): not known."""
    heads = ("variant", "reviewers", "compared", "won", "lost", "ties", "sign test p", "win rate [95 %]")
    rows = tuple(
        (
            variant, str(len(one.reviewers)), _compared(one, variant, pairs), str(one.wins), str(one.losses),
            str(one.ties), "–" if one.rate is None else f"{one.rate.p:.3g}", _share(one.rate),
        )
        for variant, one in found.items()
    )  # fmt: skip
    lines = [
        f"{variant}: {line}"
        for variant, one in found.items()
        for line in (agreement_text(one).removeprefix("; "), _first_text(one.first), *side_lines(one))
        if line
    ]
    blocks: tuple[Block, ...] = (Table(heads=heads, rows=rows, numbers=range(1, 8)), Lines(tuple(lines)))
    return Section("What people preferred", (*blocks, Note(STATED, kind="quiet")))


def results_body(found: dict[str, Summary], pairs: Sequence[UnitKey] = ()) -> list[dict[str, Any]]:
    """Return the results as JSON values."""
    return [
        {"variant": variant, "to_compare": sum(unit.arm == variant for unit in pairs), **asdict(one),
         "leans": one.leans}
        for variant, one in found.items()
    ]  # fmt: skip


def _compared(one: Summary, variant: str, pairs: Sequence[UnitKey]) -> str:
    cases = {(unit.evalset, unit.case_id) for unit in pairs if unit.arm == variant}
    return f"{one.wins + one.losses + one.ties}" + (f" of {len(cases)}" if pairs else "")


def _share(share: Share | None) -> str:
    return "–" if share is None else f"{share.share:.1%} [{share.lower:.1%}, {share.upper:.1%}]"


def _first_text(first: Share | None) -> str:
    return "" if first is None else f"the answer shown first was preferred in {_share(first)} (p = {first.p:.2g})"
