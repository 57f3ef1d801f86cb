"""Rows of one unit and its scores, and the digests that seal them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row

from qualgate.errors import IntegrityError
from qualgate.records import Completion, Drift, Score, UnitKey, Verdict
from qualgate.records.answers import calls_text
from qualgate.records.identity import case_hash, content_hash
from qualgate.store import plain, seal
from qualgate.store.tables import draft_steps, scores, units
from qualgate.store.typed import read

AnyRow = Row[*tuple[Any, ...]]
KEY = (units.c.arm, units.c.evalset, units.c.case_id, units.c.repeat)
# In the order of their tables, which the digests keep.
SCORE = tuple(column for column in scores.c if column.name not in ("unit_id", "scoring"))
STEP = tuple(column for column in draft_steps.c if column.name not in ("unit_id", "step"))
MEASURED = (
    "prompt_tokens",
    "answer_tokens",
    "ttft",
    "e2e",
    "baseline_proposed",
    "baseline_accepted",
    "top1_agreement",
    "first_divergence",
    "length_ratio",
    "kernel",
    "kl_eta",
    "job",
    "draft_proposed",
    "draft_accepted",
    "began",
    "constraint_masked",
    "max_gap",
    "thought_tokens",
    "calls",
    "reply",
)
ARRAYS = ("logprobs", "margins", "kl", "kl_upper")
EXPECTED = ("arm", "evalset", "case_id", "repeat", "case_hash", "cluster")
EVALSET = ("name", "version", "sha256", "metrics_json", "lenient_json", "normalizers_json")  # without the description
STATUSES = ("running", "complete", "incomplete")  # of a run
WRITTEN = timedelta(hours=1)  # most time between a run's id and its row, on a slow disk
RUN = ("run_id", "plan_key", "gate_file", "gate_name", "made_by", "policy_json", "expected_sha256")
ARM = ("run_id", "name", "position", "spec_json", "planned_json", "observed_json", "footprint_json")


def unit_name(key: UnitKey) -> str:
    """Return a unit's name for messages: arm, set, case and repeat."""
    repeat = f" repeat {key.repeat}" if key.repeat else ""
    return f"{key.arm}: {key.evalset}/{key.case_id}{repeat}"


def run_digest(row: Any) -> str:
    """Return the seal of a run's row: sha256 of the RUN columns."""
    return content_hash({name: row[name] for name in RUN})


def arm_digest(row: Any) -> str:
    """Return the seal of an arm's row: sha256 of the ARM columns; those not recorded yet count as NULL."""
    return content_hash({name: row.get(name) for name in ARM})


def check_run(row: AnyRow) -> None:
    """Raise IntegrityError if a run's row was changed. row: all columns."""
    if row.sha256 != run_digest(row._mapping):
        raise IntegrityError(_changed(f"the gate file or policy of run {row.run_id}"))
    if row.status not in STATUSES or not _times_fit_id(row):
        raise IntegrityError(_changed(f"the status or the times of run {row.run_id}"))


def _times_fit_id(row: AnyRow) -> bool:
    """Whether the run's times fit its id, which is sealed and begins with the run's second."""
    try:
        began = datetime.strptime(f"{row.run_id[:15]}+0000", "%Y%m%d-%H%M%S%z")
        is_near = abs(datetime.fromisoformat(row.created_at) - began) < WRITTEN
        return is_near and (row.finished_at is None or _is_time(row.finished_at))
    except (ValueError, TypeError):
        return False


def check_arm(row: AnyRow) -> None:
    """Raise IntegrityError if an arm's row was changed. row: all columns."""
    if row.sha256 != arm_digest(row._mapping):
        raise IntegrityError(_changed(f"the identity or sizes of arm {row.name!r} in run {row.run_id}"))


def check_case(row: AnyRow) -> dict[str, Any]:
    """Return the case's body. row: all columns. Raises IntegrityError if it was changed."""
    try:
        body = read(dict[str, Any], row.body_json)
        if row.case_hash == case_hash(body):
            return body
    except (ValueError, IntegrityError, RecursionError):  # no JSON, no object, NaN in it
        pass
    raise IntegrityError(_changed(f"case {row.case_hash[:12]}"))


def verdict_digest(run_id: str, policy_json: str, body_json: str) -> str:
    """Return the digest that seals and names a verdict."""
    return content_hash([run_id, policy_json, body_json])


def check_verdict(row: Any) -> Verdict:
    """Return the verdict. row: all columns. Raises IntegrityError if it was changed."""
    sealed = row.sha256 == verdict_digest(row.run_id, row.policy_json, row.body_json)
    verdict = plain.verdict(row.body_json) if sealed else None
    if verdict is None or (verdict.word, verdict.variant) != (row.word, row.variant):
        raise IntegrityError(_changed(f"the verdict on {row.variant!r} of run {row.run_id}"))
    if row.policy_sha256 != content_hash(row.policy_json) or not _is_time(row.created_at):
        raise IntegrityError(_changed(f"the policy or the time of the verdict on {row.variant!r} of run {row.run_id}"))
    return verdict


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except (ValueError, TypeError):
        return False


def _changed(what: str) -> str:
    return f"{what} is not what was recorded. Restore the store from a backup, or run again in another store."


def expected_digest(sets: Iterable[Sequence[Any]], expected: Iterable[Sequence[Any]]) -> str:
    """Return the seal of the closed list of evalsets and units, written before generation."""
    ordered = sorted(map(tuple, expected), key=lambda unit: unit[:4])
    return content_hash([sorted(map(list, sets)), [list(unit) for unit in ordered]])


def unit_row(
    completion: Completion,
    drift: Drift | None,
    scored: Sequence[Sequence[Any]],
    run_id: str,
    job: int | None,
    steps: str | None,
) -> dict[str, Any]:
    """Return the columns that a finished unit adds to its planned row. scored: its scores, in the order of
    `score_rows`. run_id: sealed too, so that no row can be moved to another run. job: its batch. steps: the digest of
    its draft steps, see `draft_steps`."""
    row: dict[str, Any] = {
        "text": plain.storable(completion.text),
        "finish_reason": completion.finish_reason,
        "prompt_tokens": completion.prompt_tokens,
        "answer_tokens": completion.tokens,
        "ttft": float(completion.ttft),
        "e2e": float(completion.e2e),
        "baseline_proposed": completion.baseline_proposed,
        "baseline_accepted": completion.baseline_accepted,
        "kernel": completion.kernel,
        "top1_agreement": None if drift is None else float(drift.top1_agreement),
        "first_divergence": None if drift is None else drift.first_divergence,
        "length_ratio": None if drift is None or drift.length_ratio is None else float(drift.length_ratio),
        "token_ids": seal.pack_ints(completion.token_ids),
        "logprobs": seal.pack_floats(completion.logprobs),
        "margins": seal.pack_floats(completion.margins),
        "kl": b"" if drift is None else seal.pack_kl(drift.kl, drift.top1_differs),
        "kl_eta": float(drift.kl_eta) if drift is not None and drift.kl_eta else None,
        "kl_upper": None if drift is None or drift.kl_upper is None else seal.pack_floats(drift.kl_upper),
        "job": job,
        "draft_proposed": completion.draft_proposed,
        "draft_accepted": completion.draft_accepted,
        "began": completion.began,
        "constraint_masked": None if completion.masked is None else float(completion.masked),
        "max_gap": None if completion.max_gap is None else float(completion.max_gap),
        "thought_tokens": completion.thought,
        "calls": None if completion.calls is None else plain.storable(json.dumps(completion.calls)),
        "reply": completion.reply or None,
    }
    key = completion.key
    head = (key.arm, key.evalset, key.case_id, key.repeat, completion.case_hash, completion.finish_reason)
    text = row["text"].encode("utf-8")
    row["answer_sha256"] = seal.digest((*head, *scored), text, row["token_ids"])
    measured = tuple(row[name] for name in MEASURED)
    row["sha256"] = unit_digest(run_id, (*head, *measured), steps, scored, text, row["token_ids"], row)
    return row


def unit_digest(
    run_id: str,
    plain_columns: Sequence[Any],
    steps: str | None,
    scored: Sequence[Sequence[Any]],
    text: bytes,
    token_ids: bytes,
    arrays: Mapping[str, bytes | None],
) -> str:
    """Return the seal of a unit's row. plain_columns: key, case hash, finish reason and the MEASURED columns; arrays:
    the ARRAYS columns, where NULL differs from empty."""
    parts = [arrays[name] for name in ARRAYS]
    present = [part is not None for part in parts]
    return seal.digest(
        (run_id, *plain_columns, steps, present, *scored), text, token_ids, *(part or b"" for part in parts)
    )


def score_rows(key: UnitKey, given: Iterable[Score]) -> list[tuple[Any, ...]]:
    """Return rows of the SCORE columns, ordered by metric."""
    rows = []
    for score in sorted(given, key=lambda score: score.metric):
        value = None if score.value is None else float(score.value)
        if value is not None and value - value != 0:  # NaN or infinite; a database may store NaN as NULL, "no score"
            raise IntegrityError(f"{unit_name(key)}: {score.metric} is {value}, not a number; nothing was stored.")
        extracted = None if score.extracted is None else plain.storable(score.extracted)
        rows.append(
            (
                score.metric,
                value,
                score.verdict,
                score.error_type,
                extracted,
                plain.storable(score.reason),
                score.scorer,
            )
        )
    return rows


def stored_calls(text: str | None) -> str:
    """Return a unit's tool calls as `calls_text` writes them. text: its column. IntegrityError for a changed one."""
    return calls_text(read(tuple[tuple[str, str], ...], text)) if text else ""
