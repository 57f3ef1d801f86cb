"""Describe cases that others scored, by the gate file and the evalsets beside it."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from qualgate import evalsets
from qualgate.config import GateFile
from qualgate.errors import UsageError, close_names
from qualgate.intake.row_evidence import CaseId, KnownCases
from qualgate.intake.score_rows import Scores
from qualgate.pipeline.closed_list import closed_list
from qualgate.pipeline.evidence import labels_of
from qualgate.pipeline.named_sets import load_set, set_refs
from qualgate.records import Evalset, ExternalCases
from qualgate.records.identity import case_hash
from qualgate.records.metrics import reference_keys
from qualgate.text.numbers import counted


def known_cases(gate: GateFile, default: str | None, sides: Sequence[Scores]) -> KnownCases:
    """Collect the cases of every evalset beside the gate file, and note rows that were scored by another version.

    default: the evalset of rows that name none. Raises UsageError for a misspelt evalset path, an `expected` that
    contradicts the evalset, and a row that names another cluster than its case has.
    """
    items = _sets_beside(gate)
    cases = {(item.name, case.id): case for item in items for case in item.cases}
    clusters = {case_key: case.cluster for case_key, case in cases.items()}
    versions = {case_key: case.hash for case_key, case in cases.items()}
    line_hashes = _line_hashes(items)
    closed = closed_list(gate, {item.name: {case.id for case in item.cases} for item in items}, default)
    collected = KnownCases(
        default=default,
        expected=closed.expected,
        required={item.name: _asked(gate, item) for item in items},
        labels=labels_of(items),
        clusters=clusters,
        questions={case_key: case.question for case_key, case in cases.items()},
        max_new_tokens={case_key: case.max_new_tokens for case_key, case in cases.items()},
        references={case_key: reference_keys(case.body) for case_key, case in cases.items()},
        repeats=gate.repeats if gate.repeats_stated else None,
        stale=(*_other_versions(items, versions, line_hashes, sides), *closed.unknown),
        notes=(*closed.notes, *_without_their_yaml(items, line_hashes, sides)),
    )
    _refuse_other_clusters(
        sides, clusters, {case_key: {hash, line_hashes.get(case_key, hash)} for case_key, hash in versions.items()}
    )
    return collected


def _sets_beside(gate: GateFile) -> list[Evalset]:
    """Load the evalsets that the gate file names and that can be read: files beside it and shipped sets. Raises
    UsageError for a path that looks misspelt, and for a set called external although its file lies beside the gate
    file."""
    folder, refs = gate.path.parent, set_refs(gate)
    for ref in refs:
        if isinstance(ref, str) and evalsets.is_path(ref) and not os.path.isfile(folder / ref):
            _refuse_a_near_miss(ref, folder, {evalsets.name_of(ref) for ref in refs})
        elif isinstance(ref, ExternalCases) and (set_path := _external_file(ref.name, folder)):
            raise UsageError(
                f"{gate.path}: the cases of {ref.name} are declared external, but {set_path} exists. Name that "
                "file in `evalsets`, or remove it."
            )
    return [
        load_set(ref, folder)
        for ref in refs
        if isinstance(ref, str) and (not evalsets.is_path(ref) or os.path.isfile(folder / ref))
    ]


def _external_file(name: str, folder: Path) -> Path | None:
    """Return the evalset file with the name of an external set, regardless of letter case and file ending."""
    stem = re.sub(r"\.(ya?ml|jsonl)$", "", name, flags=re.IGNORECASE).casefold()
    set_files = evalsets.lying_in(folder).items()
    return next((path for set_name, path in set_files if set_name.casefold() in (name.casefold(), stem)), None)


def _refuse_a_near_miss(ref: str, folder: Path, gate_names: Collection[str]) -> None:
    """Raise UsageError if a wrong path resembles an evalset that no other path names: it is a typo."""
    name, folders = evalsets.name_of(ref), [Path(os.path.normpath(folder / ref)).parent, folder]
    set_files = {
        set_name: path
        for searched in reversed(folders)
        for set_name, path in evalsets.lying_in(searched, below=True).items()
    }
    candidates = [set_name for set_name in set_files if set_name == name or set_name not in gate_names]
    if close := close_names(name, candidates):
        guess = Path(os.path.relpath(set_files[close[0]], folder)).as_posix()
        raise UsageError(
            f"no evalset at {folder / ref}; did you mean {guess if guess.startswith('../') else './' + guess}? A set "
            f"that lies elsewhere is named {{name: {name}, cases: external}}"
        )


def _asked(gate: GateFile, item: Evalset) -> list[str]:
    """Return the evalset's metrics that rules name; for an nel policy the first one, which is its reward."""
    if gate.policy.nel:
        return list(item.metrics[:1])
    rules = [rule for rule in gate.policy.rules if rule.evalset in (None, item.name)]
    return [rule.metric for rule in rules if rule.metric in item.metrics]


def _other_versions(
    items: Sequence[Evalset], versions: Mapping[CaseId, str], line_hashes: Mapping[CaseId, str], sides: Sequence[Scores]
) -> tuple[str, ...]:
    """Return a line for each evalset of which rows name another version, with `identity: ids` too."""
    cases_by_set: dict[str, set[str]] = {}
    for evalset, case, stated_hash in {(row.evalset, row.id, row.case_hash) for side in sides for row in side.rows}:
        if stated_hash and stated_hash not in (
            versions.get((evalset, case), stated_hash),
            line_hashes.get((evalset, case)),
        ):
            cases_by_set.setdefault(evalset, set()).add(case)
    count_texts = {
        name: counted(len(cases), "case was scored", "cases were scored") for name, cases in cases_by_set.items()
    }
    return tuple(
        f"{item.name}: {count_texts[item.name]} in another version than the one that lies there"
        for item in items
        if item.name in count_texts
    )


def _line_hashes(items: Sequence[Evalset]) -> dict[CaseId, str]:
    """Return the hashes of cases without the YAML's settings, as `qualgate score` writes them for lines alone."""
    return {
        (item.name, case.id): case_hash({key: value for key, value in case.body.items() if value != added.get(key)})
        for item in items
        if (added := _declared(item))
        for case in item.cases
        if added.items() & {key: case.body.get(key) for key in added}.items()
    }


def _declared(item: Evalset) -> dict[str, str]:
    return {key: value for key, value in (("dialect", item.dialect), ("formats", item.formats)) if value}


def _without_their_yaml(
    items: Sequence[Evalset], line_hashes: Mapping[CaseId, str], sides: Sequence[Scores]
) -> tuple[str, ...]:
    """Return a note for each evalset whose rows were scored without its YAML, and so without its `dialect`."""
    bare = {
        row.evalset for side in sides for row in side.rows if row.case_hash == line_hashes.get((row.evalset, row.id), 0)
    }
    return tuple(
        f"{item.name}: rows were scored without the set's YAML, which declares "
        + ", ".join(f"`{key}: {value}`" for key, value in _declared(item).items())
        for item in items
        if item.name in bare
    )


def _refuse_other_clusters(
    sides: Sequence[Scores], clusters: Mapping[CaseId, str | None], versions: Mapping[CaseId, Collection[str]]
) -> None:
    """Raise UsageError for a row that names another cluster than its case has; rows of other versions pass here."""
    for side in sides:
        for row in side.rows:
            case = row.evalset, row.id
            if row.cluster is None or case not in clusters or row.cluster == clusters[case]:
                continue
            if not row.case_hash or row.case_hash in versions[case]:
                own_cluster = "none" if clusters[case] is None else repr(clusters[case])[:60]
                raise UsageError(
                    f"{side.source}:{row.line}: the `cluster` of {row.id!r:.80} is {row.cluster!r:.60}, and in the "
                    f"evalset {row.evalset} that lies there it is {own_cluster}, which is what counts. Leave `cluster` "
                    "out of the rows, or change the evalset and score again with it."
                )
