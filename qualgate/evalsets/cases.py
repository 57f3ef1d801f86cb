"""Read a set's cases line by line, with the line of every fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from qualgate.documents import Fault, is_own, misspelt, quote
from qualgate.evalsets.header import EvalsetFile, SetFile, added_to_cases, as_evalset
from qualgate.evalsets.simulation import Sources
from qualgate.evalsets.trajectories import read_turns
from qualgate.records import Case
from qualgate.records.identity import content_hash, question_hash
from qualgate.records.metrics import BY_LIKELIHOOD, BY_TRAJECTORY, TURNS

MAX_LINE = 8 * 2**20  # bytes
ROLES = ("system", "user", "assistant", "tool")
OURS_TO_MAKE = ("requests", "until")  # keys that only lm-eval's tasks set: texts to read, texts that stop an answer
_OF_ALL_CASES = "it is one for all cases of a run: set it in the gate file, `generation: {%s: …}`"
_LENGTH = "a case says how long its answer may be with `max_new_tokens`"
WITHOUT_EFFECT = {  # keys that other tools read and nothing here does → what to do instead
    **{name: _OF_ALL_CASES % name for name in ("temperature", "top_k", "top_p", "min_p", "seed", "repeats")},
    **{name: _OF_ALL_CASES % name for name in ("repetition_penalty", "presence_penalty", "frequency_penalty")},
    "do_sample": _OF_ALL_CASES % "temperature",
    **dict.fromkeys(
        ("max_tokens", "max_completion_tokens", "max_output_tokens", "max_gen_toks", "max_length"), _LENGTH
    ),
    "stop": "an answer ends where the model ends it or at `max_new_tokens`: take it out",
}
_TESTS = ("tests", "test", "test_list")  # alternative keys of a program's tests
OF_EVALPLUS = ("base_input", "plus_input", "canonical_solution", "atol", "task_id")  # read if the first is present
READ = frozenset({  # keys of a case's body
    "id", "task", "tags", "cluster", "messages", "prompt", "max_new_tokens", "answer", "choices", "delimiter",
    "references", "contains", "pattern",
    "constraint", "tolerance", "schema", "formats", "tools", "expected_calls", "dialect", "served_by", "reasoning",
    "category", "refuse", "turns", *_TESTS, "test_setup_code", "entry_point", "fn_name", "prelude", "packages",
    "simulation", "state", "recorded",
    "language", "instruction_id_list", "kwargs", *OURS_TO_MAKE, *WITHOUT_EFFECT,
})  # fmt: skip
# Keys that a misspelt one may be meant for; `name` is none for `fn_name`.
_MEANT = READ - {*_TESTS[1:], *OURS_TO_MAKE, *WITHOUT_EFFECT, "fn_name", "prelude", "simulation", "recorded"}
_EITHER = (_TESTS, ("messages", "prompt"))  # alternatives: if one is present, the others are not missing


class CaseReader:
    """Reads the cases of one JSONL file line by line. After `cases()`, `sha256` and `faults` are complete.

    added: defaults from the YAML for cases without their own; they become part of the case.
    """

    def __init__(self, path: Path, header: SetFile, simulation: Sources = ()) -> None:
        """Prepare to read a set's cases from its JSONL file. simulation: sources that state-based scores run."""
        from qualgate.scoring.json_lines import JsonLines
        from qualgate.scoring.registry import scorers_of

        self.lines = JsonLines(path, MAX_LINE)
        self.name = header.name
        self._set = as_evalset(header) if isinstance(header, EvalsetFile) else None  # None: nothing scores its cases
        if self._set:
            self._set = replace(self._set, simulation=simulation)
        self.metrics: tuple[str, ...] = self._set.metrics if self._set else ()
        self.added = added_to_cases(header, simulation)
        self._scorers = scorers_of(self.metrics)
        self._calls = any(metric.startswith("tool_call.") or metric in BY_TRAJECTORY for metric in self.metrics)
        self._weighed = any(
            metric in BY_LIKELIHOOD for metric in self.metrics
        )  # its choices are read, nothing is written
        self._first_line: dict[str, int] = {}
        self._questions: dict[str, tuple[int, Any]] = {}  # what was asked → its first line and that case's cluster

    @property
    def sha256(self) -> str:
        """Hash of questions and scoring: of the file's bytes and what the YAML adds."""
        return content_hash([self.lines.sha256, self.added]) if self.added else self.lines.sha256

    @property
    def faults(self) -> Iterator[Fault]:
        """Faults of all lines read so far."""
        return (Fault(self.lines.path, line, message) for line, message in self.lines.faults)

    def cases(self) -> Iterator[Case]:
        """Yield the cases without a fault, in order; can be read once."""
        from qualgate.scoring.multiple_choice import requests_of

        for line in self.lines:
            row, before = {**self.added, **line}, len(self.lines.faults)
            bodies, faults = self._turns_of(row) if self._has_turns(row) else ((row,), tuple(self._faults_of(row)))
            for message in faults:
                self.lines.fault(message)
            for body in bodies:
                if self._weighed and len(self.lines.faults) == before:
                    body |= {"requests": requests_of(body), "max_new_tokens": 0}
                if self._set and len(self.lines.faults) == before:
                    self._fault_copies(body)
                if len(self.lines.faults) == before:
                    yield Case(evalset=self.name, body=body)

    def _has_turns(self, row: dict[str, Any]) -> bool:
        """Whether `turns` is our key: it has tool calls, or is all that the row asks. Rows of other tools also have a
        key of that name, beside a question."""
        return "turns" in row and (self._calls or not {"messages", "prompt"} & row.keys())

    def _turns_of(self, row: dict[str, Any]) -> tuple[tuple[dict[str, Any], ...], tuple[str, ...]]:
        """Split a row with `turns` into cases: (cases, faults). A fault of several turns is reported for the first."""
        if not self._calls:
            return (), (f"`turns` are of tool calls, and the set has no metric of them, such as {TURNS}",)
        bodies, faults = read_turns(row)
        if faults := (*self._identity_faults(row), *faults):
            return (), faults
        by_message: dict[str, str] = {}
        for index, body in enumerate(bodies):
            for message in self._faults_of(body):
                by_message.setdefault(message, f"turns[{index}]: {message}")
        return bodies, tuple(by_message.values())

    def _faults_of(self, body: dict[str, Any]) -> Iterator[str]:
        """Yield what is wrong with one case: identity, keys, prompt, length, and what the set's scorers need."""
        yield from self._identity_faults(body)
        yield from misspelt_keys(body)
        yield from _prompt_faults(body)
        for key in OURS_TO_MAKE:
            if key in body:
                yield f"`{key}` is of lm-eval's tasks; a case of a file says what it asks in `messages` or `prompt`"
        if "reasoning" in body:
            yield from self._reasoning_faults(body)
        if "format.same_language" in self.metrics:
            yield from _language_faults(body)
        if "constraint" in body:
            yield from self._constraint_faults(body["constraint"])
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

    def _reasoning_faults(self, body: dict[str, Any]) -> Iterator[str]:
        from qualgate.scoring.reasoning import faults

        if self._set is None or self._weighed:
            yield "`reasoning` of a case has no effect: nothing is answered here, texts are read; take it out"
        else:
            yield from faults(body)

    def _constraint_faults(self, constraint: Any) -> Iterator[str]:
        from qualgate.scoring.constraint import constraint_fault

        if self._set is None or self._weighed:
            yield "`constraint` of a case has no effect: nothing is answered here, texts are read; take it out"
        elif fault := constraint_fault(constraint):
            yield fault

    def _fault_copies(self, body: dict[str, Any]) -> None:
        """Report a prompt that is repeated under another id: both are one observation."""
        line, cluster = self._questions.setdefault(question_hash(body), (self.lines.line, body.get("cluster")))
        if line != self.lines.line and (cluster is None or cluster != body.get("cluster")):
            self.lines.fault(f"asks what line {line} asks; drop one of them, or give both the same `cluster`")


def _language_faults(body: dict[str, Any]) -> Iterator[str]:
    from qualgate.scoring.language import faults

    yield from faults(body)


def identity_faults(body: dict[str, Any]) -> Iterator[str]:
    """Yield faults of the keys that identify and group a case: `id`, `task`, `cluster`, `tags`."""
    case_id = body.get("id")
    if not isinstance(case_id, str) or not case_id or len(case_id) > 200 or not case_id.isprintable():
        yield f"`id` must be a text of 1 to 200 printable characters; {_found(body, 'id')}"
    for key in ("task", "cluster"):
        if key in body and (not isinstance(body[key], str) or not body[key]):
            yield f"`{key}` must be a text; {_found(body, key)}"
    tags = body.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        yield f"`tags` must be a list of texts; {_found(body, 'tags')}"


def misspelt_keys(body: dict[str, Any], also: Iterable[str] = ()) -> Iterator[str]:
    """Yield keys that resemble an absent one. also: keys that another package's scorer reads."""
    keys = frozenset(body)
    present = {key for either in _EITHER if not keys.isdisjoint(either) for key in either}
    yield from misspelt(keys, READ.union(also, OF_EVALPLUS), _MEANT.union(also) - present)


def unread_keys(cases: Iterable[Case]) -> dict[str, int]:
    """Key that nothing reads → number of cases with it; keys marked as the user's own are left out."""
    counts = Counter(key for case in cases for key in case.body.keys() - _read_of(case.body) if not is_own(key))
    return dict(sorted(counts.items()))


def _read_of(body: dict[str, Any]) -> frozenset[str]:
    return READ.union(OF_EVALPLUS) if OF_EVALPLUS[0] in body else READ


def _found(body: dict[str, Any], key: str) -> str:
    return f"found {quote(body[key])}" if key in body else "it is missing"


def _weighed_faults(body: dict[str, Any], metric: str) -> Iterator[str]:
    """Yield faults of a case scored by likelihood: it needs a plain prompt, and nothing is generated."""
    if "messages" in body:
        yield f"`messages`: {metric} reads each choice right after a plain text; give that text as `prompt` instead"
    if "max_new_tokens" in body:
        yield f"`max_new_tokens`: {metric} has the model read `choices` and write nothing; take `max_new_tokens` out"


def _prompt_faults(body: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with `messages` or `prompt`, of which a case has one."""
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
