"""Evalsets and calibration sets: NAME.yaml and NAME.jsonl, read strictly, every fault named with its file and line.

An evalset judges, a calibration set (`kind: calibration`) is what a quantizer may see. Neither is taken for the other:
a variant calibrated on the cases that judge it has seen its exam.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from qualgate.documents import ABSENT, Document, Fault, Written, as_model, nearest, quote, read_yaml, refuse, stated
from qualgate.errors import UsageError
from qualgate.identity import content_hash, question_hash
from qualgate.metrics import BY_LIKELIHOOD, LM_EVAL, METRICS, PLANNED
from qualgate.records import CalibrationSet, Case, Evalset, LmEvalTask

MAX_LINE = 8 * 2**20  # bytes
ROLES = ("system", "user", "assistant", "tool")
OURS_TO_MAKE = ("requests", "until")  # of a case: what the engine is to read or to stop at, as lm-eval's tasks have it
_OF_ALL_CASES = "it is one for all cases of a run: set it in the gate file, `generation: {%s: …}`"
_NOWHERE = "a draw is from all tokens as the model weighs them, in this version: take it out"
_LENGTH = "a case says how long its answer may be with `max_new_tokens`"
WITHOUT_EFFECT = {  # keys of a case that other tools heed, and that nothing here reads → where that is said
    **{name: _OF_ALL_CASES % name for name in ("temperature", "seed", "repeats")},
    "do_sample": _OF_ALL_CASES % "temperature",
    **dict.fromkeys(("top_p", "top_k", "min_p", "repetition_penalty"), _NOWHERE),
    **dict.fromkeys(
        ("max_tokens", "max_completion_tokens", "max_output_tokens", "max_gen_toks", "max_length"), _LENGTH
    ),
    "stop": "an answer ends where the model ends it or at `max_new_tokens`: take it out",
}
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
SCORED = tuple(  # by our own scorers
    name for name, metric in METRICS.items() if metric.kind == "quality" and not name.startswith(LM_EVAL)
)


class _SetFile(Written):
    """What every NAME.yaml says."""

    name: str = Field(pattern=f"^{NAME}$")
    """The set's name, which is the file's. Example: `name: support`"""
    version: str
    """Raised whenever a case changes. Example: `version: "1"`"""
    description: str = ""
    """What the set asks, for people. Example: `description: refunds and returns`"""
    sha256: str = Field(default=ABSENT, pattern="^[0-9a-f]{64}$")
    """Of the bytes of NAME.jsonl; a set whose cases hash to something else is refused. Example: `sha256:
    9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08`
    """
    generator: str = ABSENT
    """What made the cases, for people. Example: `generator: ours.make_support`"""
    seed: int = ABSENT
    """The generator's seed, for people. Example: `seed: 7`"""

    @field_validator("version", mode="before")
    @classmethod
    def _whole_numbers_are_versions(cls, value: Any) -> Any:
        return str(value) if type(value) is int else value


class CalibrationFile(_SetFile):
    """NAME.yaml of a calibration set. It judges nothing, so it has no metrics."""

    kind: Literal["calibration"]
    """Says that quantizers may see it, and that it judges nothing. Example: `kind: calibration`"""


class EvalsetFile(_SetFile):
    """NAME.yaml of an evalset."""

    kind: Literal["evalset", "calibration"] = "evalset"  # "calibration" never gets here: see `_read`
    """What the set is for. Example: `kind: evalset`"""
    metrics: list[str] = Field(min_length=1)
    """What every case is scored by. Example: `metrics: [exact_match, json.schema]`"""
    lenient: list[str] = []
    """What JSON's wrapping is forgiven: `code_fence`, `trailing_text`, or both. Example: `lenient: [code_fence]`"""
    normalizers: list[str] = []
    """What `exact_match` takes off before it compares, in order. Example: `normalizers: [casefold]`"""
    dialect: str = ABSENT
    """How the tool calls of every case that declares nothing are written; `auto`: any dialect that reads calls.
    Example: `dialect: mistral`
    """

    @field_validator("metrics")
    @classmethod
    def _metrics_are_scored(cls, names: list[str]) -> list[str]:
        _refuse_twice("metric", names)
        for name in names:
            if name in PLANNED:
                raise stated(f"the metric {name!r} is not in this version")
            if name not in SCORED:
                raise stated(f"unknown metric {quote(name)}{nearest(name, SCORED)}")
        if (others := [name for name in names if name not in BY_LIKELIHOOD]) and len(others) < len(names):
            weighed = next(name for name in names if name in BY_LIKELIHOOD)
            raise stated(f"{weighed!r} is of choices that are read, {others[0]!r} of an answer: make two sets of them")
        return names

    @field_validator("lenient")
    @classmethod
    def _modes_are_known(cls, names: list[str]) -> list[str]:
        from qualgate.scoring.strict_json import LENIENT

        return _known("lenient mode", names, LENIENT)

    @field_validator("normalizers")
    @classmethod
    def _normalizers_are_known(cls, names: list[str]) -> list[str]:
        from qualgate.scoring.text import known

        return _known("normalizer", names, known())

    @field_validator("dialect")
    @classmethod
    def _dialect_is_known(cls, name: str) -> str:
        from qualgate.scoring.tools.dialects.registry import names
        from qualgate.scoring.tools.strict import AUTO

        return _known("dialect", [name], (AUTO, *names()))[0]


def _known(kind: str, names: list[str], known: Any) -> list[str]:
    _refuse_twice(kind, names)
    for name in names:
        if name not in known:
            raise stated(f"unknown {kind} {quote(name)}{nearest(name, known)}")
    return names


def _refuse_twice(kind: str, names: list[str]) -> None:
    if twice := [name for name in names if names.count(name) > 1]:
        raise stated(f"the {kind} {twice[0]!r} twice")


# ------------------------------------------------------------------------------------------------ where


@lru_cache(maxsize=1)
def shipped_folder() -> Path:
    """Where the shipped sets lie: the installed package, or `evalsets/` of a checkout."""
    spec = importlib.util.find_spec("qualgate_evalsets")
    if spec is not None and spec.submodule_search_locations:
        return Path(spec.submodule_search_locations[0])
    return Path(__file__).resolve().parents[1] / "evalsets"


Kind = Literal["evalset", "calibration"]


@lru_cache(maxsize=2)
def shipped(kind: Kind = "evalset") -> tuple[str, ...]:
    """Names of the shipped sets of one kind."""
    found = (path for path in shipped_folder().glob("*.yaml") if path.with_suffix(".jsonl").exists())
    return tuple(sorted(path.stem for path in found if _kind(read_yaml(path)) == kind))


def _kind(document: Document) -> Kind:
    calibrates = isinstance(document.value, dict) and document.value.get("kind") == "calibration"
    return "calibration" if calibrates else "evalset"


def is_path(ref: str) -> bool:
    """A reference with `/` or ending in .yaml is a file; a bare name is a shipped set."""
    return "/" in ref or ref.endswith((".yaml", ".yml"))


def name_of(ref: str | LmEvalTask) -> str:
    """The evalset's name: a path's stem, a bare name itself, a task's name."""
    if isinstance(ref, LmEvalTask):
        return ref.task
    return Path(ref).stem if is_path(ref) else ref


def locate(ref: str, relative_to: Path, kind: Kind | None = None) -> Path:
    """The YAML file that `ref` names; a bare name is a shipped set of `kind`, or of either. UsageError without one."""
    what = "calibration set" if kind == "calibration" else "evalset"
    if is_path(ref):
        path = relative_to / ref
        if os.path.isfile(path):  # Path.is_file raises for a name that is too long
            return path
        raise UsageError(f"no {what} at {path}")
    known = shipped(kind) if kind else (*shipped(), *shipped("calibration"))
    if ref in known:
        return shipped_folder() / f"{ref}.yaml"
    raise UsageError(
        f"no shipped {what} {quote(ref)}{nearest(ref, known)} (a set of your own is named by its path: ./{ref}.yaml)"
    )


# ------------------------------------------------------------------------------------------------- reading


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


def _read(path: Path) -> tuple[Evalset | CalibrationSet | None, list[Fault]]:
    document = read_yaml(path)
    header, faults = as_model(CalibrationFile if _kind(document) == "calibration" else EvalsetFile, document)
    data = path.with_suffix(".jsonl")
    if header is None:
        return None, faults
    if header.name != path.stem:
        faults.append(document.fault(("name",), f"name {header.name!r}, but the file is called {path.name}"))
    if data.resolve().parent != path.resolve().parent:
        faults.append(document.fault((), f"{data.name} leads out of its folder, to {data.resolve()}"))
        return None, faults
    if not data.is_file():
        faults.append(document.fault((), f"no {data.name} beside it"))
        return None, faults
    reader = _CaseReader(data, header)
    cases = tuple(reader.cases())
    faults += reader.faults
    if not reader.lines.line:
        faults.append(Fault(data, 1, "no cases"))
    faults += _hash_faults(document, header, reader.lines.sha256, path)
    if reader.added and not any(metric.startswith("tool_call.") for metric in reader.metrics):
        faults.append(document.fault(("dialect",), "`dialect` is of tool calls, and the set has no metric of them"))
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
        return replace(_as_evalset(header), **common), faults
    return CalibrationSet(**common), faults


def _as_evalset(header: EvalsetFile) -> Evalset:
    """What the YAML alone says of the set."""
    kept: dict[str, Any] = {name: tuple(getattr(header, name)) for name in ("metrics", "lenient", "normalizers")}
    return Evalset(name=header.name, version=header.version, sha256="", **kept)


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


def _hash_faults(document: Document, header: _SetFile, sha256: str, path: Path) -> Iterator[Fault]:
    if header.sha256 is None:
        if path.resolve().parent == shipped_folder().resolve():
            yield document.fault((), f"a shipped set states its hash; add `sha256: {sha256}`")
    elif header.sha256 != sha256:
        yield document.fault(
            ("sha256",),
            f"sha256 says {header.sha256}, but the cases hash to {sha256}. Either restore them, "
            f"or raise `version` and set `sha256: {sha256}`: a changed set is another set",
        )


def asked_again(sets: Iterable[Evalset]) -> tuple[tuple[Case, ...], ...]:
    """Cases of one or several sets that ask one question, whatever their ids: each a cluster to the gate."""
    asked: dict[str, list[Case]] = {}
    for item in sets:
        for case in item.cases:
            asked.setdefault(case.question, []).append(case)
    return tuple(tuple(cases) for cases in asked.values() if len(cases) > 1)


class _CaseReader:
    """Cases of one JSONL file, read line by line. Once `cases()` is spent, `sha256` and `faults` are whole.

    added: what the YAML says in place of every case that does not say it itself; it is part of the case from here on.
    """

    def __init__(self, path: Path, header: _SetFile) -> None:
        from qualgate.scoring.json_lines import JsonLines
        from qualgate.scoring.registry import scorers_of

        self.lines = JsonLines(path, MAX_LINE)
        self.name = header.name
        self._set = _as_evalset(header) if isinstance(header, EvalsetFile) else None  # None: nothing scores its cases
        self.metrics: tuple[str, ...] = self._set.metrics if self._set else ()
        self.added = {"dialect": header.dialect} if isinstance(header, EvalsetFile) and header.dialect else {}
        self._scorers = scorers_of(self.metrics)
        self._weighed = any(
            metric in BY_LIKELIHOOD for metric in self.metrics
        )  # its choices are read, nothing is written
        self._first_line: dict[str, int] = {}
        self._asked: dict[str, tuple[int, Any]] = {}  # what was asked → its first line and that case's cluster

    @property
    def sha256(self) -> str:
        """Of what is asked and how it is scored: the file's bytes, and what the YAML adds to them if it does."""
        return content_hash([self.lines.sha256, self.added]) if self.added else self.lines.sha256

    @property
    def faults(self) -> Iterator[Fault]:
        return (Fault(self.lines.path, line, message) for line, message in self.lines.faults)

    def cases(self) -> Iterator[Case]:
        from qualgate.scoring.multiple_choice import requests_of

        for line in self.lines:
            body, before = {**self.added, **line}, len(self.lines.faults)
            for message in self._faults_of(body):
                self.lines.fault(message)
            if self._weighed and len(self.lines.faults) == before:
                body |= {"requests": requests_of(body), "max_new_tokens": 0}
            if self._set and len(self.lines.faults) == before:
                self._fault_copies(body)
            if len(self.lines.faults) == before:
                yield Case(evalset=self.name, body=body)

    def _faults_of(self, body: dict[str, Any]) -> Iterator[str]:
        yield from self._identity_faults(body)
        yield from _prompt_faults(body)
        for key in OURS_TO_MAKE:
            if key in body:
                yield f"`{key}` is of lm-eval's tasks; a case of a file says what it asks in `messages` or `prompt`"
        for key in filter(body.__contains__, WITHOUT_EFFECT):
            yield f"`{key}` of a case has no effect; {WITHOUT_EFFECT[key]}"
        tokens = body.get("max_new_tokens")
        if self._weighed:
            yield from _weighed_faults(body, self.metrics[0])
        elif (self._set or "max_new_tokens" in body) and (type(tokens) is not int or tokens < 1):
            yield f"`max_new_tokens` must be a whole number from 1, {_found(body, 'max_new_tokens')}"
        if self._set is None:
            if not isinstance(body.get("answer", ""), str):
                yield f"`answer`, which is read after the prompt, must be a text; {_found(body, 'answer')}"
            return
        for scorer in self._scorers:
            yield from scorer.unscorable(body, self._set)

    def _identity_faults(self, body: dict[str, Any]) -> Iterator[str]:
        yield from identity_faults(body)
        if isinstance(body.get("id"), str):
            first = self._first_line.setdefault(body["id"], self.lines.line)
            if first != self.lines.line:
                yield f"duplicate id {quote(body['id'])}; first on line {first}"

    def _fault_copies(self, body: dict[str, Any]) -> None:
        """The same prompt under two ids is one observation, and two would prove twice what was seen once."""
        line, cluster = self._asked.setdefault(question_hash(body), (self.lines.line, body.get("cluster")))
        if line != self.lines.line and (cluster is None or cluster != body.get("cluster")):
            self.lines.fault(f"asks what line {line} asks; drop one of them, or give both the same `cluster`")


def identity_faults(body: dict[str, Any]) -> Iterator[str]:
    """What keeps a case from being told from others and grouped: `id`, `task`, `cluster`, `tags`."""
    case_id = body.get("id")
    if not isinstance(case_id, str) or not case_id or len(case_id) > 200 or not case_id.isprintable():
        yield f"`id` must be a text of 1 to 200 printable characters; {_found(body, 'id')}"
    for key in ("task", "cluster"):
        if key in body and (not isinstance(body[key], str) or not body[key]):
            yield f"`{key}` must be a text; {_found(body, key)}"
    tags = body.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        yield f"`tags` must be a list of texts; {_found(body, 'tags')}"


def _found(body: dict[str, Any], key: str) -> str:
    return f"found {quote(body[key])}" if key in body else "it is missing"


def _weighed_faults(body: dict[str, Any], metric: str) -> Iterator[str]:
    """Of a case whose choices are read: it has a plain prompt, and nothing is written."""
    if "messages" in body:
        yield f"`messages`: {metric} reads each choice right after a plain text; give that text as `prompt` instead"
    if "max_new_tokens" in body:
        yield f"`max_new_tokens`: {metric} has the model read `choices` and write nothing; take `max_new_tokens` out"


def _prompt_faults(body: dict[str, Any]) -> Iterator[str]:
    if ("messages" in body) == ("prompt" in body):
        yield f"a case has `messages` or `prompt`, {'not both' if 'prompt' in body else 'and this one has neither'}"
        return
    if "prompt" in body:
        if not isinstance(body["prompt"], str) or not body["prompt"]:
            yield f"`prompt` must be a text; {_found(body, 'prompt')}"
        return
    messages = body["messages"]
    if not isinstance(messages, list) or not messages:
        yield f"`messages` must be a list of messages; {_found(body, 'messages')}"
        return
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("content"), str):
            yield f"messages[{index}] must be an object with a `role` and a `content` text"
        elif message.get("role") not in ROLES:
            yield f"messages[{index}].role must be one of {', '.join(ROLES)}; {_found(message, 'role')}"
    if isinstance(messages[-1], dict) and messages[-1].get("role") in ("system", "assistant"):
        yield f"the last message must be the user's or a tool's, found {messages[-1]['role']!r}"
