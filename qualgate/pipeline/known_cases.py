"""What a gate file and the evalsets beside it say of cases that others scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qualgate import evalsets
from qualgate.config import GateFile
from qualgate.errors import UsageError
from qualgate.formatting import counted
from qualgate.intake.jsonl import read_objects
from qualgate.intake.row_evidence import CaseId, KnownCases
from qualgate.intake.score_rows import Scores
from qualgate.pipeline.evidence import labels_of
from qualgate.pipeline.plan import load_set, set_refs
from qualgate.records import Evalset


def known_cases(gate: GateFile, default: str | None, sides: Sequence[Scores]) -> KnownCases:
    """Of every evalset that lies there: its cases, and where rows were scored in another version of it.

    The closed list is the gate file's `expected` where it names one, else the evalsets' own. default: the evalset of
    rows that name none. UsageError for a row that names another cluster than its case has.
    """
    listed = _listed(gate, default)
    items = _lying_there(gate)
    cases = {(item.name, case.id): case for item in items for case in item.cases}
    clusters = {at: case.cluster for at, case in cases.items()}
    versions = {at: case.hash for at, case in cases.items()}
    if gate.expected is None:
        listed |= {item.name: frozenset(case.id for case in item.cases) for item in items}
    known = KnownCases(
        default=default,
        expected=listed,
        asked={item.name: _asked(gate, item) for item in items},
        labels=labels_of(items),
        clusters=clusters,
        questions={at: case.question for at, case in cases.items()},
        budgets={at: case.max_new_tokens for at, case in cases.items()},
        stale=_other_versions(items, versions, sides),
    )
    _refuse_other_clusters(sides, clusters, versions)
    return known


def _lying_there(gate: GateFile) -> list[Evalset]:
    folder = gate.path.parent
    return [
        load_set(ref, folder)
        for ref in set_refs(gate)
        if isinstance(ref, str) and (not evalsets.is_path(ref) or (folder / ref).exists())
    ]


def _asked(gate: GateFile, item: Evalset) -> list[str]:
    """The evalset's metrics that a rule asks for, or that an nel policy takes as its reward: its first."""
    if gate.policy.nel:
        return list(item.metrics[:1])
    rules = [rule for rule in gate.policy.rules if rule.evalset in (None, item.name)]
    return [rule.metric for rule in rules if rule.metric in item.metrics]


def _other_versions(
    items: Sequence[Evalset], versions: Mapping[CaseId, str], sides: Sequence[Scores]
) -> tuple[str, ...]:
    """One line for each evalset of which rows name another version.

    By ids too: those pair what nobody gave a hash, and here somebody did.
    """
    other: dict[str, set[str]] = {}
    for at, case, said in {(row.evalset, row.id, row.case_hash) for side in sides for row in side.rows}:
        if said and said != versions.get((at, case), said):
            other.setdefault(at, set()).add(case)
    found = {at: counted(len(cases), "case was scored", "cases were scored") for at, cases in other.items()}
    return tuple(
        f"{item.name}: {found[item.name]} in another version than the one that lies there"
        for item in items
        if item.name in found
    )


def _refuse_other_clusters(
    sides: Sequence[Scores], clusters: Mapping[CaseId, str | None], versions: Mapping[CaseId, str]
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
    ids: dict[str, set[str]] = {}
    for line, body in read_objects(gate.expected) if gate.expected is not None else ():
        name, case = body.get("evalset", default), body.get("id")
        if not isinstance(name, str) or not isinstance(case, str) or not case:
            raise UsageError(f"{gate.expected}:{line}: needs an `id`, and an `evalset` where the gate file has several")
        ids.setdefault(name, set()).add(case)
    return {name: frozenset(found) for name, found in ids.items()}
