"""The cases that score files must hold, and the source of that list.

If the evalset lies beside the gate file: all of its cases, or those that `expected` chooses for a `subset` with a
reason. Otherwise the ids that `expected` names. Otherwise, for `cases: external`, the ids of all files together, which
the verdict states. For any other evalset the cases are unknown, so nothing is decided: with a wrong path, rows missing
on both sides would go unnoticed and could lead to an approval.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from qualgate import evalsets
from qualgate.config import GateFile
from qualgate.documents import nearest
from qualgate.errors import UsageError, close_names
from qualgate.intake.jsonl import read_objects
from qualgate.pipeline.named_sets import set_refs
from qualgate.records import ExternalCases, SetRef
from qualgate.text.numbers import counted

UNION = "the expected cases of {} are those of both files together: what neither holds is not missed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedList:
    """The cases that score files must hold, as far as they are known."""

    expected: Mapping[str, frozenset[str]]  # evalset → ids; an evalset not listed takes those of all files
    unknown: tuple[str, ...]  # why the cases of an evalset are unknown: any makes a verdict undecided
    notes: tuple[str, ...]  # notes on the list for the verdict


def closed_list(gate: GateFile, lying_there: Mapping[str, Collection[str]], default: str | None) -> ClosedList:
    """Build the list for every evalset of the gate file. lying_there: evalset → case ids, of those beside the gate
    file. default: the evalset of `expected` lines that name none.

    Raises UsageError if `expected` has an id that its evalset lacks, or fewer ids and no `subset`.
    """
    refs = {evalsets.name_of(ref): ref for ref in set_refs(gate)}
    listed = _listed(gate, default)
    if strange := sorted(listed.keys() - refs.keys()):
        raise UsageError(f"{gate.expected}: names cases of {strange[0]!r:.80}{nearest(strange[0], refs)}")
    notes = [f"of the evalsets' cases only those of {gate.expected.name} count: {gate.subset}"] if (
        gate.expected is not None and gate.subset
    ) else []  # fmt: skip
    expected: dict[str, frozenset[str]] = {}
    unknown, union = [], []
    for name, ref in refs.items():
        if name in lying_there:
            expected[name] = _chosen(gate, name, frozenset(lying_there[name]), listed.get(name))
        elif name in listed:
            expected[name] = listed[name]
        elif isinstance(ref, ExternalCases):
            union.append(name)
        else:
            unknown.append(_not_known(name, ref))
    if union:
        notes.append(UNION.format(", ".join(sorted(union))))
    return ClosedList(expected=expected, unknown=tuple(unknown), notes=tuple(notes))


def _chosen(gate: GateFile, name: str, all_ids: frozenset[str], listed: frozenset[str] | None) -> frozenset[str]:
    """Return the cases that `expected` chooses from an evalset; all if it does not list the evalset."""
    if listed is None:
        return all_ids
    if strange := sorted(listed - all_ids):
        raise UsageError(
            f"{gate.expected}: no case {strange[0]!r:.80} in the evalset {name} that lies beside the gate file"
            f"{nearest(strange[0], close_names(strange[0], all_ids))}. Take it out, or name the evalset that has it."
        )
    if listed != all_ids and not gate.subset:
        raise UsageError(
            f"{gate.expected}: names {len(listed):,} of the {counted(len(all_ids), 'case')} of the evalset {name} that "
            "lies beside the gate file. Leave `expected` out, name all of them, or say why these are enough: "
            "`gate: {subset: REASON}`, which the verdict repeats."
        )
    return listed


def _not_known(name: str, ref: SetRef) -> str:
    """Explain why the cases of an evalset are unknown, with remedies."""
    where = f"no evalset lies at {ref}" if isinstance(ref, str) else "what a task of lm-eval's asks is not looked up"
    return (
        f"which cases {name} has is not known ({where}), so what neither file holds could not be missed. Keep the "
        "evalset beside the gate file, or list its ids by `gate: {expected: FILE}`, or take the ids of both files for "
        f"all there are: `evalsets: [{{name: {name}, cases: external}}]`"
    )


def _listed(gate: GateFile, default: str | None) -> dict[str, frozenset[str]]:
    """Return evalset → case ids that the file `expected` names; {} without such a file. default: the evalset of lines
    that name none. Raises UsageError for a line without an id or evalset."""
    ids: dict[str, set[str]] = {}
    for line, body in read_objects(gate.expected) if gate.expected is not None else ():
        name, case = body.get("evalset", default), body.get("id")
        if not isinstance(name, str) or not isinstance(case, str) or not case:
            raise UsageError(f"{gate.expected}:{line}: needs an `id`, and an `evalset` where the gate file has several")
        ids.setdefault(name, set()).add(case)
    return {name: frozenset(cases) for name, cases in ids.items()}
