"""People's labels and comments on a variant's changed answers: append-only side evidence. No score, seal or verdict
rests on it.

A label belongs to one answer of one run, and is found again by its case's hash, so the next run of the case shows it.
The newest label of an answer counts. A comment is a row beside the labels whose note is the text; each counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from sqlalchemy import Connection, and_, or_, select

from qualgate.errors import UsageError
from qualgate.records import UnitKey
from qualgate.records.identity import sha256_text
from qualgate.store import people, plain
from qualgate.store.database import Store
from qualgate.store.decisions import is_readable
from qualgate.store.evidence import no_such_run
from qualgate.store.postgresql import lasting
from qualgate.store.prunings import refuse_pruned
from qualgate.store.sealed import insert_rows, record_of, rows_of, sealed_row
from qualgate.store.tables import arms, runs, sealed, units
from qualgate.text.numbers import counted

Word = Literal["regression", "acceptable", "wrong reference", "flaky"]
WORDS: tuple[Word, ...] = get_args(Word)
NO_LABEL = "none"  # removes the label before it
COMMENT = "comment"  # in place of a label: it leaves the label as it is
COMMENTS_SHOWN = 20  # of a case, the newest
LONGEST_NAME, LONGEST_NOTE = 200, 4000  # characters
BATCH = 1000  # cases of one query
CaseOfRun = tuple[str, str, int]  # evalset, case id, repeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A person's label or comment on one answer of a variant."""

    run_id: str
    variant: str
    evalset: str
    case_id: str
    repeat: int
    label: Literal["regression", "acceptable", "wrong reference", "flaky", "none", "comment"]
    note: str
    name: str  # of the person
    signed_in: str = ""  # as of a decision
    created_at: str  # UTC text
    case_hash: str
    answer_sha256: str  # of the answer's text

    @property
    def unit(self) -> UnitKey:
        """The labelled answer within its run."""
        return UnitKey(self.variant, self.evalset, self.case_id, self.repeat)

    @property
    def case(self) -> CaseOfRun:
        """Set, case, and which of several answers."""
        return self.evalset, self.case_id, self.repeat

    @property
    def text(self) -> str:
        """For people: "labelled flaky by Ada on 2026-12-01"."""
        done = "commented" if self.label == COMMENT else f"labelled {self.label}"
        return f"{done} by {self.name} on {self.created_at[:10]}"

    @property
    def ending(self) -> str:
        """The note after a colon; "" without one."""
        return f": {self.note}" if self.note else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseLabels:
    """The labels to show beside one answer."""

    own: Label | None = None  # of this very answer
    other: Label | None = None  # the newest that another run has of the same case
    comments: tuple[str, ...] = ()  # lines for people, on the case in any run, oldest first

    def lines(self, answer: str) -> list[str]:
        """Return a line for people for each label and comment. answer: the variant's text in the run that is shown."""
        lines = [self.own.text + self.own.ending] if self.own is not None else []
        if (other := self.other) is not None:
            change = "" if other.answer_sha256 == sha256_text(answer) else ", about another answer"
            lines.append(f"{other.text} (run {other.run_id}, {other.variant}{change}){other.ending}")
        return [*lines, *self.comments]


UNLABELLED = CaseLabels()


def set_label(
    store: Store, run_id: str, unit: UnitKey, label: str, *, name: str, note: str = "", signed_in: str = ""
) -> Label:
    """Label a variant's answer, remove its label with `NO_LABEL`, or comment with `COMMENT` and the text as the note;
    return what is recorded. The same by the same person, twice in a row, is recorded once.

    Raises:
        UsageError: Nothing is recorded, because the label is unknown, a name or comment is empty or invisible, a text
            is too long, there is no such answer, or no label to remove.
        EvidencePruned: The answer is gone; labels can only be removed.
        IntegrityError: An earlier label of the answer is not what was recorded.
    """
    name, note = plain.storable(name).strip(), plain.storable(note).strip()
    if label not in (*WORDS, NO_LABEL, COMMENT):
        raise UsageError(
            f"{label!r:.40} is no label. Give one of: {', '.join(WORDS)}; {NO_LABEL} to remove it; or {COMMENT}."
        )
    if label == COMMENT and not is_readable(note):
        raise UsageError("a comment needs a text; write it as the note.")
    if not is_readable(name):
        what = COMMENT if label == COMMENT else "label"
        raise UsageError(f"a {what} needs the name of the person who sets it; fill it in.")
    if len(name) > LONGEST_NAME or len(note) > LONGEST_NOTE:
        raise UsageError(f"a name has at most {LONGEST_NAME} characters, and a note {LONGEST_NOTE:,}. Shorten them.")
    said = {"label": label, "name": name, "note": note if is_readable(note) else "", "signed_in": signed_in}
    return _add(store, run_id, unit, said)


@lasting
def _add(store: Store, run_id: str, unit: UnitKey, values: dict[str, Any]) -> Label:
    """Write the label unless it repeats the newest one of the answer. values: what the person gave."""
    with store.write(run_id) as connection:
        people.check_may(connection, values["signed_in"], people.LABELS, "label")
        stored = connection.execute(rows_of("label", run_id=run_id, part=_part(unit))).all()
        rows = [record_of(Label, row) for row in stored]
        alike = [row for row in rows if (row.label == COMMENT) == (values["label"] == COMMENT)]
        newest = alike[-1] if alike else None
        if newest is not None and all(getattr(newest, key) == value for key, value in values.items()):
            return newest
        if values["label"] != NO_LABEL:
            label = _about(connection, run_id, unit, values)
        elif newest is not None and newest.label != NO_LABEL:
            label = replace(newest, **values, created_at=plain.now())
        else:
            raise UsageError(f"{unit.question} has no label of {unit.arm!r} in run {run_id}; there is none to remove.")
        row = sealed_row("label", label, run_id=run_id, name=label.case_hash, part=_part(unit), at=label.created_at)
        insert_rows(connection, [row])
    return label


def _about(connection: Connection, run_id: str, unit: UnitKey, values: dict[str, Any]) -> Label:
    """Return a new label of a stored answer. Raises as `set_label` does."""
    refuse_pruned(connection, run_id)
    answer = connection.execute(
        select(units.c.case_hash, units.c.text)
        .join(arms, and_(arms.c.run_id == units.c.run_id, arms.c.name == units.c.arm))
        .where(units.c.run_id == run_id, units.c.arm == unit.arm, units.c.evalset == unit.evalset,
               units.c.case_id == unit.case_id, units.c.repeat == unit.repeat,
               units.c.status == "done", arms.c.position > 0)
    ).one_or_none()  # fmt: skip
    if answer is None:
        raise UsageError(f"run {run_id} has no answer of a variant {unit.arm!r:.80} to {unit.question:.200}.")
    return Label(
        run_id=run_id,
        variant=unit.arm,
        evalset=unit.evalset,
        case_id=unit.case_id,
        repeat=unit.repeat,
        created_at=plain.now(),
        case_hash=answer.case_hash,
        answer_sha256=sha256_text(answer.text),
        **values,
    )


def labels(
    store: Store, run_id: str | None = None, variant: str | None = None, *, comments: bool = False
) -> tuple[Label, ...]:
    """Return the labels that count, and on request the comments, in the order in which they were set; of one run, of
    one variant. Raises UsageError for an unknown run, IntegrityError for a changed row."""
    with store.read() as connection:
        if run_id is not None and connection.scalar(select(runs.c.run_id).where(runs.c.run_id == run_id)) is None:
            raise no_such_run(connection, run_id)
        rows = connection.execute(rows_of("label", **({} if run_id is None else {"run_id": run_id}))).all()
    found = _counting(rows)
    return tuple(row for row in found if variant in (None, row.variant) and (comments or row.label != COMMENT))


def labels_of_cases(store: Store, run_id: str, variant: str, shown: Sequence[CaseOfRun]) -> dict[CaseOfRun, CaseLabels]:
    """Return the labels of these cases of a run, by case; cases without any are left out. Raises IntegrityError for a
    changed label."""
    statement = select(units.c.evalset, units.c.case_id, units.c.repeat, sealed)
    statement = statement.join_from(units, sealed, sealed.c.name == units.c.case_hash)
    statement = statement.where(units.c.run_id == run_id, units.c.arm == variant, sealed.c.kind == "label")
    by_case: dict[CaseOfRun, list[Any]] = {case: [] for case in shown}
    with store.read() as connection:
        for start in range(0, len(shown), BATCH):
            batch = set(shown[start : start + BATCH])
            # By two lists SQLite finds units in their index; by a list of pairs it reads all units of the arm.
            sets, ids = {case[0] for case in batch}, {case[1] for case in batch}
            chosen = statement.where(units.c.evalset.in_(sets), units.c.case_id.in_(ids))
            for row in connection.execute(chosen.order_by(sealed.c.sealed_id)):
                if (case := (row.evalset, row.case_id, row.repeat)) in batch:
                    by_case[case].append(row)
    return {case: _case_labels(run_id, UnitKey(variant, *case), rows) for case, rows in by_case.items() if rows}


def _case_labels(run_id: str, unit: UnitKey, rows: Sequence[Any]) -> CaseLabels:
    """Return what is shown beside an answer. rows: of every label of its case, in the order of writing."""
    found = _counting(rows)
    counting = [label for label in found if label.label != COMMENT]
    own = [label for label in counting if (label.run_id, label.unit) == (run_id, unit)]
    other = [label for label in counting if label.run_id != run_id]
    comments = [_comment_line(row, run_id, unit) for row in found if row.label == COMMENT]
    if len(comments) > COMMENTS_SHOWN:
        earlier = f"{counted(len(comments) - COMMENTS_SHOWN, 'earlier comment')}: `qualgate labels` lists all"
        comments = [earlier, *comments[-COMMENTS_SHOWN:]]
    return CaseLabels(own=own[-1] if own else None, other=other[-1] if other else None, comments=tuple(comments))


def _comment_line(comment: Label, run_id: str, unit: UnitKey) -> str:
    own = (comment.run_id, comment.unit) == (run_id, unit)
    return comment.text + ("" if own else f" (run {comment.run_id}, {comment.variant})") + comment.ending


def _counting(rows: Iterable[Any]) -> list[Label]:
    """Return the newest label of each answer, without removed ones, and each comment. rows: in the order of writing."""
    newest: dict[tuple[str, UnitKey, int], Label] = {}
    for row in rows:
        label = record_of(Label, row)
        key = (label.run_id, label.unit, row.sealed_id if label.label == COMMENT else 0)
        newest.pop(key, None)
        newest[key] = label
    return [label for label in newest.values() if label.label != NO_LABEL]


def find_answer(
    store: Store, run_id: str, variant: str, case: str, evalset: str | None = None, repeat: int = 0
) -> UnitKey:
    """Return the answer that a person names. case: an id, or EVALSET/ID as the lists of flips show it. Raises
    UsageError unless exactly one answer matches."""
    named = or_(units.c.case_id == case, units.c.evalset + "/" + units.c.case_id == case)
    of_run = select(units.c.evalset, units.c.case_id).where(
        units.c.run_id == run_id, units.c.arm == variant, units.c.repeat == repeat, named,
        *(() if evalset is None else (units.c.evalset == evalset,)),
    )  # fmt: skip
    with store.read() as connection:
        if connection.scalar(select(runs.c.run_id).where(runs.c.run_id == run_id)) is None:
            raise no_such_run(connection, run_id)
        names = connection.scalars(
            select(arms.c.name).where(arms.c.run_id == run_id, arms.c.position > 0).order_by(arms.c.position)
        ).all()
        if variant not in names:
            raise UsageError(f"run {run_id} has no variant {variant!r:.80}. It has: {', '.join(names)}.")
        matches = connection.execute(of_run.order_by(units.c.evalset)).all()
    if not matches:
        place = f"case {case!r:.200}" + (f" in evalset {evalset!r:.80}" if evalset is not None else "")
        number = f", answer {repeat}" if repeat else ""
        raise UsageError(f"run {run_id} has no {place}{number} for {variant}. `qualgate flips` lists changed cases.")
    if len(matches) > 1:
        sets = ", ".join(row.evalset for row in matches)
        raise UsageError(f"case {case!r:.200} is in several evalsets: {sets}. Give --evalset.")
    return UnitKey(variant, matches[0].evalset, matches[0].case_id, repeat)


def _part(unit: UnitKey) -> str:
    """Return the labelled answer, within its run."""
    return f"{unit.arm}: {unit.evalset}/{unit.case_id}#{unit.repeat}"
