"""What a few fixed questions show of a server before an arm's cases are asked: whether it does what it is told to.

Each probe says what it asked, what it saw, and what is wrong, "" where nothing is. What contradicts what the arm
declares (another count of tokens than was sent, more tokens than were asked for, a prompt that is read in part, the
answer to another question) ends the run: its answers would be to other questions. The rest is a warning, for a server
is judged as it is. What only two arms together show (`tokens`, `log-probs`) is compared by who reports both.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from qualgate.errors import InfrastructureError, UsageError
from qualgate.records import UNBOUND, ArmSpec, Probe, Prompt, Wire
from qualgate.served.answer import Answer
from qualgate.served.charging import Charges
from qualgate.served.client import Client
from qualgate.served.faults import NotRecorded, NotServed, RequestRefused
from qualgate.served.ledger import Ledger
from qualgate.served.tape import session_of

Of = TypeVar("Of")

FIXED = (
    "The warehouse in Lyon ships 40 crates of glass on Monday.",
    '{"order": "A-17", "lines": [{"sku": 9, "n": 2}], "note": "fragile"}',
    "Größe: 12 µm – naïve café, 東京, 1 000 000.",
)
OPEN = "List words that come to your mind, one after the other, in any order:"
COUNT = "Count from one to one hundred in words, separated by commas: one, two, three,"
ORDER = "What is the status of order A-17? Use the tool to look it up."
WORDED = tuple(f"Write this number in words, and nothing else: {number}" for number in (4711, 38, 902, 15, 660, 7))
STARTS = ("Alpha.", "Bravo.", "Charlie.")  # so that nothing of one prompt is known from another
FILLER = " one two three four"
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up_order_status",
        "description": "The status of an order.",
        "parameters": {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]},
    },
}
HOT, DRAWN_TOKENS, FEW_TOKENS, CALL_TOKENS = 2.0, 16, 4, 128
STOPPED_TOKENS = 24  # of the answer that a text in it is to end
LEAST_FILLERS, MOST_FILLERS = 128, 20_000  # of the longest prompt
READ_WHOLE = 0.85  # of the tokens that a part of a prompt adds, where the part before added all of its own
TRIES, SECONDS = 2, 180.0  # of one request; of all probes of an arm


class Contradicted(UsageError):
    """The server shows to be another than the arm says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    """One arm's server, asked as its cases are."""

    client: Client
    arm: ArmSpec
    chats: bool  # by messages; else by a text

    async def ask(self, text: str, most: int, **more: Any) -> Answer:
        path, asked = ("/chat/completions", {"messages": [{"role": "user", "content": text}]}) if self.chats else (
            "/completions", {"prompt": text}
        )  # fmt: skip
        return await self.client.ask(path, self.body({**asked, "max_tokens": most, "temperature": 0.0, **more}))

    def body(self, said: Mapping[str, Any]) -> dict[str, Any]:
        assert self.arm.served is not None, "asked of served arms alone"
        return {"model": self.arm.model, **said, **json.loads(self.arm.served.extra_body or "{}")}


def probe(
    arm: ArmSpec, prompts: Sequence[Prompt], at_once: int, wire: Wire = UNBOUND, ledger: Ledger | None = None
) -> tuple[Probe, ...]:
    """What its server shows, in this order: own answers, tokens, temperature, seed, max_tokens, context, stop, tools
    (where cases have some), log-probs.

    prompts: that it will be asked; the longest says how long a prompt it must read whole. Contradicted (64) for what no
    answer may rest on. A server that does not answer now has one entry that says so: what asks its cases tells more.
    """
    assert arm.served is not None, "asked of served arms alone"
    charges = Charges(ledger, arm.name, arm.served) if ledger is not None else None
    try:
        session = session_of(wire, arm.name, arm.model, arm.served, "probes")
        client = Client(arm.name, arm.served, at_once, tries=TRIES, session=session, charges=charges)
        return asyncio.run(asyncio.wait_for(_probe(arm, prompts, client), SECONDS))
    except (InfrastructureError, NotServed, TimeoutError) as error:
        told = str(error) or f"no answers within {SECONDS:g} s"
        return (Probe(name="probes", asked="fixed questions", saw=told[:300], fault="they were not made"),)


async def _probe(arm: ArmSpec, prompts: Sequence[Prompt], opened: Client) -> tuple[Probe, ...]:
    chats = any('"messages"' in prompt.asked for prompt in prompts)
    async with opened as client:
        asking = _Asking(client=client, arm=arm, chats=chats)
        own = await _own(asking)  # while nothing else is asked
        found = await _all(
            _tokens(asking),
            _drawing(asking, any(prompt.sampling.drawn for prompt in prompts)),
            _max_tokens(asking),
            _context(asking, _fillers(prompts)),
            _stop(asking, any(prompt.until for prompt in prompts)),
            *([_tools(asking)] if chats and any('"tools"' in prompt.asked for prompt in prompts) else []),
            _log_probs(asking),
        )
    return tuple(one for some in (own, *found) for one in some)


async def _all(*work: Awaitable[Of]) -> list[Of]:
    """What each gives. Where some fail, the first failure once all have ended: a recording then holds what each of them
    was asked, tries after failures too, and a replay asks no other."""
    found = await asyncio.gather(*work, return_exceptions=True)
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return [one for one in found if not isinstance(one, BaseException)]


async def _tokens(asking: _Asking) -> list[Probe]:
    asked = f"how many tokens {len(FIXED)} fixed prompts have"
    answers = await _all(*(asking.ask(text, 1) for text in FIXED))
    counts = [answer.prompt_tokens for answer in answers]
    if None in counts:
        return [Probe(name="tokens", asked=asked, saw="it does not tell")]
    values = tuple(float(count) for count in counts if count is not None)
    return [Probe(name="tokens", asked=asked, saw=", ".join(f"{one:g}" for one in values), values=values)]


async def _drawing(asking: _Asking, drawn: bool) -> list[Probe]:
    """drawn: whether the run draws its answers, so that a seed matters."""
    asked = f"the same at temperature 0 twice, and at {HOT:g} by three seeds"
    try:
        greedy, again, *hot = await _all(
            asking.ask(OPEN, DRAWN_TOKENS),
            asking.ask(OPEN, DRAWN_TOKENS),
            *(asking.ask(OPEN, DRAWN_TOKENS, temperature=HOT, seed=seed) for seed in (1, 1, 2, 3)),
        )
    except RequestRefused as refused:  # some take no seed, or no temperature this high
        return [Probe(name="temperature", asked=asked, saw=f"it refuses: {str(refused)[:200]}")]
    cold, warmed = map(_told, (greedy, again))
    one, repeated, *others = map(_told, hot)
    other = len({one, *others})
    saw = f"{'the same' if cold == warmed else 'another'} answer at 0, {other} different at {HOT:g}"
    fault = ""
    if cold != warmed:
        fault = "it does not say the same twice at temperature 0: it draws all the same, or computes otherwise"
    elif other == 1 and cold:
        fault = "drawn answers are all alike: it ignores `temperature`, or its model has no doubt here"
    seen = "the same answer" if one == repeated else "another answer"
    wrong = "it ignores `seed`: an answer cannot be drawn again" if one != repeated and drawn else ""
    return [
        Probe(name="temperature", asked=asked, saw=saw, fault=fault),
        Probe(name="seed", asked=f"the same at temperature {HOT:g} twice by one seed", saw=seen, fault=wrong),
    ]


async def _max_tokens(asking: _Asking) -> list[Probe]:
    answer = await asking.ask(COUNT, FEW_TOKENS)
    asked, count = f"an answer of at most {FEW_TOKENS} tokens", answer.completion_tokens
    if count is None:
        return [Probe(name="max_tokens", asked=asked, saw="it does not tell how many it said")]
    if count > FEW_TOKENS:
        raise Contradicted(
            f"{asking.arm.name}: its server ignores `max_tokens`: asked for at most {FEW_TOKENS} tokens, it counts "
            f"{count} in its answer. Its answers would be longer than the cases allow: mend the server, or the proxy "
            "before it."
        )
    return [Probe(name="max_tokens", asked=asked, saw=f"{count}, ended by {answer.finish}")]


async def _own(asking: _Asking) -> list[Probe]:
    """Whether an answer is its own question's: asked together, each must say what it says when asked alone."""
    asked = f"{len(WORDED)} numbers in words, together and then one by one"
    together = [_told(one) for one in await _all(*(asking.ask(text, DRAWN_TOKENS) for text in WORDED))]
    alone = [_told(await asking.ask(text, DRAWN_TOKENS)) for text in WORDED]
    crossed = [at for at, one in enumerate(together) if one != alone[at] and one in alone]
    crossed = [at for at in crossed if _told(await asking.ask(WORDED[at], DRAWN_TOKENS)) == alone[at]]  # steady alone
    if crossed:
        raise Contradicted(
            f"{asking.arm.name}: its server gives a question the answer to another one that is asked at the same time: "
            f"of {asked} {len(crossed)} were such. Answers are no one's then: mend the server, or the proxy before it."
        )
    saw, fault = f"{len({*alone})} different answers", ""
    if len({*alone}) == 1:
        fault = (
            f"it answers different questions alike ({alone[0]!r:.60}): a cache does, or its model does not read them"
        )
    return [Probe(name="own answers", asked=asked, saw=saw, fault=fault)]


async def _stop(asking: _Asking, needed: bool) -> list[Probe]:
    """needed: texts end cases, so that a refusal matters too."""
    asked = "the same answer, to be ended by a text that is in it"
    for question in (COUNT, OPEN, *WORDED):  # until one is answered at some length
        whole = _told(await asking.ask(question, STOPPED_TOKENS))
        if at := _within(whole):
            break
    else:
        return [Probe(name="stop", asked=asked, saw="answers too short to be ended")]
    text = whole[at]
    try:
        ended = await asking.ask(question, STOPPED_TOKENS, stop=[text])
    except NotServed as refused:
        return [Probe(name="stop", asked=asked, saw=str(refused)[:300], fault="it refuses `stop`" if needed else "")]
    said = _told(ended)
    saw = f"{len(said)} of {len(whole)} characters, ended by {ended.finish}"
    fault = f"it ignores `stop`: its answer goes on behind {text!r}" if said.partition(text)[2] else ""
    return [Probe(name="stop", asked=asked, saw=saw, fault=fault)]


def _within(whole: str) -> int:
    """Where in its second half a character stands that can end it, and something behind it; 0: nowhere."""
    return next((at for at in range(len(whole) // 2, len(whole) - 1) if whole[at].strip()), 0)


def _told(answer: Answer) -> str:
    return answer.thought + answer.text


async def _context(asking: _Asking, most: int) -> list[Probe]:
    """most: how often the filler is said in the longest prompt. Each half of it must add tokens as its like did."""
    times = most // 4, most // 2, most
    asked = f"prompts of {', '.join(f'{4 * one:,}' for one in times)} words"
    try:
        answers = await _all(*(asking.ask(start + FILLER * many, 1) for start, many in zip(STARTS, times, strict=True)))
    except NotServed as refused:  # it says so, and will say it of a case; what is cut off in silence is the fault
        return [Probe(name="context", asked=asked, saw=f"it refuses: {str(refused)[:200]}")]
    counts = [answer.prompt_tokens for answer in answers]
    few, half, whole = (count or 0 for count in counts)
    if None in counts or not few or half < few:
        return [Probe(name="context", asked=asked, saw="it does not tell how many tokens it read")]
    adds = 2 * (half - few)  # the last prompt adds twice what the second does
    if half == few or whole - half < READ_WHOLE * adds:
        raise Contradicted(
            f"{asking.arm.name}: its server reads a long prompt in part: of {asked} it counts {few:,}, {half:,} and "
            f"{whole:,} tokens. Some cases are as long, and answers to a part are answers to another question: raise "
            "its context length, or shorten the cases."
        )
    return [Probe(name="context", asked=asked, saw=", ".join(f"{count:,}" for count in (few, half, whole)) + " tokens")]


def _fillers(prompts: Sequence[Prompt]) -> int:
    """How often the filler is said in a prompt about as long as the longest of these."""
    return min(MOST_FILLERS, max([LEAST_FILLERS, *(_words(one) // 4 for one in prompts)]))


def _words(prompt: Prompt) -> int:
    """About how many tokens it has: known, or one for five bytes of what its server reads of it. A schema that holds
    its answer is none of that, and a character beyond ASCII is no six, as JSON may write it."""
    said = json.loads(prompt.asked or "{}")
    read = json.dumps([said.get(name) for name in ("messages", "prompt", "tools")], ensure_ascii=False)
    return max(len(prompt.token_ids), len(read.encode("utf-8", "surrogatepass")) // 5)


async def _tools(asking: _Asking) -> list[Probe]:
    asked, name = "a question that a tool answers", TOOL["function"]["name"]
    try:
        answer = await asking.ask(ORDER, CALL_TOKENS, tools=[TOOL])
    except NotServed as refused:
        return [Probe(name="tools", asked=asked, saw=str(refused)[:300], fault="it refuses `tools`")]
    if answer.calls:
        return [Probe(name="tools", asked=asked, saw=f"its parser read a call of {answer.calls[0][0]!r:.80}")]
    if name in answer.text and ("{" in answer.text or "(" in answer.text):
        fault = "calls come as text: its tool parser is off, or is another model's"
        return [Probe(name="tools", asked=asked, saw=f"no call, and in the text {answer.text!r:.200}", fault=fault)]
    return [Probe(name="tools", asked=asked, saw="its model made no call")]


async def _log_probs(asking: _Asking) -> list[Probe]:
    asked = "the log-probabilities of a fixed text"
    said = {"prompt": FIXED[0], "max_tokens": 1, "temperature": 0.0, "echo": True, "logprobs": 1}
    try:
        reply = await asking.client.whole("/completions", asking.body(said))
    except NotRecorded:
        raise
    except (NotServed, InfrastructureError):
        return [Probe(name="log-probs", asked=asked, saw="it does not tell them")]
    choice = reply.choices[0] if reply.choices else None
    told = choice.logprobs.token_logprobs if choice and choice.logprobs else None
    values = tuple(one for one in told or () if one is not None)
    if len(values) < len(FIXED[0].split()):  # of its own answer alone
        return [Probe(name="log-probs", asked=asked, saw="it does not tell them")]
    mean = sum(values) / len(values)
    return [Probe(name="log-probs", asked=asked, saw=f"{mean:.4f} nats a token, mean of {len(values)}", values=values)]
