"""Reads a set whole: its YAML, its cases, and what is wrong only when the two are put side by side."""

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
from qualgate.formatting import counted
from qualgate.metrics import STATE
from qualgate.records import CalibrationSet, Case, Evalset

FORGIVEN = ("lenient", "normalizers")  # keys of an evalset's YAML by which scorers forgive, in every case


def load(ref: str, relative_to: Path) -> Evalset:
    """The evalset `ref` names, checked whole. UsageError lists its faults: the first 20, and how many more."""
    path = shipped_folder() / f"{ref}.yaml"
    ours = not is_path(ref) and os.path.isfile(path) and os.path.isfile(path.with_suffix(".jsonl"))
    found = read(path) if ours else None
    if not isinstance(found, Evalset):  # not asked of a set that is: `locate` reads all that are shipped
        path = locate(ref, relative_to, "evalset")
        found = read(path)
    if isinstance(found, Evalset):
        return found
    raise UsageError(f"{path} is a calibration set, which judges nothing: name an evalset")


def load_calibration(ref: str, relative_to: Path) -> CalibrationSet:
    """The calibration set `ref` names, checked whole. UsageError lists its faults; an evalset is refused."""
    path = locate(ref, relative_to, "calibration")
    found = read(path)
    if isinstance(found, CalibrationSet):
        return found
    raise UsageError(
        f"{path} is an evalset: a variant calibrated on it has seen its exam. Name a calibration set (`kind: "
        "calibration`, no `metrics`) whose cases stand in no evalset, such as the shipped one: calibration"
    )


def read(path: Path) -> Evalset | CalibrationSet:
    """The set of either kind whose YAML is `path`, checked whole. UsageError lists its faults."""
    found, faults = _read(path)
    if faults or found is None:
        refuse(faults)
    return found


def check(path: Path) -> tuple[Fault, ...]:
    """Every fault of the set of either kind whose YAML is `path`; nothing when it is fine."""
    return tuple(sorted(_read(path)[1]))


def added_beside(cases: Path) -> dict[str, Any]:
    """What the YAML beside a file of cases adds to each of them, which is nothing where it is no evalset's.

    UsageError for an evalset's YAML that adds something and has faults.
    """
    header = _header_beside(cases, (*ADDED, "simulation"))
    return added_to_cases(header, simulation_beside(cases)) if header else {}


def forgiven_beside(cases: Path) -> dict[str, tuple[str, ...]]:
    """`lenient` and `normalizers` of that YAML, () where it does not say; as `added_beside`."""
    header = _header_beside(cases, FORGIVEN)
    return {name: tuple(getattr(header, name, ())) for name in FORGIVEN}


def simulation_beside(cases: Path) -> Sources:
    """The simulated tools that this YAML names, () where it names none; as `added_beside`."""
    header = _header_beside(cases, ("simulation",))
    return read_simulation(cases.with_suffix(".yaml"), header.simulation) if header and header.simulation else ()


def _header_beside(cases: Path, said: Sequence[str]) -> EvalsetFile | None:
    """The evalset's YAML beside a file of cases, where it says one of `said`."""
    path = cases.with_suffix(".yaml")
    if cases.suffix != ".jsonl" or not path.is_file():
        return None
    document = read_yaml(path)
    if not isinstance(document.value, dict) or "metrics" not in document.value or not {*said} & document.value.keys():
        return None
    header, faults = as_model(EvalsetFile, document)
    if header is None or faults:
        refuse(faults)
    return header


def _read(path: Path) -> tuple[Evalset | CalibrationSet | None, list[Fault]]:
    document = read_yaml(path)
    if isinstance(document.value, dict) and {"baseline", "variants"} & document.value.keys():
        raise UsageError(f"{path}: this is a gate file, not a set of cases. To check it: qualgate config check {path}")
    header, faults = as_model(CalibrationFile if kind_of(document) == "calibration" else EvalsetFile, document)
    data = path.with_suffix(".jsonl")
    if header is None:
        return None, faults
    if header.name != path.stem:
        faults.append(document.fault(("name",), f"name {header.name!r}, but the file is called {path.name}"))
    leads = os.path.realpath(data)  # of a link to itself Path.resolve raises what is no OSError
    if os.path.dirname(leads) != os.path.dirname(os.path.realpath(path)):
        faults.append(document.fault((), f"{data.name} leads out of its folder, to {leads}"))
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
        faults.append(Fault(data, 1, "no cases; one JSON object a line is needed"))
    faults += _hash_faults(document, header, reader.lines.sha256, path)
    if "dialect" in reader.added and not any(metric.startswith("tool_call.") for metric in reader.metrics):
        faults.append(document.fault(("dialect",), "`dialect` is of tool calls, and the set has no metric of them"))
    if "served_by" in reader.added and "tool_call.served" not in reader.metrics:
        said = "`served_by` is of `tool_call.served`, which is no metric of this set"
        faults.append(document.fault(("served_by",), said))
    if "formats" in reader.added and "json.schema" not in reader.metrics:
        faults.append(document.fault(("formats",), "`formats` is of `json.schema`, which is no metric of this set"))
    if "packages" in reader.added and not {"code.pass", STATE} & {*reader.metrics}:
        said = f"`packages` is of `code.pass` and `{STATE}`, and neither is a metric of this set"
        faults.append(document.fault(("packages",), said))
    if simulation and STATE not in reader.metrics:
        said = f"`simulation` is of `{STATE}`, which is no metric of this set"
        faults.append(document.fault(("simulation",), said))
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
    """Of cases that are not there: where they may be meant to be."""
    other = data.with_suffix(".json")
    return f"; of {other.name}, {not_json_lines(other, b'[')}" if other.is_file() else nearest_path(data, _holds_lines)


def _holds_lines(path: Path) -> bool:
    return path.suffix == ".jsonl"


def _effect_faults(document: Document, header: EvalsetFile) -> Iterator[Fault]:
    """What the YAML declares and no metric of the set reads: it would change no score, silently."""
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
    if header.sha256 is None:
        if path.resolve().parent == shipped_folder().resolve():
            yield document.fault((), f"a shipped set states its hash; add `sha256: {sha256}`")
    elif header.sha256 != sha256:
        yield document.fault(
            ("sha256",),
            f"sha256 says {header.sha256}, but the cases hash to {sha256}. Either restore them, "
            f"or raise `version` and set `sha256: {sha256}`: a changed set is another set",
        )


def notes(found: Evalset) -> Iterator[str]:
    """What is odd in a set and no fault: keys that nothing reads, cases with an expected call that its own tool's
    schema refuses, and asserted formats that are no draft's."""
    from qualgate.scoring.needs import schema_notes, tool_notes

    if unread := unread_keys(found.cases):
        yield "keys that nothing reads: " + ", ".join(
            f"{quote(key)} ({counted(count, 'case')})" for key, count in unread.items()
        )
    if any(metric.startswith("tool_call.") for metric in found.metrics):
        for case in found.cases:
            yield from (f"case {case.id}: {note}" for note in tool_notes(case.body))
    if "json.schema" in found.metrics:
        for case in found.cases:
            yield from (f"case {case.id}: {note}" for note in schema_notes(case.body))


def asked_again(sets: Iterable[Evalset]) -> tuple[tuple[Case, ...], ...]:
    """Cases of one or several sets that ask one question, whatever their ids: each a cluster to the gate."""
    asked: dict[str, list[Case]] = {}
    for item in sets:
        for case in item.cases:
            asked.setdefault(case.question, []).append(case)
    return tuple(tuple(cases) for cases in asked.values() if len(cases) > 1)
