"""A verdict from two files of score rows, whoever scored them: `gate --baseline-scores A --variant-scores B`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qualgate.errors import Exit, UsageError
from qualgate.numbers import counted

if TYPE_CHECKING:
    from qualgate.config import GateFile
    from qualgate.gate.peers.nel_policy import NelSaid
    from qualgate.intake.scores import Scores
    from qualgate.records import RunEvidence
    from qualgate.report.summary import Report

UNION = "the expected cases of {} are those of both files together: what neither holds is not missed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What a gate over score files found, as far as a command shows it."""

    report: Report
    evidence: RunEvidence
    exit: Exit
    nel: tuple[NelSaid, ...]  # where an nel policy decided


def judge_files(gate_file: Path, baseline: Path, variant: Path, nel_policy: Path | None = None) -> Judged:
    """Two score files judged by the gate file's rules: the exit code of a run with this evidence.

    The closed list of an evalset is the gate file's `expected`, else the set itself where it lies beside the gate
    file (then its case hashes must be the rows' as well, and each case has what a rule asks of the set), else the ids
    of both files together, which is said. nel_policy: decides in place of the rules.
    """
    from dataclasses import replace

    from qualgate import evalsets
    from qualgate.config import load_gate_file
    from qualgate.gate.verdict import overall_exit
    from qualgate.intake.scores import judge, read_score_rows, refuse_a_copy
    from qualgate.plan import set_refs
    from qualgate.report.source import source_of
    from qualgate.report.unstored import report_of
    from qualgate.run import with_nel_policy
    from qualgate.store.plain import now

    loaded = load_gate_file(gate_file, files=False)
    gate = with_nel_policy(replace(loaded, nel_policy=nel_policy) if nel_policy is not None else loaded)
    refuse_a_copy(baseline, variant)
    names = [evalsets.name_of(ref) for ref in set_refs(gate)]
    default = names[0] if len(names) == 1 else None
    sides = read_score_rows(baseline, default or ""), read_score_rows(variant, default or "")
    found = {row.evalset for side in sides for row in side.rows if row.evalset}
    if strange := sorted(found - set(names)):
        raise UsageError(f"rows of {strange[0]!r:.80}, an evalset that {gate_file} does not list: {', '.join(names)}")
    closed = _closed(gate, default, sides)
    stale = [
        f"{name} is in the gate file and neither score file has a row of it" for name in names if name not in found
    ]
    evidence, verdicts, policy, nel = judge(
        *sides,
        gate.policy,
        identity=gate.identity,
        stale=(*closed.stale, *stale),
        now=now(),
        evalset=default,
        expected=closed.expected,
        asked=closed.asked,
        labels=closed.labels,
    )
    if open_ := sorted(found - closed.expected.keys()):
        verdicts = tuple(replace(one, reasons=(*one.reasons, UNION.format(", ".join(open_)))) for one in verdicts)
    report = report_of(
        evidence,
        verdicts,
        policy,
        [str(baseline), str(variant)],
        description="scores from files",
        sides=sides,
        source=source_of(gate.path, gate.policy),
    )
    return Judged(report=report, evidence=evidence, exit=overall_exit(verdicts), nel=nel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """What is known of the cases without the score files. Of an evalset that does not lie there, nothing."""

    expected: dict[str, frozenset[str]]  # evalset → ids that must be there
    asked: dict[str, list[str]]  # evalset → its metrics that a rule asks for
    labels: dict[tuple[str, str], tuple[str, ...]]  # (evalset, case) → its own task and tags, whatever rows say
    stale: list[str]  # why rows are not of the cases that lie there now


def _closed(gate: GateFile, default: str | None, sides: tuple[Scores, ...]) -> Closed:
    from qualgate import evalsets
    from qualgate.plan import load_set, set_refs
    from qualgate.run import labels_of

    closed = Closed(expected=_listed(gate, default), asked={}, labels={}, stale=[])
    rows = {(row.evalset, row.id, row.case_hash) for side in sides for row in side.rows}
    for ref in set_refs(gate):
        if not isinstance(ref, str) or (evalsets.is_path(ref) and not (gate.path.parent / ref).exists()):
            continue
        item = load_set(ref, gate.path.parent)
        hashes = {case.id: case.hash for case in item.cases}
        if gate.expected is None:
            closed.expected[item.name] = frozenset(hashes)
        rules = [rule for rule in gate.policy.rules if rule.evalset in (None, item.name)]
        closed.asked[item.name] = [rule.metric for rule in rules if rule.metric in item.metrics]
        if gate.policy.nel:
            closed.asked[item.name] = list(item.metrics[:1])  # nel's reward, whichever metric a file has first
        closed.labels.update(labels_of([item]))
        other = {id for at, id, said in rows if at == item.name and said and id in hashes and said != hashes[id]}
        if other and gate.identity == "hash":
            closed.stale.append(
                f"{item.name}: {counted(len(other), 'case was scored', 'cases were scored')} in another version than "
                "the one that lies there"
            )
    return closed


def _listed(gate: GateFile, default: str | None) -> dict[str, frozenset[str]]:
    """Evalset → ids of the gate file's `expected`; nothing where it names none."""
    from qualgate.intake.jsonl import read_objects

    ids: dict[str, set[str]] = {}
    for line, body in read_objects(gate.expected) if gate.expected is not None else ():
        name, case = body.get("evalset", default), body.get("id")
        if not isinstance(name, str) or not isinstance(case, str) or not case:
            raise UsageError(f"{gate.expected}:{line}: needs an `id`, and an `evalset` where the gate file has several")
        ids.setdefault(name, set()).add(case)
    return {name: frozenset(found) for name, found in ids.items()}
