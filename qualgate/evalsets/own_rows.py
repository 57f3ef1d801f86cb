"""Turn rows of a user's own JSON lines into cases: other tools' key names are mapped, and each mapping is reported.

The fields in a row decide its scorer: `tools` by its calls, `choices` by the choice, `tests` by running them,
`schema` by the schema, else `answer` or `references` by the answer. Rows of several kinds become several sets. Where no
row has a reference, answers are judged by their form alone.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Any

from qualgate.documents import Fault, quote, refuse
from qualgate.errors import UsageError, close_names
from qualgate.errors.misplaced import unreadable
from qualgate.evalsets.cases import MAX_LINE, OF_EVALPLUS
from qualgate.evalsets.own_tags import labels_in
from qualgate.evalsets.published import NotAsPublished, as_own
from qualgate.records.identity import question_hash
from qualgate.text.numbers import counted

QUESTION = ("prompt", "question", "input", "query", "instruction", "problem", "text")
ANSWER = ("answer", "output", "completion", "expected", "expected_output", "reference", "target", "label", "response",
          "gold", "ideal", "ground_truth", "solution")  # fmt: skip
CHATS = ("messages", "conversation", "conversations")
REFERENCES = ("references", "answers", "aliases", "answer_aliases", "gold_answers", "correct_answers")
BEFORE = ("context", "passage", "document")  # placed before the question
OURS = {  # our key → names in other tools
    "tools": ("tools", "functions"),
    "expected_calls": ("expected_calls", "tool_calls", "calls"),
    "choices": ("choices", "options"),
    "tests": ("tests", "test", "test_list"),
    "schema": ("schema", "json_schema"),
    "max_new_tokens": ("max_new_tokens", "max_tokens", "max_completion_tokens"),
}
KEPT = ("task", "tags", "cluster", "tolerance", "contains", "pattern", "dialect", "served_by", "entry_point",
        "test_setup_code", "fn_name", "prelude", "packages", *OF_EVALPLUS)  # fmt: skip
SPEAKERS = {"human": "user", "gpt": "assistant", "model": "assistant"}  # of `from` in place of `role`
FORMS = ("format.nonempty", "format.finished", "format.no_loop", "format.no_refusal", "format.same_language")
METRICS = {  # kind → what its cases are scored by
    "tools": ("tool_call.valid", "tool_call.correct"),
    "choices": ("multiple_choice",),
    "code": ("code.pass",),
    "json": ("json.schema",),
    "json-answers": ("json.schema", "exact_match"),
    "numbers": ("numeric",),
    "answers": ("exact_match",),
    "contains": ("contains",),
    "texts": ("f1",),
    "prompts": FORMS,
    "json-prompts": (*FORMS, "json.valid"),
    "calls": (*FORMS, "tool_call.valid"),
}
BY_FORM = ("prompts", "json-prompts", "calls")  # kinds whose cases have no reference
OF_BFCL = ("simple", "multiple", "parallel", "relevance", "java")  # every category of BFCL contains one of them
SETTINGS: dict[str, dict[str, Any]] = {"json-answers": {"normalizers": ("json",)}}  # kind → further keys of its YAML
FEWEST_ALONE = 50  # least cases for a separate set
LENGTHS = {
    "tools": 256,
    "code": 512,
    "numbers": 256,
    "choices": 64,
    "prompts": 256,
    "json-prompts": 256,
    "calls": 256,
}  # tokens, without a reference to estimate them from
LONG = 120  # characters of a reference beyond which almost no answer equals it
_NUMBER = re.compile(r"\s*[-+]?\$?[\d,]*\.?\d+\s*%?\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSet:
    """Cases of one kind, ready to be written as an evalset."""

    name: str
    kind: str  # a key of `METRICS`
    metrics: tuple[str, ...]
    cases: tuple[dict[str, Any], ...]
    lines: tuple[int, ...]  # of the user's file, one for each case
    length: int  # tokens of an answer, of cases that do not say their own

    def with_length(self, length: int) -> OwnSet:
        """The set with answers of so many tokens, except in cases with their own length."""
        cases = (
            {**case, "max_new_tokens": length} if case["max_new_tokens"] == self.length else case for case in self.cases
        )
        return replace(self, cases=tuple(cases), length=length)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRows:
    """A user's rows as sets, and notes on the conversion for the user."""

    sets: tuple[OwnSet, ...]
    notes: tuple[str, ...]


@dataclass(slots=True)
class _Reading:
    """Notes collected while reading."""

    chat: bool  # the model has a chat template
    mapped: Counter[tuple[str, str]] = field(default_factory=Counter)
    unread: list[dict[str, Any]] = field(default_factory=list)  # of each row, what nothing reads
    labels: Mapping[str, int] = field(default_factory=dict)  # key that became tags → how many values it has
    made_ids: int = 0
    copies: int = 0


_Row = tuple[int, str, dict[str, Any]]  # line, kind, case


_CONTRADICTS = (
    "is scored by something else: correct or remove one of them, list both answers in `references` if either is right, "
    "or give both rows one `cluster`"
)


class _Unusable(Exception):
    """A row that cannot be a case."""


def read_rows(path: Path, name: str, *, chat: bool, max_new_tokens: int | None = None) -> OwnRows:
    """Read the file's rows as sets. name: of the set; with several kinds, NAME-KIND. chat: ask in messages.

    max_new_tokens: for rows without their own; None: as long as the references need. UsageError names every row that
    cannot be a case, with its line and what to do.
    """
    from qualgate.scoring.json_lines import JsonLines

    reading, lines = _Reading(chat), JsonLines(path, MAX_LINE)
    rows: list[_Row] = []
    try:
        for row in lines:
            try:
                rows.append((lines.line, *_case(row, reading, f"{name}-{lines.line:04d}")))
            except _Unusable as why:
                lines.fault(str(why))
    except OSError as error:
        raise UsageError(unreadable(path, error)) from None
    if any(kind not in BY_FORM for _, kind, _ in rows):  # a row without a reference among others lacks it
        lines.faults += [(line, _MISSING[kind]) for line, kind, _ in rows if kind in BY_FORM]
    if lines.faults:
        refuse([Fault(path, line, message) for line, message in lines.faults])
    if not rows:
        raise UsageError(f"{path}: no rows; write one JSON object a line, such as {EXAMPLE}")
    rows = _without_copies(path, _with_tags(rows, reading), reading)
    rows = _split_json_prompts(rows)
    if any(kind == "answers" for _, kind, _ in rows):  # a number among texts is a text
        rows = [(line, "answers" if kind == "numbers" else kind, case) for line, kind, case in rows]
    kinds = dict.fromkeys(kind for _, kind, _ in rows)
    sets = [
        _own_set(kind if len(kinds) > 1 else "", name, [entry for entry in rows if entry[1] == kind], max_new_tokens)
        for kind in kinds
    ]
    return OwnRows(sets=tuple(sets), notes=tuple(_notes(reading, sets)))


EXAMPLE = '{"question": "Which order is refunded? Order 17, please.", "answer": "17"}'


def _case(row: Mapping[str, Any], reading: _Reading, made_id: str) -> tuple[str, dict[str, Any]]:
    """(kind, case) of a row; the case has no length if the row gives none."""
    try:
        row = dict(as_own(row, reading.chat))
    except NotAsPublished as error:
        raise _Unusable(str(error)) from None
    used: set[str] = set()
    case: dict[str, Any] = {"id": _id_of(row, reading, made_id)}
    question, reply = _question(row, reading, used)
    for our_key, names in OURS.items():
        if (key := _first(names, row)) is not None:
            case[our_key] = row[key]
            _note_use(key, our_key, reading, used)
    answer = _answer(row, reply, reading, used)
    if "expected_calls" not in case and isinstance(reply, dict) and reply.get("tool_calls"):
        case["expected_calls"] = reply["tool_calls"]
        reading.mapped["the last message's `tool_calls`", "expected_calls"] += 1
    case |= question | {key: row[key] for key in KEPT if key in row}
    if "tools" in case and any(name in str(row.get("category")) for name in OF_BFCL):
        case["category"] = row["category"]
        used.add("category")
    unread = {key: value for key, value in row.items() if key not in used | {*KEPT, "id"}}
    made = _with_references(case, answer, unread)
    reading.unread.append(unread)
    return made


def _with_references(case: dict[str, Any], answer: Any, unread: Collection[str]) -> tuple[str, dict[str, Any]]:
    """(kind, case with the references of that kind alone). unread: keys that may be misspelt."""
    if "tools" in case:
        if "expected_calls" not in case and answer is None:
            return _without_calls(case)
        if not isinstance(case.get("expected_calls"), list):
            raise _Unusable(NO_CALLS)
        return "tools", {**case, "expected_calls": [_call(call) for call in case["expected_calls"]]}
    if "choices" in case and answer is not None:
        return "choices", {**case, "answer": answer}
    if "tests" in case or "base_input" in case:
        return "code", case
    if isinstance(answer, bool | dict):
        answer = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
    if "schema" in case:
        return ("json", case) if answer is None else ("json-answers", {**case, "answer": str(answer)})
    if answer is None:
        if "contains" in case:
            return "contains", case
        if suggestion := _meant(unread):
            raise _Unusable(f"{NO_REFERENCE}{suggestion}")
        return "prompts", case
    if isinstance(answer, list):
        if not answer or not all(
            isinstance(reference, str | int | float) and str(reference).strip() for reference in answer
        ):
            raise _Unusable(f"several right answers must be a list of texts or numbers; found {quote(answer)}")
        is_long = any(len(str(reference)) > LONG for reference in answer)
        return "texts" if is_long else "answers", {**case, "references": [*map(str, answer)]}
    kind = "numbers" if not isinstance(answer, str) or _NUMBER.fullmatch(answer) else "answers"
    return kind, {**case, "answer": str(answer)}


def _without_calls(case: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A case that offers tools without right calls: any call that fits a schema is right, as in BFCL's relevance."""
    category = str(case.get("category"))
    if "irrelevance" in category:
        return "tools", {**case, "expected_calls": []}
    return "calls", {**case, "category": category if "relevance" in category else "relevance"}


NO_CALLS = "`tools` without `expected_calls`, a list: name the calls that are right, [] for none"
_NAMED = ", ".join(f"`{name}`" for name in ANSWER[1:6])
NO_REFERENCE = (
    f"nothing says what a right answer is. Add one of: `answer` ({_NAMED} do as well), `references`, `schema`, `tools` "
    "with `expected_calls`, `tests`, `choices` with `answer`"
)
_MISSING = {"prompts": NO_REFERENCE, "calls": NO_CALLS}


def _meant(unread: Iterable[str]) -> str:
    """Suggest a reference's key for a misspelt one."""
    for key in sorted(unread):
        for close in close_names(key, (*ANSWER, "references", "schema", "tests")):
            return f"; did you mean `{close}` by {quote(key)}?"
    return ""


def _question(row: dict[str, Any], reading: _Reading, used: set[str]) -> tuple[dict[str, Any], Any]:
    """(`messages` or `prompt`, the assistant's last message if the conversation ends with one)."""
    if (key := _first(CHATS, row)) is not None:
        _note_use(key, "messages", reading, used)
        messages = [_turn(message) for message in row[key]] if isinstance(row[key], list) else []
        reply = messages.pop() if messages and messages[-1].get("role") == "assistant" else None
        if not messages:
            raise _Unusable(f"`{key}` must be a list of messages with a question; found {quote(row[key])}")
        return {"messages": [{"role": message["role"], "content": message["content"]} for message in messages]}, reply
    key = _first(QUESTION, row)
    if key is None and "turns" in row:
        raise _Unusable(
            "rows with `turns` are cases of an evalset: write a YAML file of the same name beside this file, with "
            "`name`, `version` and `metrics: [tool_call.correct, turns.correct]`, and name that in the gate file's "
            "`evalsets` (docs/turns.md)"
        )
    if key is None or not isinstance(row[key], str):
        raise _Unusable(
            f"no key holds the question; found {quote(', '.join(row))}. Call it `question` ({_spellings(QUESTION[2:])} "
            f"do as well) or `messages`: {EXAMPLE}"
        )
    texts = [row[name] for name in BEFORE if isinstance(row.get(name), str)]
    if key in ("input", "text") and isinstance(row.get("instruction"), str):  # Alpaca's: what to do, and with what
        texts.append(row["instruction"])
        used.add("instruction")
    used.update(name for name in BEFORE if name in row)
    text = "\n\n".join(part for part in (*texts, row[key]) if part)
    if not reading.chat or (key == "prompt" and {"id", "max_new_tokens"} <= row.keys()):  # the latter is a case of ours
        _note_use(key, "prompt", reading, used)
        return {"prompt": text}, None
    used.add(key)
    reading.mapped[f"`{key}`", "the user's message"] += 1
    system = [{"role": "system", "content": row["system"]}] if isinstance(row.get("system"), str) else []
    used.add("system")
    return {"messages": [*system, {"role": "user", "content": text}]}, None


def _turn(message: Any) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise _Unusable(f"a message is an object with `role` and `content`; found {quote(message)}")
    role = message.get("role") or SPEAKERS.get(str(message.get("from")), str(message.get("from")))
    return {**message, "role": role, "content": message.get("content") or message.get("value") or ""}


def _answer(row: dict[str, Any], reply: Any, reading: _Reading, used: set[str]) -> Any:
    """Return the right answer of a row: a list if it gives several, the last reply of a conversation, None without any.

    reply: the assistant's last message. used: keys that were read; the answer's are added.
    """
    list_key = next((name for name in REFERENCES if isinstance(row.get(name), list) and name not in used), None)
    key = next((name for name in ANSWER if name in row and name not in used), None)
    if list_key is not None:
        _note_use(list_key, "references", reading, used)
        single_answer = [row[key]] if key is not None and row[key] not in row[list_key] else []
        used.update({key} if key is not None else ())
        return [*single_answer, *row[list_key]]
    if key is not None:
        _note_use(key, "answer", reading, used)
        return row[key]
    if isinstance(reply, dict) and reply["content"]:
        reading.mapped["the assistant's last message", "answer"] += 1
        return reply["content"]
    return None


def _call(written: Any) -> Any:
    """Convert OpenAI's `{"function": {"name", "arguments": "JSON"}}` to our form; leave the rest to the check."""
    call = written.get("function", written) if isinstance(written, dict) else written
    if not isinstance(call, dict) or not isinstance(call.get("arguments"), str):
        return call
    try:
        return {"name": call.get("name"), "arguments": json.loads(call["arguments"])}
    except ValueError:
        raise _Unusable(f"the arguments of an expected call are not valid JSON: {quote(call['arguments'])}") from None


def _id_of(row: dict[str, Any], reading: _Reading, made_id: str) -> str:
    if isinstance(row.get("id"), str | int) and not isinstance(row["id"], bool):
        return str(row["id"])
    reading.made_ids += 1
    return made_id


def _first(names: tuple[str, ...], row: Mapping[str, Any]) -> str | None:
    return next((name for name in names if name in row), None)


def _note_use(key: str, our_key: str, reading: _Reading, used: set[str]) -> None:
    used.add(key)
    if key != our_key:
        reading.mapped[f"`{key}`", f"`{our_key}`"] += 1


def _with_tags(rows: list[_Row], reading: _Reading) -> list[_Row]:
    """Turn labels among the unread keys into tags."""
    tags, reading.labels = labels_in(reading.unread)
    return [
        (line, kind, {**case, "tags": [*case.get("tags", []), *own_tags]} if own_tags else case)
        for (line, kind, case), own_tags in zip(rows, tags, strict=True)
    ]


def _split_json_prompts(rows: list[_Row]) -> list[_Row]:
    """Make prompts that ask for JSON a separate kind, unless they or the others are too few for a set."""
    prompts = {line: "json" in question_of(case).casefold() for line, kind, case in rows if kind == "prompts"}
    asking = sum(prompts.values())
    others = len(prompts) - asking
    if others and min(asking, others) < FEWEST_ALONE:
        return rows
    return [(line, "json-prompts" if prompts.get(line) else kind, case) for line, kind, case in rows]


def question_of(case: Mapping[str, Any]) -> str:
    """The case's prompt, or the last message of its conversation."""
    return str(case.get("prompt") or case["messages"][-1]["content"])


def _without_copies(path: Path, rows: list[_Row], reading: _Reading) -> list[_Row]:
    """Drop repeated questions, unless they name a `cluster`: their answers are one observation.

    UsageError where a question is repeated with another right answer.
    """
    first: dict[str, _Row] = {}
    unique, faults = [], []
    for row in rows:
        line, _, case = row
        earlier = first.setdefault(question_hash(case), row)
        if earlier is row or "cluster" in case:
            unique.append(row)
        elif _truth(case) == _truth(earlier[2]):
            reading.copies += 1
        else:
            faults.append(Fault(path, line, f"asks the same question as line {earlier[0]}, but {_CONTRADICTS}"))
    if faults:
        refuse(faults)
    return unique


def _truth(case: Mapping[str, Any]) -> dict[str, Any]:
    """What the case is asked and scored by."""
    return {key: value for key, value in case.items() if key not in ("id", "tags", "cluster", "max_new_tokens")}


def _own_set(kind: str, name: str, rows: list[_Row], length: int | None) -> OwnSet:
    """Make a set of rows of one kind. kind: ending of its name, or "". length: most new tokens of an answer.

    Without a length it is the kind's own, or as much as the longest reference needs.
    """
    rows_kind, cases = rows[0][1], [case for _, _, case in rows]
    longest = max((len(reference) for case in cases for reference in references_in(case)), default=0)
    length = length or LENGTHS.get(rows_kind) or min(1024, max(64, 64 * ceil((longest / 2 + 32) / 64)))
    return OwnSet(
        name=f"{name}-{kind}" if kind else name,
        kind=rows_kind,
        metrics=METRICS[rows_kind],
        cases=tuple({**case, "max_new_tokens": case.get("max_new_tokens", length)} for case in cases),
        lines=tuple(line for line, _, _ in rows),
        length=length,
    )


def _notes(reading: _Reading, sets: list[OwnSet]) -> Iterator[str]:
    """Yield notes for the user: which keys became which, ids made up, copies and unread keys left out, other
    metrics.
    """
    for (their_key, our_key), rows in reading.mapped.items():
        yield f"{their_key} became {our_key} ({counted(rows, 'row')})"
    if reading.made_ids:
        yield f"{counted(reading.made_ids, 'row has', 'rows have')} no `id`: each got one from its line"
    if reading.copies:
        rows_ask = counted(reading.copies, "row asks", "rows ask")
        yield f"{rows_ask} what an earlier one asks: left out, as one observation"
    if any(own_set.kind == "calls" for own_set in sets):
        yield (
            "rows offer `tools` and have no `expected_calls`: an answer is right if it calls tools as their schemas "
            "say; name the right calls ([] for none) to have them compared"
        )
    for key, count in reading.labels.items():
        yield f'`{key}` became tags ({counted(count, "value")}): a rule may ask `per: "tag:{key}"`'
    read = {key.partition(".")[0] for key in reading.labels}
    if unread := sorted({key for row in reading.unread for key in row} - read):
        yield f"left out, as nothing reads them: {', '.join(f'`{key}`' for key in unread)}"
    for own_set in sets:
        long_ones = sum(any(len(each) > LONG for each in references_in(case)) for case in own_set.cases)
        if own_set.metrics == ("exact_match",) and long_ones > len(own_set.cases) / 2:
            yield (
                f"{own_set.name}: most references are longer than {LONG} characters, and exact_match asks for every "
                "one of them: where wording may differ, write `metrics: [f1]`"
            )


def references_in(case: Mapping[str, Any]) -> list[str]:
    """Right answers that the case lists, as texts; one empty text if it lists none."""
    return [str(reference) for reference in case.get("references", [case.get("answer", "")])]


def _spellings(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names[1:6])
