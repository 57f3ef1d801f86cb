"""A verdict from files of score rows, whoever scored them: `gate --baseline-scores A --variant-scores B`, or four arms
with `--arm NAME=FILE` for each of the three that the gate file names."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from qualgate.errors import Exit, UsageError
from qualgate.formatting import counted

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


def judge_files(gate_file: Path, baseline: Path, variants: dict[str, Path], nel_policy: Path | None = None) -> Judged:
    """Score files judged by the gate file's rules: the exit code of a run with this evidence. variants: one by any
    name, or the three arms that the gate file names, and then it is four arms that are judged.

    The closed list of an evalset is the gate file's `expected`, else the set itself where it lies beside the gate
    file (then its case hashes must be the rows' as well, each case has what a rule asks of the set, and the set says
    which cases depend on each other), else the ids of both files together, which is said. nel_policy: decides in place
    of the rules.
    """
    from qualgate.store.evidence import uncollected

    with uncollected():
        return _judge_files(gate_file, baseline, variants, nel_policy)


def _judge_files(gate_file: Path, baseline: Path, variants: dict[str, Path], nel_policy: Path | None) -> Judged:
    from dataclasses import replace

    from qualgate import evalsets
    from qualgate.config import load_gate_file
    from qualgate.gate.decide import exit_of
    from qualgate.intake.feedback import read_feedback
    from qualgate.intake.scores import judge, read_score_rows, refuse_a_copy
    from qualgate.pipeline.arms import as_four_arms, with_nel_policy
    from qualgate.pipeline.plan import set_refs
    from qualgate.report.source import source_of
    from qualgate.report.unstored import report_of
    from qualgate.store.plain import now

    loaded = load_gate_file(gate_file, files=False)
    loaded = replace(loaded, nel_policy=nel_policy) if nel_policy is not None else loaded
    if loaded.four_arm is not None or len(variants) > 1:
        loaded = as_four_arms(loaded)
        variants = _in_order(loaded, variants)
    gate = with_nel_policy(loaded)
    for one, other in combinations((baseline, *variants.values()), 2):
        refuse_a_copy(one, other)
    names = [evalsets.name_of(ref) for ref in set_refs(gate)]
    default = names[0] if len(names) == 1 else None
    sides = tuple(read_score_rows(path, default or "") for path in (baseline, *variants.values()))
    found = {row.evalset for side in sides for row in side.rows if row.evalset}
    if strange := sorted(found - set(names)):
        raise UsageError(f"rows of {strange[0]!r:.80}, an evalset that {gate_file} does not list: {', '.join(names)}")
    closed = _closed(gate, default, sides)
    stale = [f"{name} is in the gate file and no score file has a row of it" for name in names if name not in found]
    evidence, verdicts, policy, nel = judge(
        sides[0],
        sides[1],
        gate.policy,
        name=next(iter(variants)),
        others=dict(zip(list(variants)[1:], sides[2:], strict=True)),
        said=read_feedback(gate.feedback) if gate.feedback else None,
        identity=gate.identity,
        stale=(*closed.stale, *stale),
        now=now(),
        evalset=default,
        expected=closed.expected,
        asked=closed.asked,
        budgets=closed.budgets,
        labels=closed.labels,
        clusters=closed.clusters,
        questions=closed.questions,
    )
    if open_ := sorted(found - closed.expected.keys()):
        verdicts = tuple(replace(one, reasons=(*one.reasons, UNION.format(", ".join(open_)))) for one in verdicts)
    report = report_of(
        evidence,
        verdicts,
        policy,
        [str(path) for path in (baseline, *variants.values())],
        description="scores from files",
        sides=sides,
        source=source_of(gate.path, gate.policy),
    )
    return Judged(report=report, evidence=evidence, exit=exit_of(verdicts), nel=nel)


def as_arms(given: list[str]) -> dict[str, Path]:
    """NAME=FILE, several times. UsageError for what is not that, and for a name that comes twice."""
    arms: dict[str, Path] = {}
    for one in given:
        name, equals, path = one.partition("=")
        if not (name and equals and path) or name in arms:
            raise UsageError(f"--arm {one}: give each arm once, as NAME=FILE of score rows")
        arms[name] = Path(path)
    if len(arms) != 3:
        raise UsageError(f"--arm is given for each of the three arms beside the baseline, found {len(arms)}")
    return arms


def _in_order(gate: GateFile, variants: dict[str, Path]) -> dict[str, Path]:
    assert gate.four_arm is not None
    names = (gate.four_arm.quantization, gate.four_arm.speculation, gate.four_arm.both)
    if set(variants) != set(names):
        strange = "".join(f" ({name!r:.80} is none of them)" for name in sorted({*variants} - {*names, "variant"}))
        raise UsageError(
            f"{gate.path.name} compares four arms{strange}: give --baseline-scores, and "
            + " ".join(f"--arm {name}=FILE" for name in names)
        )
    return {name: variants[name] for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """What is known of the cases without the score files. Of an evalset that does not lie there, nothing."""

    expected: dict[str, frozenset[str]]  # evalset → ids that must be there
    asked: dict[str, list[str]]  # evalset → its metrics that a rule asks for
    labels: dict[tuple[str, str], tuple[str, ...]]  # (evalset, case) → its own task and tags, whatever rows say
    clusters: dict[tuple[str, str], str | None]  # likewise its own cluster; None: it has none
    questions: dict[tuple[str, str], str]  # → `question_hash`
    budgets: dict[tuple[str, str], int]  # (evalset, case) → tokens that an answer may take at most
    stale: list[str]  # why rows are not of the cases that lie there now


def _closed(gate: GateFile, default: str | None, sides: tuple[Scores, ...]) -> Closed:
    from qualgate import evalsets
    from qualgate.pipeline.evidence import labels_of
    from qualgate.pipeline.plan import load_set, set_refs

    closed = Closed(
        expected=_listed(gate, default), asked={}, labels={}, clusters={}, questions={}, budgets={}, stale=[]
    )
    rows = {(row.evalset, row.id, row.case_hash) for side in sides for row in side.rows}
    versions: dict[tuple[str, str], str] = {}
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
        versions.update({(item.name, id): said for id, said in hashes.items()})
        closed.clusters.update({(item.name, case.id): case.cluster for case in item.cases})
        closed.questions.update({(item.name, case.id): case.question for case in item.cases})
        closed.budgets.update({(item.name, case.id): case.max_new_tokens for case in item.cases})
        other = {id for at, id, said in rows if at == item.name and said and id in hashes and said != hashes[id]}
        if other:  # by ids too: those pair what nobody gave a hash, and here somebody did
            closed.stale.append(
                f"{item.name}: {counted(len(other), 'case was scored', 'cases were scored')} in another version than "
                "the one that lies there"
            )
    _refuse_other_clusters(sides, closed.clusters, versions)
    return closed


def _refuse_other_clusters(
    sides: tuple[Scores, ...], clusters: dict[tuple[str, str], str | None], versions: dict[tuple[str, str], str]
) -> None:
    """UsageError for a row that names another cluster than its case has. Rows of another version are told as such."""
    for side in sides:
        for row in side.rows:
            case = row.evalset, row.id
            if row.cluster is None or case not in clusters or row.cluster == clusters[case]:
                continue
            if row.case_hash in ("", versions[case]):
                own = "none" if clusters[case] is None else repr(clusters[case])[:60]
                raise UsageError(
                    f"{side.source}:{row.line}: the `cluster` of {row.id!r:.80} is {row.cluster!r:.60}, and in the "
                    f"evalset {row.evalset} that lies there it is {own}, which is what counts. Leave `cluster` out of "
                    "the rows, or change the evalset and score again with it."
                )


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
