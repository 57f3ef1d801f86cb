"""The row `chaos`: whatever becomes of a third of a job's answers, none is lost, none comes twice, none is wrong.

Each misbehaviour strikes the same questions for a while, and then for good. For a while: the job's answers are the
right ones. For good: they are, or the job fails whole, by the machinery's fault; and asked again of a mended server it
is answered whole. Times are shortened: what waits 10 minutes of a server waits half a second here. Of forms in which a
right answer is written, and of outages, see `wire_chaos`.
"""

from __future__ import annotations

import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args
from unittest.mock import patch

import aiohttp
from tokenizers import Tokenizer

from qualgate.errors import InfrastructureError
from qualgate.records import ArmSpec, Case, Job, JobResult, Prompt, Served, UnitKey
from qualgate.served import client, network, turns
from qualgate.served.asked import asked_of
from qualgate.served.job import run_served
from qualgate.served.retries import pause
from tests.tiny_models import save_byte_tokenizer
from tests.verification.goals import SERVED
from tests.verification.served import misbehaviours, wire_chaos
from tests.verification.served.striking import Act, Striking, running

QUESTIONS, AT_ONCE = 9, 4
WHILE = 2  # times that a question is struck before it is answered
PATIENCE = 1.0  # s that a server is left alone for its limits, of waits that are shortened
LONG = 30.0  # s in which a job must have ended
SLOWER = 16.0  # times as long, where the machine may have been busy
AT_WORK = 6  # cases under way
Kind = Literal["whole", "stream", "told", "calls"]
Lasts = Literal["for a while", "for good"]
KINDS: dict[Kind, Sequence[dict[str, Act]]] = {
    "whole": (misbehaviours.AT_CONNECTIONS, misbehaviours.WHOLES),
    "stream": (misbehaviours.AT_CONNECTIONS, misbehaviours.STREAMS),
    "told": (misbehaviours.TOLD,),
    "calls": (misbehaviours.CALLS,),
}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("look", "book")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Of one misbehaviour: what came of the job, and of how many questions the answer was lost, doubled or wrong."""

    kind: Kind
    what: str
    lasts: Lasts
    came: str
    lost: int = 0
    doubled: int = 0
    wrong: int = 0

    @property
    def holds(self) -> bool:
        return not (self.lost or self.doubled or self.wrong) and not self.came.startswith("!")


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rounds and the row. quick: every fourth case."""
    every: list[tuple[Kind, str, Act]] = [
        (kind, what, act) for kind, tables in KINDS.items() for table in tables for what, act in table.items()
    ]
    with tempfile.TemporaryDirectory() as folder:
        save_byte_tokenizer(Path(folder))
        for kind in KINDS:
            right_answers(folder, kind)
        outcomes = _side_by_side([Trying(folder, *one) for one in (every[::4] if quick else every)])
    tried = wire_chaos.measure(quick)
    failed = [one for one in outcomes if not one.holds] or [one for one in tried if one.wrong]
    told = {
        "cases": len(outcomes) // 2,
        "forms, outages and pairs of them": len(tried),
        "of these not as they should": sum(bool(one.wrong) for one in tried),
        "kinds of misbehaviour": len({one.what for one in outcomes}),
        **{name: sum(getattr(one, name) for one in outcomes) for name in ("lost", "doubled", "wrong")},
        "otherwise failed": sum(one.came.startswith("!") for one in outcomes),
    }
    few = f"{told['cases']} cases" if quick else None
    row = SERVED.row("chaos", told, met=not failed and len(every) >= 60, few=few)
    return [asdict(one) for one in (*outcomes, *tried)], [row]


@contextmanager
def hurried(times: float = 1.0) -> Iterator[None]:
    """The client with short waits, and small bounds on what a server may send. times: its bounds on time by so many."""

    def soon(*given: Any) -> float | None:
        wait = pause(*given)
        return None if wait is None else wait / 100

    with (
        patch.object(network, "TIMEOUT", aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=0.5 * times)),
        patch.object(client, "WHOLE", 0.5 * times),
        patch.object(client, "MOST_BYTES", 2**22),
        patch.object(client, "pause", soon),
        patch.object(turns, "pause", soon),
    ):
        yield


def _side_by_side(cases: Sequence[Trying]) -> list[Outcome]:
    """Both outcomes of each, in their order. One that may have come of too little time
    on a busy machine is tried again alone, with more."""
    each = [(case, lasts) for case in cases for lasts in get_args(Lasts)]
    with hurried(), ThreadPoolExecutor(AT_WORK) as pool:
        outcomes = list(pool.map(lambda one: one[0].outcome(one[1]), each))
    with hurried(SLOWER):
        return [
            replace(case, long=LONG * SLOWER).outcome(lasts) if outcome.came.startswith("!") else outcome
            for (case, lasts), outcome in zip(each, outcomes, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Trying:
    """One misbehaviour tried on one kind of question."""

    folder: str
    kind: Kind
    what: str
    act: Act
    long: float = LONG

    def outcome(self, lasts: Lasts) -> Outcome:
        right = right_answers(self.folder, self.kind)
        server = Striking(self._answer, self.act, WHILE if lasts == "for a while" else float("inf"))
        with running(server):
            came, texts = self._asked(server.address)
            if lasts == "for a while" and not texts:
                came = f"! not answered in the end: {came}"
            elif not texts and not came.startswith("!"):
                server.act = None
                again, texts = self._asked(server.address)
                came = came if again == "answered" else f"! not answered when it was mended: {again}"
        lost = [name for name in right if name not in texts]
        return Outcome(
            kind=self.kind,
            what=self.what,
            lasts=lasts,
            came=came,
            lost=len(lost),
            doubled=sum(count - 1 for count in Counter(name for name, _ in texts.items()).values()),
            wrong=sum(text != right[name] for name, text in texts.items()),
        )

    def _answer(self, body: dict[str, Any]) -> tuple[int, list[dict[str, Any]], dict[str, Any]]:
        return answer(self.folder, self.kind, body)

    def _asked(self, address: str) -> tuple[str, dict[str, tuple[Any, ...]]]:
        """What came of a job, "!" before what should not have; and its answers by case, {} where it failed."""
        came: list[Any] = []

        def work() -> None:
            try:
                came.append(ask(self.folder, self.kind, address))
            except Exception as error:
                came.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(self.long)
        match came:
            case []:
                return f"! no end within {self.long:g} s", {}
            case [InfrastructureError()]:
                return "the machinery's fault", {}
            case [Exception() as error]:
                return f"! {type(error).__name__}: {error}"[:300], {}
        return "answered", texts_of(came[0])


def texts_of(result: JobResult) -> dict[str, tuple[Any, ...]]:
    """Case → what is kept of its answer."""
    assert len({one.key for one in result.completions}) == len(result.completions) == QUESTIONS
    return {one.key.case_id: (one.text, one.token_ids, one.finish_reason) for one in result.completions}


@cache
def right_answers(folder: str, kind: Kind) -> dict[str, tuple[Any, ...]]:
    """What a server says that strikes nothing."""
    with running(Striking(lambda body: answer(folder, kind, body))) as server:
        found = texts_of(ask(folder, kind, server.address))
    assert len(set(found.values())) == QUESTIONS
    return found


def ask(folder: str, kind: Kind, address: str) -> JobResult:
    """A job of questions of this kind."""
    told = kind == "told"
    served = Served(
        endpoint=address, engine="vllm", stream=kind != "whole", tokenizer=folder if told else "", patience=PATIENCE
    )
    prompts = []
    for number in range(QUESTIONS):
        body: dict[str, Any] = {"id": f"c-{number}", "prompt": f"question {number}"}
        if kind == "calls":
            said = [{"role": "user", "content": f"question {number}"}]
            body = {"id": f"c-{number}", "messages": said, "tools": TOOLS}
        asked = asked_of(Case(evalset="s", body=body), served, "hermes" if kind == "calls" else "")
        tokens = (number, 7) if told else ()
        key = UnitKey("v", "s", f"c-{number}")
        prompts.append(Prompt(key=key, case_hash="h", token_ids=tokens, max_new_tokens=40, asked=asked))
    arm = ArmSpec(name="v", model="m", served=served)
    return run_served(Job(index=0, arm=arm, prompts=tuple(prompts), artifact="", drafted=False), {}, AT_ONCE)


def answer(folder: str, kind: Kind, body: dict[str, Any]) -> tuple[int, list[dict[str, Any]], dict[str, Any]]:
    """The question's number, and its right answer in pieces and whole; each has the number in it."""
    number = (
        body["prompt"][0]
        if kind == "told"
        else int(str(body.get("messages") or body["prompt"]).split()[-1].strip("'}]"))
    )
    if kind == "calls":
        return number, *_calls(number)
    parts = [f"answer {number}", ": the order", f" {number}17", " is late."]

    def spelled(text: str) -> dict[str, Any]:
        return {"token_ids": _tokenizer(folder).encode(text).ids} if kind == "told" else {}

    said = len(spelled("".join(parts)).get("token_ids", parts))
    usage = {"prompt_tokens": 2, "completion_tokens": said}
    pieces = [{"choices": [{"index": 0, "text": text, "finish_reason": None, **spelled(text)}]} for text in parts]
    end = {"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}
    text = "".join(parts)
    whole = {"choices": [{"index": 0, "text": text, "finish_reason": "stop", **spelled(text)}], "usage": usage}
    return number, [*pieces, end, {"choices": [], "usage": usage}], whole


@cache
def _tokenizer(folder: str) -> Tokenizer:
    """Without transformers, whose import takes longer than a client waits for an answer here."""
    return Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))


def _calls(number: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Two calls, whose arguments come in three pieces each."""
    given = [("look", ['{"order": "A-', f"{number}", '17"}']), ("book", ['{"day": ', f"{number}", "1}"])]
    deltas = []
    for at, (name, parts) in enumerate(given):
        deltas.append({"index": at, "id": f"call-{at}", "function": {"name": name, "arguments": ""}})
        deltas += [{"index": at, "function": {"arguments": part}} for part in parts]
    made = [
        {"index": at, "id": f"call-{at}", "function": {"name": name, "arguments": "".join(parts)}}
        for at, (name, parts) in enumerate(given)
    ]
    pieces = [{"choices": [{"index": 0, "delta": {"tool_calls": [one]}, "finish_reason": None}]} for one in deltas]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    usage = {"prompt_tokens": 9, "completion_tokens": 30}
    message = {"role": "assistant", "content": None, "tool_calls": made}
    whole = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}], "usage": usage}
    return [*pieces, end, {"choices": [], "usage": usage}], whole
