"""Read the pages' data from the store, and write decisions to it. Imports neither the engine nor torch.

The store is opened for each read (some milliseconds), so a moved, replaced or upgraded store is noticed at once. Only
reads that grow with the number of cases are cached; those of a large run are made in the background.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import streamlit as st
from qualgate_app import checks

from qualgate.records import UnitKey, Verdict
from qualgate.report.blocks import Section
from qualgate.report.nights import ShownNights, shown_nights
from qualgate.report.run_changes import RunChanges, run_changes
from qualgate.report.summary import Report
from qualgate.store import decisions, people, plain, prunings, queries
from qualgate.store import labels as stored_labels
from qualgate.store import loads as stored_loads
from qualgate.store import preferences as stored_preferences
from qualgate.store.claims import Shown
from qualgate.store.database import Store, open_store
from qualgate.store.decisions import Decision, Said, Seen
from qualgate.store.labels import CaseLabels, CaseOfRun, Label
from qualgate.store.loads import StoredLoad
from qualgate.store.people import Role
from qualgate.store.preferences import Blind
from qualgate.store.queries.night_lines import NightLine, WaitingDigest, night_lines, waiting_digests

if TYPE_CHECKING:
    from qualgate.report import blind

FRESH = 30  # seconds that a read is cached, since a run may be under way
KEPT = 64  # reads that are kept for all sessions
KEPT_LISTS = 8  # of them, lists of cases: 0.5 KB a case


def url() -> str:
    """Return the store's URL as set by `qualgate dashboard`."""
    return os.environ.get(checks.STORE, "sqlite:///qualgate.db")


def _open() -> Store:
    return open_store(url(), create=False)


def queue(
    size: int, page: int, show: Shown = "every verdict", who: str = ""
) -> tuple[tuple[queries.VariantLine, ...], int, int]:
    """Return one page of the queue (at most the last), its number, and the total number of lines; of all verdicts, of
    those that `who` holds, or of those that no other holds."""
    with _open() as store:
        total = queries.count_queue(store, show, who)
        page = _within(page, total, size)
        return queries.queue(store, size, size * page, show, who), page, total


def next_in_queue(run_id: str, variant: str, who: str) -> queries.VariantLine | None:
    """Return the variant that waits next in the queue after this one and that nobody but `who` holds; None if no other
    waits."""
    with _open() as store:
        return queries.next_in_queue(store, run_id, variant, who)


def run_before(run_id: str) -> str | None:
    """Return the last run of the same gate file before a run; None if there is none."""
    with _open() as store:
        return queries.run_before(store, run_id)


def changes(before: str, after: str) -> RunChanges | None:
    """Compare two runs; None while their evidence is being checked. IntegrityError for damage, UsageError for an
    unknown or pruned run."""
    shown = [run_summary(run_id) for run_id in (before, after)]
    if any(one.checking for one in shown):
        return None
    return run_changes(url(), before, after, checked=all(one.seal is not None for one in shown))


def list_runs(size: int, page: int) -> tuple[tuple[queries.RunLine, ...], int, int]:
    """Return one page of runs (at most the last), its number, and the total number of runs."""
    with _open() as store:
        written = store.written
    return _list_runs(url(), written, size, page)


@st.cache_resource(max_entries=KEPT, show_spinner=False)
def _list_runs(url: str, written: object, size: int, page: int) -> tuple[tuple[queries.RunLine, ...], int, int]:
    with open_store(url, create=False) as store:
        total = queries.count_runs(store)
        page = _within(page, total, size)
        return queries.list_runs(store, size, size * page), page, total


def nights() -> tuple[tuple[NightLine, ...], tuple[WaitingDigest, ...]]:
    """Return each gate file and model with its nights, and the undelivered digests."""
    with _open() as store:
        return night_lines(store), waiting_digests(store)


def loads(size: int, page: int, gate_name: str | None = None) -> tuple[tuple[StoredLoad, ...], int, int]:
    """Return one page of loads (at most the last), its number, and the total; of all gate files, or of one name."""
    with _open() as store:
        total = stored_loads.count(store, gate_name)
        page = _within(page, total, size)
        return stored_loads.newest(store, size, size * page, gate_name), page, total


def load(load_id: str) -> StoredLoad:
    """Return one load. UsageError for an unknown one."""
    with _open() as store:
        return stored_loads.one_load(store, load_id)


def count_loads(gate_name: str) -> int:
    """Count the loads of gate files with this name."""
    with _open() as store:
        return stored_loads.count(store, gate_name)


def trend(run_id: str, variant: str | None = None) -> ShownNights:
    """Return the trend of the nights up to a run; of all arms, or of one."""
    return _trend(url(), run_id, variant)


@st.cache_data(ttl=FRESH, show_spinner=False)
def _trend(url: str, run_id: str, variant: str | None) -> ShownNights:
    with open_store(url, create=False) as store:
        return shown_nights(store, run_id, variant)


def _within(page: int, total: int, size: int) -> int:
    """Cap a page number: lines may leave a list while someone reads its last page."""
    return min(page, max(0, (total - 1) // size))


def latest_run() -> str:
    """Return the newest run's id. UsageError if the store has no run."""
    with _open() as store:
        return queries.latest_run(store)


def count_superseded() -> int:
    """Count the variants that no longer wait because a newer run of their gate file does."""
    with _open() as store:
        return queries.count_superseded(store)


@dataclass(frozen=True, slots=True)
class ShownRun:
    """A run as a page shows it: if its evidence is damaged or pruned, every verdict is invalid."""

    run: queries.RunSummary
    checking: bool = False  # its evidence is being checked for the first time, so nothing is decided yet
    seal: str | None = None  # of the evidence, once checked and found whole
    checked: str = ""  # UTC text: when it was; "": it was not
    holds: bool = True  # nobody wrote to the store since


def run_summary(run_id: str) -> ShownRun:
    """Return a run with its arms and newest verdicts, and what came of the last check of its evidence. A check is begun
    if there is none, if somebody wrote to the store since, and from time to time."""
    with _open() as store:
        written = store.written
    run = _run_summary(url(), run_id, written)
    if run.pruned:
        return ShownRun(queries.as_pruned(run))
    if not run.verdicts:
        return ShownRun(run)
    opened = st.session_state.setdefault(f"opened {run_id}", plain.now())
    check, holds = checks.look(url(), run_id, written, opened, _size(run))
    if check is None:
        return ShownRun(run, checking=True)
    if check.faults:
        return ShownRun(queries.as_damaged(run, check.faults), checked=check.at, holds=holds)
    return ShownRun(run, seal=check.seal, checked=check.at, holds=holds)


def _size(run: queries.RunSummary) -> int:
    return sum(arm.expected for arm in run.arms)


@st.cache_resource(max_entries=KEPT, show_spinner=False)
def _run_summary(url: str, run_id: str, written: object) -> queries.RunSummary:
    with open_store(url, create=False) as store:
        return queries.run_summary(store, run_id)


Version = tuple[str | None, int]  # of what is read of a run's answers: when it ended, and its later scorings


def _version(run_id: str) -> Version:
    with _open() as store:
        written = store.written
    run = _run_summary(url(), run_id, written)
    return run.finished_at, len(run.scorings)


def is_read(run: queries.RunSummary, verdict: Verdict) -> bool:
    """Whether what a page shows of all answers is at hand. A large run's is read in the background meanwhile."""
    if verdict.word == "invalid" or _size(run) <= checks.LARGE:
        return True
    deciding = queries.judged_by(verdict, {item.name for item in run.evalsets})
    return _reading(url(), run.run_id, verdict.variant, _version(run.run_id), deciding).done()


@st.cache_resource(max_entries=KEPT, show_spinner=False)
def _reading(
    url: str, run_id: str, variant: str, version: Version, deciding: tuple[queries.Judged, ...]
) -> Future[None]:
    def read() -> None:
        counts = _measured(url, run_id, variant, version)["flip_counts"]
        _flipped_cases(url, run_id, variant, version, deciding)
        for direction in (None, "lost"):
            _flipped_answers(url, run_id, variant, direction, version)
        show: queries.Show | None = "lost" if any(count.lost for count in counts) else None  # as the page opens
        _case_keys(url, run_id, variant, version, queries.CaseFilter(show=show), "KL")

    return _READS.submit(read)


def verdict_before(run_id: str, variant: str) -> queries.VerdictBefore | None:
    """Return the verdict in the last run of the same gate file; None if there is none."""
    with _open() as store:
        return queries.verdict_before(store, run_id, variant)


def report(run: queries.RunSummary, verdict: Verdict) -> Report:
    """Return the report of one variant, without the texts of its answers. Damaged evidence is not read."""
    if verdict.word == "invalid":
        return Report(run=run, flips={})
    measured = _measured(url(), run.run_id, verdict.variant, _version(run.run_id))
    of_variant: dict[str, Any] = {name: {verdict.variant: value} for name, value in measured.items()}
    return Report(run=run, flips={}, **of_variant)


def flipped_cases(run_id: str, variant: str, deciding: tuple[queries.Judged, ...] = ()) -> dict[queries.Direction, int]:
    """Count the cases that changed in each direction, each once, by the scores named in `deciding`; (): all."""
    return _flipped_cases(url(), run_id, variant, _version(run_id), deciding)


def case_keys(
    run_id: str, variant: str, case_filter: queries.CaseFilter, sort: queries.Sort
) -> tuple[queries.CaseKey, ...]:
    """Return the cases that match a filter, sorted."""
    return _case_keys(url(), run_id, variant, _version(run_id), case_filter, sort)


def compared(run_id: str, keys: Sequence[queries.CaseKey]) -> tuple[queries.Compared, ...]:
    """Return these cases with both answers."""
    with _open() as store:
        return queries.compared(store, run_id, keys)


def case_detail(run_id: str, variant: str, key: queries.CaseKey) -> queries.CaseDetail:
    """Return one case with all measurements of both answers."""
    with _open() as store:
        return queries.case_detail(store, run_id, variant, key.evalset, key.case_id, key.repeat)


def flipped_answers(run_id: str, variant: str, direction: queries.Direction | None = None) -> frozenset[CaseOfRun]:
    """Return the answers with a score that changed between right and wrong, in one direction or either."""
    return _flipped_answers(url(), run_id, variant, direction, _version(run_id))


def labels(run_id: str, variant: str) -> dict[CaseOfRun, Label]:
    """Return the labels of a variant's answers, by case."""
    with _open() as store:
        found = stored_labels.labels(store, run_id, variant)
    return {label.case: label for label in found}


def labels_of_cases(run_id: str, variant: str, keys: Sequence[queries.CaseKey]) -> dict[CaseOfRun, CaseLabels]:
    """Return the labels of these cases, other runs' included; cases without any are left out."""
    with _open() as store:
        return stored_labels.labels_of_cases(store, run_id, variant, [key.case for key in keys])


def set_label(run_id: str, unit: UnitKey, label: str, name: str, note: str, signed_in: str = "") -> Label:
    """Record a person's label on an answer."""
    with _open() as store:
        return stored_labels.set_label(store, run_id, unit, label, name=name, note=note, signed_in=signed_in)


def pairs_to_compare(run_id: str) -> tuple[Blind, ...]:
    """Return the pairs of a run that people compare blind."""
    return _pairs_to_compare(url(), run_id)


@st.cache_data(ttl=FRESH, max_entries=16, show_spinner=False)
def _pairs_to_compare(url: str, run_id: str) -> tuple[Blind, ...]:
    from qualgate.report import blind

    with open_store(url, create=False) as store:
        return blind.pairs_to_compare(store, run_id)


def shown_blind(run_id: str, pair: Blind, reviewer: str) -> blind.Shown:
    """Return a pair as this reviewer sees it."""
    from qualgate.report import blind

    with _open() as store:
        return blind.shown(store, run_id, pair, reviewer)


def preferred_by(run_id: str, reviewer: str) -> tuple[tuple[UnitKey, ...], bool]:
    """Return the pairs that a reviewer compared, in that order, and whether they asked for the results."""
    with _open() as store:
        given = stored_preferences.preferences(store, run_id, reviewer)
        with store.read() as connection:
            return tuple(one.unit for one in given), stored_preferences.closed(connection, run_id, reviewer)


def prefer(run_id: str, unit: UnitKey, word: str, name: str, signed_in: str) -> None:
    """Record a reviewer's preference."""
    with _open() as store:
        stored_preferences.prefer(store, run_id, unit, word, name=name, signed_in=signed_in)


def close_comparing(run_id: str, name: str, signed_in: str) -> None:
    """Record that a reviewer asked for the results."""
    with _open() as store:
        stored_preferences.close(store, run_id, name=name, signed_in=signed_in)


def preferred(run_id: str) -> Section:
    """Return what people preferred in a run."""
    from qualgate.report import blind

    units = [pair.unit for pair in pairs_to_compare(run_id)]
    with _open() as store:
        given = stored_preferences.preferences(store, run_id)
    return blind.results_section(blind.summaries(given, sorted({unit.arm for unit in units})), units)


def list_decisions(limit: int, offset: int) -> tuple[Decision, ...]:
    """Return decisions, the newest first. IntegrityError if their chain is broken."""
    with _open() as store:
        return queries.list_decisions(store, limit, offset)


def verdict_words(decision_list: Sequence[Decision]) -> dict[str, str]:
    """Return the gate's verdict word at the time of each decision, by the verdict's sha256."""
    with _open() as store:
        return queries.verdict_words(store, sorted({decision.verdict_sha256 for decision in decision_list}))


def pruned_runs(decision_list: Sequence[Decision]) -> dict[str, str]:
    """Return the runs of these decisions that were pruned since: run → "pruned on DATE"."""
    with _open() as store, store.read() as connection:
        pruned = prunings.pruned_runs(connection, {decision.run_id for decision in decision_list})
    return {run_id: str(pruning) for run_id, pruning in pruned.items()}


def role_of(identity: str) -> Role | None:
    """Return the role of a person; None if they have none."""
    with _open() as store, store.read() as connection:
        granted = people.grants(connection).get(identity)
    return None if granted is None or granted.role == "none" else granted.role


def has_people() -> bool:
    """Whether roles were given in the store, so that nobody decides without signing in."""
    with _open() as store, store.read() as connection:
        return people.has_people(connection)


def decide(run_id: str, variant: str, said: Said, seen: Seen) -> Decision:
    """Record a person's decision about the verdict they see."""
    with _open() as store:
        return decisions.append(store, run_id, variant, said, seen)


_READS = ThreadPoolExecutor(1)


@st.cache_resource(max_entries=KEPT, show_spinner=False)
def _measured(url: str, run_id: str, variant: str, version: Version) -> dict[str, Any]:
    """Return what was measured along a variant's answers, by the name of its field in a report."""
    with _open() as store:
        return {
            "flip_counts": queries.flip_counts(store, run_id, variant),
            "drift": queries.drift_by_position(store, run_id, variant),
            "trajectories": queries.trajectories(store, run_id, variant),
            "readings": queries.readings(store, run_id, variant),
        }


@st.cache_resource(max_entries=KEPT, show_spinner=False)
def _flipped_cases(
    url: str, run_id: str, variant: str, version: Version, deciding: tuple[queries.Judged, ...]
) -> dict[queries.Direction, int]:
    with _open() as store:
        return queries.count_flipped_cases(store, run_id, variant, deciding)


@st.cache_resource(max_entries=KEPT_LISTS, show_spinner=False)
def _case_keys(
    url: str, run_id: str, variant: str, version: Version, case_filter: queries.CaseFilter, sort: queries.Sort
) -> tuple[queries.CaseKey, ...]:
    with _open() as store:
        return queries.case_keys(store, run_id, variant, case_filter, sort)


@st.cache_resource(max_entries=KEPT, show_spinner=False)
def _flipped_answers(
    url: str, run_id: str, variant: str, direction: queries.Direction | None, version: Version
) -> frozenset[CaseOfRun]:
    with _open() as store:
        return queries.flipped_answers(store, run_id, variant, direction)
