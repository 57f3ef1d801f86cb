"""Of the row `chaos` its second half: every form of a right answer is read right, every outage is named.

Each form and outage of `forms`, `framings` and `outages` alone, and in pairs that a seed draws; of each the answers are
compared with the right ones (text, calls, why they ended, tokens counted), and requests are counted at the server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from random import Random
from typing import Any
from unittest.mock import patch

from qualgate.errors import InfrastructureError, QualgateError, UsageError
from qualgate.records import ArmSpec, Case, Job, JobFailure, JobResult, Prompt, Served, UnitKey
from qualgate.served import client, turns
from qualgate.served.asked import asked_of
from qualgate.served.job import run_served
from qualgate.served.one_by_one import ROUNDS
from qualgate.served.retries import FORM_TRIES, TRIES
from tests.verification.served import forms, framings, outages
from tests.verification.served.forms import Change, Events
from tests.verification.served.framings import CHUNKED, EVENT_STREAM, Wire
from tests.verification.served.striking import Act, Striking, Struck, chunk, head, running

QUESTIONS, AT_ONCE = 20, 2
MOST = 1.2  # requests a case, beside those that were answered by an outage
OUT_OF = 3  # one question in so many meets an outage that passes
TO_LEARN = 3 + AT_ONCE  # cases that may meet a fault of format before the arm ends or is asked whole
PATIENCE = 1.0  # s
SEED, PAIRS = 46, 24  # of pairs: of each two tables so many
AT_WORK = 4  # trials under way
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("look", "book")
]
Answers = dict[str, tuple[Any, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One job.

    ends: "right", "right or named", "named" by `fault` ("machinery" or "user"), or "kept": each answer has the text
    `words`. words: of the message, a pattern. times, every: as of `Striking`. met: outages that each `OUT_OF`th
    question meets besides. passes: what strikes is such as may be over when it is asked again.
    """

    name: str
    calls: bool
    stream: bool
    act: Act
    ends: str = "right"
    words: str = "."
    fault: str = "machinery"
    times: float = float("inf")
    every: int = 1
    met: int = 0
    passes: bool = False


STREAM = Trial(name="", calls=False, stream=True, act=Struck.right)
CALLS = replace(STREAM, calls=True)
WHOLE = replace(STREAM, stream=False)


@dataclass(frozen=True, slots=True)
class Came:
    """Case → text, why it ended, tokens of the prompt and of the answer; why others have none; how many came twice."""

    answers: Answers
    error: Exception | None
    doubled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What came of one. answered: "" where the job failed; wrong: what of it does not hold."""

    name: str
    came: str
    requests: int
    wrong: str = ""


def measure(quick: bool) -> list[Tried]:
    """What came of each. quick: every twenty-fourth."""
    every = [*trials(), *pairs()]
    right = {(calls, stream): answered(calls, stream) for calls in (False, True) for stream in (False, True)}
    with short_waits(), ThreadPoolExecutor(AT_WORK) as pool:
        tried = pool.map(
            lambda trial: attempt(trial, right[trial.calls, trial.stream]), every[::24] if quick else every
        )
        return list(tried)


@contextmanager
def short_waits() -> Iterator[None]:
    """A client that waits a hundredth of what it would before it asks again, and reads less."""
    pause = client.pause

    def soon(*given: Any) -> float | None:
        wait = pause(*given)
        return None if wait is None else wait / 100

    with (
        patch.object(client, "pause", soon),
        patch.object(turns, "pause", soon),
        patch.object(client, "MOST_BYTES", 2**22),
    ):
        yield


# ------------------------------------------------------------------------------------------------------- one trial


def attempt(trial: Trial, right: Answers) -> Tried:
    """Ask a job's questions of a server that does so."""
    server = Striking(lambda body: right_answer(trial.calls, body), trial.act, trial.times, every=trial.every)
    with running(server):
        came = ask(trial.calls, trial.stream, server.address)
    requests = server.asked.total()
    wrong = amiss(trial, came, right) or _too_many(trial, requests, failed=came.error is not None)
    told = "answered" if came.error is None else f"{type(came.error).__name__}: {came.error}"
    return Tried(name=trial.name, came=told[:400], requests=requests, wrong=wrong)


def amiss(trial: Trial, came: Came, right: Answers) -> str:
    """What does not hold; "" where all does."""
    if came.doubled:
        return f"doubled: {came.doubled}"
    if trial.ends == "kept":
        kept = all(trial.words in answer[0] for answer in came.answers.values())
        return "" if kept and len(came.answers) == QUESTIONS else "not kept as it came"
    if bad := [case for case, answer in came.answers.items() if not _alike(answer, right[case])]:
        return f"wrong: {came.answers[bad[0]]} for {right[bad[0]]}"
    if came.error is None:
        lost = QUESTIONS - len(came.answers)
        return f"lost: {lost}" if lost else "answered, though no answer was right" if trial.ends == "named" else ""
    if trial.ends == "right":
        return "not answered"
    whose = "machinery" if isinstance(came.error, InfrastructureError) else "user"
    if not isinstance(came.error, QualgateError) or trial.fault != whose:
        return f"the {whose}'s fault by its class, {type(came.error).__name__}"
    return "" if re.search(trial.words, str(came.error)) else f"not named: {trial.words}"


def _alike(came: Sequence[Any], right: Sequence[Any]) -> bool:
    """Counts may be missing, where a form has none, and never other."""
    return came[:2] == right[:2] and all(one in (None, count) for one, count in zip(came[2:], right[2:], strict=True))


def _too_many(trial: Trial, requests: int, *, failed: bool) -> str:
    passed = trial.met if trial.times == float("inf") else trial.times
    most = MOST * QUESTIONS + passed * -(-QUESTIONS // OUT_OF) + trial.met * AT_ONCE  # what it learns meanwhile
    if failed:
        most = (ROUNDS + 1) * AT_ONCE * TRIES if trial.passes else TO_LEARN * FORM_TRIES
    return f"{requests} requests, at most {most:g}" if requests > most else ""


def ask(calls: bool, stream: bool, address: str) -> Came:
    """What comes of a job, case by case."""
    served = Served(endpoint=address, stream=stream, patience=PATIENCE)
    prompts = []
    for number in range(QUESTIONS):
        body: dict[str, Any] = {"id": f"c-{number}", "messages": [{"role": "user", "content": f"question {number}"}]}
        body |= {"tools": TOOLS} if calls else {}
        asked = asked_of(Case(evalset="s", body=body), served, "hermes" if calls else "")
        key = UnitKey("v", "s", f"c-{number}")
        prompts.append(Prompt(key=key, case_hash="h", token_ids=(), max_new_tokens=40, asked=asked))
    job = Job(
        index=0,
        arm=ArmSpec(name="v", model="m", served=served),
        prompts=tuple(prompts),
        artifact="",
        drafted=False,
    )
    parts, failed, error = list[JobResult](), list[JobFailure](), None

    def hand(part: JobResult | JobFailure) -> None:
        _ = parts.append(part) if isinstance(part, JobResult) else failed.append(part)

    try:
        parts.append(run_served(job, {}, AT_ONCE, hand=hand))
    except Exception as raised:
        error = raised
    if failed and error is None:
        error = (UsageError if failed[0].refused else InfrastructureError)(failed[0].error)
    completions = [one for part in parts for one in part.completions]
    answers = {
        one.key.case_id: (
            one.text,
            "stop" if one.finish_reason == "eos" else one.finish_reason,
            one.prompt_tokens or None,
            one.counted,
        )
        for one in completions
    }
    return Came(answers, error, len(completions) - len(answers))


def answered(calls: bool, stream: bool) -> Answers:
    """The right answers."""
    with running(Striking(lambda body: right_answer(calls, body))) as server:
        right = ask(calls, stream, server.address).answers
    assert len(set(right.values())) == QUESTIONS
    return right


def right_answer(calls: bool, body: dict[str, Any]) -> tuple[int, Events, dict[str, Any]]:
    """The question's number, its right answer in events, and whole."""
    number = int(body["messages"][-1]["content"].split()[-1])
    texts = [
        "" if calls else part for part in (f"answer {number}", ": the ördér", f" {number}17 \U0001f30d", " is late.")
    ]
    said: list[dict[str, Any]] = [{"content": text} for text in texts if text]
    if calls:
        given = ("look", ['{"order": "A-', f"{number}", '17"}']), ("book", ['{"day": 1', f"{number}", "1}"])
        for at, (name, arguments) in enumerate(given):
            named = {"name": name, "arguments": ""}
            said.append(
                {"tool_calls": [{"index": at, "id": f"call_{number}_{at}", "type": "function", "function": named}]}
            )
            said += [{"tool_calls": [{"index": at, "function": {"arguments": part}}]} for part in arguments]
    finish = "tool_calls" if calls else "stop"
    usage = {"prompt_tokens": 9, "completion_tokens": 12 + number, "total_tokens": 21 + number}
    deltas = [{"role": "assistant", "content": ""}, *said]
    events = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    whole = {"choices": [{"index": 0, "message": forms.message_of(events), "finish_reason": finish}], "usage": usage}
    return number, [*events, {"choices": [], "usage": usage}], whole


# --------------------------------------------------------------------------------------------------------- all trials


def streams(
    *changes: Change,
    frames: Callable[[Sequence[Any]], bytes] = framings.FRAMES["named message"],
    wire: Wire = ((EVENT_STREAM, CHUNKED), framings.WIRES["all at once"][1]),
) -> Act:
    """A stream in this form; who asks for none gets the right answer whole."""

    async def act(to: Struck) -> None:
        if not to.streams:
            return await to.right()
        events: Any = deepcopy(list(to.events))
        for change in changes:
            events = list(change(events))
        lines, cut = wire
        raw, chunked = frames(events), CHUNKED in lines
        length = () if chunked or "Connection: close" in lines else (f"Content-Length: {len(raw)}",)
        await to.send(head(200, *lines, *length))
        for part in filter(None, cut(raw)):
            await to.send(chunk(part) if chunked else part)
        if chunked:
            await to.send(b"0\r\n\r\n")
        elif not length:
            to.writer.close()

    return act


def wholes(change: Callable[[Any], Any]) -> Act:
    async def act(to: Struck) -> None:
        await to.answer(change(deepcopy(to.whole)))

    return act


def trials() -> list[Trial]:
    """Each form and outage alone, streamed or whole as it is of either."""
    streamed = [
        *(("events", name, False, streams(change), "") for name, change in forms.EVENTS.items()),
        *(("calls", name, True, streams(change), "") for name, change in forms.CALLS.items()),
        *(("frames", name, False, streams(frames=frames), "") for name, frames in framings.FRAMES.items()),
        *(("frames", name, True, streams(frames=frames), "") for name, frames in framings.FRAMES.items()),
        *(("wires", name, False, streams(wire=wire), "") for name, wire in framings.WIRES.items()),
        *(("frames", name, False, streams(frames=form), of) for name, (form, of) in framings.DOUBTED_FRAMES.items()),
        *(("wires", name, False, streams(wire=wire), words) for name, (wire, words) in framings.DOUBTED_WIRES.items()),
    ]  # fmt: skip
    whole = [
        *(("whole", name, False, wholes(change), "") for name, change in forms.WHOLES.items()),
        *(("whole calls", name, True, wholes(change), "") for name, change in forms.WHOLE_CALLS.items()),
        *(("whole", name, False, wholes(change), words) for name, (change, words) in forms.DOUBTED_WHOLES.items()),
    ]
    of_forms = [
        Trial(name=f"{table}: {name}", calls=calls, stream=stream, act=act, words=words or ".",
              ends="right or named" if words else "right")
        for stream, every in ((True, streamed), (False, whole)) for table, name, calls, act, words in every
    ]  # fmt: skip
    return [*of_forms, *of_outages()]


def of_outages() -> Iterator[Trial]:
    """Each outage, streamed and whole: for a while, and for good."""
    for stream in (True, False):
        way = "streamed" if stream else "whole"
        for name, (act, words) in outages.PASSING.items():
            trial = Trial(name=f"passing, {way}: {name}", calls=False, stream=stream, act=act, words=words, passes=True)
            yield replace(trial, times=1, every=OUT_OF)
            ends = "right or named" if stream else "named"  # that of a stream may be cured by asking it whole
            yield replace(trial, name=f"for good, {way}: {name}", ends=ends)
        for name, (act, fault, words) in outages.LASTING.items():
            if stream or ("whole right" not in name and name not in ("a stream refused", "stream_options refused")):
                ends = "right or named" if "whole right" in name or name == "a whole answer refused" else "named"
                trial = Trial(name=f"lasting, {way}: {name}", calls=False, stream=stream, act=act, ends=ends)
                yield replace(trial, words=words, fault=fault, passes="of errors" in name)
        for name, (act, text) in outages.KEPT.items():
            yield Trial(name=f"kept, {way}: {name}", calls=False, stream=stream, act=act, ends="kept", words=text)


def pairs() -> list[Trial]:
    """Of each two tables as many pairs as PAIRS: two forms at once, and a form behind an outage that passes."""
    drawn, frames, wires = Random(SEED), framings.FRAMES, framings.WIRES
    passing = {name: act for name, (act, _) in outages.PASSING.items() if "too" not in name}
    return [
        *_pairs(drawn, "events, frames", forms.EVENTS, frames, lambda one, two: streams(one, frames=two)),
        *_pairs(drawn, "events, wires", forms.EVENTS, wires, lambda one, two: streams(one, wire=two)),
        *_pairs(drawn, "frames, wires", frames, wires, lambda one, two: streams(frames=one, wire=two)),
        *_pairs(drawn, "calls, frames", forms.CALLS, frames, lambda one, two: streams(one, frames=two), CALLS),
        *_pairs(drawn, "calls, wires", forms.CALLS, wires, lambda one, two: streams(one, wire=two), CALLS),
        *_pairs(drawn, "passing, events", passing, forms.EVENTS, lambda one, two: _behind(one, streams(two))),
        *_pairs(drawn, "passing, calls", passing, forms.CALLS, lambda one, two: _behind(one, streams(two)), CALLS),
        *_pairs(drawn, "passing, whole", passing, forms.WHOLES, lambda one, two: _behind(one, wholes(two)), WHOLE),
    ]  # fmt: skip


def _behind(outage: Act, form: Act) -> Act:
    """The outage the first time that each third question is asked, then the form."""
    met = set[str]()

    async def act(to: Struck) -> None:
        question = str(to.whole)
        if to.whole["usage"]["completion_tokens"] % OUT_OF or question in met:
            return await form(to)
        met.add(question)
        await outage(to)

    return act


def _pairs(
    drawn: Random,
    tables: str,
    first: dict[str, Any],
    second: dict[str, Any],
    made: Callable[[Any, Any], Act],
    asked: Trial = STREAM,
) -> Iterable[Trial]:
    for _ in range(PAIRS):
        one, two = drawn.choice(list(first)), drawn.choice(list(second))
        act, outages_met = made(first[one], second[two]), 1 if tables.startswith("passing") else 0
        yield replace(asked, name=f"{tables}: {one} + {two}", act=act, met=outages_met)
