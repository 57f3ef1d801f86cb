"""Read a set: its YAML, its cases, and faults between the two."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from qualgate.documents import Document, Fault, as_model, quote, read_yaml, refuse
from qualgate.errors import UsageError
from qualgate.errors.misplaced import nearest_path, not_json_lines, unreadable
from qualgate.evalsets.cases import CaseReader, unread_keys
from qualgate.evalsets.header import ADDED, CalibrationFile, EvalsetFile, SetFile, added_to_cases, as_evalset
from qualgate.evalsets.places import is_path, kind_of, locate, shipped_folder
from qualgate.evalsets.simulation import Sources, read_simulation
from qualgate.records import CalibrationSet, Case, Evalset
from qualgate.records.metrics import STATE
from qualgate.text.numbers import counted

FORGIVEN = ("lenient", "normalizers")  # keys of an evalset's YAML that make scorers lenient in every case


def load(ref: str, relative_to: Path) -> Evalset:
    """Load and check the evalset that `ref` names. UsageError lists the first 20 faults, and how many more."""
    path = shipped_folder() / f"{ref}.yaml"
    is_shipped = not is_path(ref) and os.path.isfile(path) and os.path.isfile(path.with_suffix(".jsonl"))
    loaded = read(path) if is_shipped else None
    if not isinstance(loaded, Evalset):  # a fallback only, since `locate` reads all shipped sets
        path = locate(ref, relative_to, "evalset")
        loaded = read(path)
    if isinstance(loaded, Evalset):
        return loaded
    raise UsageError(f"{path} is a calibration set, which no model is judged on: name an evalset")


def load_calibration(ref: str, relative_to: Path) -> CalibrationSet:
    """Load and check the calibration set that `ref` names. UsageError lists its faults; an evalset is refused."""
    path = locate(ref, relative_to, "calibration")
    loaded = read(path)
    if isinstance(loaded, CalibrationSet):
        return loaded
    raise UsageError(
        f"{path} is an evalset: a variant calibrated on it would be judged on the same cases. Name a calibration set "
        "(`kind: calibration`, no `metrics`) that shares no case with an evalset, such as the shipped one: calibration"
    )


def read(path: Path) -> Evalset | CalibrationSet:
    """Read and check the set of either kind whose YAML is `path`. UsageError lists its faults."""
    loaded, faults = _read(path)
    if faults or loaded is None:
        refuse(faults)
    return loaded


def check(path: Path) -> tuple[Fault, ...]:
    """All faults of the set of either kind whose YAML is `path`."""
    return tuple(sorted(_read(path)[1]))


def added_beside(cases: Path) -> dict[str, Any]:
    """Defaults that an evalset's YAML beside a file of cases adds to each case; {} without one.

    UsageError for an evalset's YAML that adds something and has faults.
    """
    header = _header_beside(cases, (*ADDED, "simulation"))
    return added_to_cases(header, simulation_beside(cases)) if header else {}


def forgiven_beside(cases: Path) -> dict[str, tuple[str, ...]]:
    """`lenient` and `normalizers` of the YAML beside a file of cases, () if missing; otherwise as `added_beside`."""
    header = _header_beside(cases, FORGIVEN)
    return {name: tuple(getattr(header, name, ())) for name in FORGIVEN}


def simulation_beside(cases: Path) -> Sources:
    """Simulated tools that the YAML beside a file of cases names, () if none; otherwise as `added_beside`."""
    header = _header_beside(cases, ("simulation",))
    return read_simulation(cases.with_suffix(".yaml"), header.simulation) if header and header.simulation else ()


def _header_beside(cases: Path, keys: Sequence[str]) -> EvalsetFile | None:
    """The header of an evalset's YAML beside a file of cases, if it has one of `keys`."""
    path = cases.with_suffix(".yaml")
    if cases.suffix != ".jsonl" or not path.is_file():
        return None
    document = read_yaml(path)
    if not isinstance(document.value, dict) or "metrics" not in document.value or not {*keys} & document.value.keys():
        return None
    header, faults = as_model(EvalsetFile, document)
    if header is None or faults:
        refuse(faults)
    return header


def _read(path: Path) -> tuple[Evalset | CalibrationSet | None, list[Fault]]:
    """Read a set's YAML and cases: (set, faults); the set is None where a fault leaves nothing to check."""
    document = read_yaml(path)
    if isinstance(document.value, dict) and {"baseline", "variants"} & document.value.keys():
        raise UsageError(f"{path}: this is a gate file, not a set of cases. To check it: qualgate config check {path}")
    header, faults = as_model(CalibrationFile if kind_of(document) == "calibration" else EvalsetFile, document)
    data = path.with_suffix(".jsonl")
    if header is None:
        return None, faults
    if header.name != path.stem:
        faults.append(document.fault(("name",), f"name {header.name!r}, but the file is called {path.name}"))
    target = os.path.realpath(data)  # for a link to itself Path.resolve raises no OSError
    if os.path.dirname(target) != os.path.dirname(os.path.realpath(path)):
        faults.append(document.fault((), f"{data.name} leads out of its folder, to {target}"))
        return None, faults
    if not data.is_file():
        faults.append(document.fault((), f"no {data.name} beside it{_of_other_form(data)}"))
        return None, faults
    try:
        simulation = (
            read_simulation(path, header.simulation) if isinstance(header, EvalsetFile) and header.simulation else ()
        )
    except UsageError as error:
        faults.append(document.fault(("simulation",), f"simulation: {error}"))
        return None, faults
    reader = CaseReader(data, header, simulation)
    try:
        cases = tuple(reader.cases())
    except OSError as error:
        raise UsageError(unreadable(data, error)) from None
    faults += reader.faults
    if not reader.lines.line:
        faults.append(Fault(data, 1, "no cases; write one JSON object a line"))
    faults += _hash_faults(document, header, reader.lines.sha256, path)
    if "dialect" in reader.added and not any(metric.startswith("tool_call.") for metric in reader.metrics):
        faults.append(document.fault(("dialect",), "`dialect` is of tool calls, and the set has no metric of them"))
    if "served_by" in reader.added and "tool_call.served" not in reader.metrics:
        message = "`served_by` is of `tool_call.served`, which is no metric of this set"
        faults.append(document.fault(("served_by",), message))
    if "formats" in reader.added and "json.schema" not in reader.metrics:
        faults.append(document.fault(("formats",), "`formats` is of `json.schema`, which is no metric of this set"))
    if "packages" in reader.added and not {"code.pass", STATE} & {*reader.metrics}:
        message = f"`packages` is of `code.pass` and `{STATE}`, and neither is a metric of this set"
        faults.append(document.fault(("packages",), message))
    if simulation and STATE not in reader.metrics:
        message = f"`simulation` is of `{STATE}`, which is no metric of this set"
        faults.append(document.fault(("simulation",), message))
    common: dict[str, Any] = {
        "name": header.name,
        "version": header.version,
        "sha256": reader.sha256,
        "description": header.description,
        "path": str(path),
        "cases": cases,
    }
    if isinstance(header, EvalsetFile):
        faults += _effect_faults(document, header)
        return replace(as_evalset(header), simulation=simulation, **common), faults
    return CalibrationSet(**common), faults


def _of_other_form(data: Path) -> str:
    """Suggest where missing cases may be."""
    other = data.with_suffix(".json")
    return f"; of {other.name}, {not_json_lines(other, b'[')}" if other.is_file() else nearest_path(data, _holds_lines)


def _holds_lines(path: Path) -> bool:
    return path.suffix == ".jsonl"


def _effect_faults(document: Document, header: EvalsetFile) -> Iterator[Fault]:
    """Yield faults for settings that no metric of the set reads: they would have no effect, silently."""
    from qualgate.scoring.registry import metrics_that, scorers_of

    def fault(place: tuple[str | int, ...], what: str, readers: tuple[str, ...]) -> Fault:
        do = f"{', '.join(readers)} {'do' if len(readers) > 1 else 'does'}"
        return document.fault(
            place, f"no metric of this set reads {what}; {do}: take it out, or add such a metric to `metrics`"
        )

    scorers = scorers_of(tuple(header.metrics))
    if header.normalizers and not any(scorer.normalizes for scorer in scorers):
        yield fault(("normalizers",), "`normalizers`", metrics_that(lambda scorer: scorer.normalizes))
    for index, mode in enumerate(header.lenient):
        if not any(mode in scorer.lenient for scorer in scorers):
            readers = metrics_that(lambda scorer, mode=mode: mode in scorer.lenient)
            yield fault(("lenient", index), f"the lenient mode {mode!r}", readers)


def _hash_faults(document: Document, header: SetFile, sha256: str, path: Path) -> Iterator[Fault]:
    """Yield a fault if the stated hash is not that of the cases, or a shipped set states none."""
    if header.sha256 is None:
        if path.resolve().parent == shipped_folder().resolve():
            yield document.fault((), f"a shipped set states its hash; add `sha256: {sha256}`")
    elif header.sha256 != sha256:
        yield document.fault(
            ("sha256",),
            f"sha256 says {header.sha256}, but the cases hash to {sha256}. Either restore them, "
            f"or raise `version` and set `sha256: {sha256}`: a changed set is another set",
        )


def notes(evalset: Evalset) -> Iterator[str]:
    """Yield oddities that are no faults: keys that nothing reads, expected calls that their own tool's schema refuses,
    and asserted formats that no draft defines."""
    from qualgate.scoring.structure import schema_notes
    from qualgate.scoring.tools.case_faults import tool_notes

    if unread := unread_keys(evalset.cases):
        yield "keys that nothing reads: " + ", ".join(
            f"{quote(key)} ({counted(count, 'case')})" for key, count in unread.items()
        )
    if any(metric.startswith("tool_call.") for metric in evalset.metrics):
        for case in evalset.cases:
            yield from (f"case {case.id}: {note}" for note in tool_notes(case.body))
    if "json.schema" in evalset.metrics:
        for case in evalset.cases:
            yield from (f"case {case.id}: {note}" for note in schema_notes(case.body))


def asked_again(sets: Iterable[Evalset]) -> tuple[tuple[Case, ...], ...]:
    """Groups of cases that ask one question, whatever their ids and sets: each is one cluster for the gate."""
    by_question: dict[str, list[Case]] = {}
    for item in sets:
        for case in item.cases:
            by_question.setdefault(case.question, []).append(case)
    return tuple(tuple(cases) for cases in by_question.values() if len(cases) > 1)
