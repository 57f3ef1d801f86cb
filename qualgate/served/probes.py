"""Probes: a few fixed questions that show, before an arm's cases, whether its server does what it is told to.

Each probe says what it asked, what it saw, and what is wrong, "" where nothing is. What contradicts what the arm
declares (another count of tokens than was sent, more tokens than were asked for, a prompt that is read in part, the
answer to another question) ends the run: its answers would be to other questions. The rest is a warning, for a server
is judged as it is. What only two arms together show (`tokens`, `log-probs`) is compared by who reports both.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from qualgate.errors import InfrastructureError, UsageError
from qualgate.records import ArmSpec, Probe, Prompt
from qualgate.records.arms import SHORT_ID
from qualgate.records.served import CACHE, STREAM, WHO
from qualgate.served.answer import Answer
from qualgate.served.asked import request_of
from qualgate.served.charging import Charges
from qualgate.served.client import Client
from qualgate.served.faults import BudgetSpent, NotServed, RequestRefused
from qualgate.served.forms import REPEATS
from qualgate.served.ledger import Ledger

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
NEW = "Write one sentence about the ticket "  # and its number, which no cache has met
HOT, DRAWN_TOKENS, FEW_TOKENS, CALL_TOKENS = 2.0, 16, 4, 128
STREAMED: Any = {"stream": True, "stream_options": {"include_usage": True}}  # as cases are, so that it counts tokens
STREAMED_TOKENS = 96  # of one that is asked by a stream and whole
OWN_TOKENS, LONG_TOKENS, OWN_ROUNDS = 64, 512, 3  # in which thoughts come to what their question alone has
STOPPED_TOKENS = 24  # of the answer that a text in it is to end
LEAST_FILLERS, MOST_FILLERS = 128, 20_000  # of the longest prompt
READ_WHOLE = 0.85  # of the tokens that a part of a prompt adds, where the part before added all of its own
NOT_MADE, NONE_MADE = "probes", "they were not made"  # the entry of those without an answer, and its fault
TRIES, SECONDS = 2, 180.0  # of one request; of all probes of an arm


class Contradicted(UsageError):
    """The server shows to be another than the arm says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    """One arm's server, asked as its cases are."""

    client: Client
    arm: ArmSpec
    chats: bool  # by messages; else by a text

    async def ask(self, text: str, most: int, *, check: bool = False, **more: Any) -> Answer:
        ask = self.client.check if check else self.client.ask
        path, asked = ("/chat/completions", {"messages": [{"role": "user", "content": text}]}) if self.chats else (
            "/completions", {"prompt": text}
        )  # fmt: skip
        return await ask(path, self.body({**asked, "max_tokens": most, "temperature": 0.0, **more}))

    def body(self, said: Mapping[str, Any]) -> dict[str, Any]:
        assert self.arm.served is not None, "asked of served arms alone"
        return {"model": self.arm.model, **said, **json.loads(self.arm.served.extra_body or "{}")}


def probe(
    arm: ArmSpec,
    prompts: Sequence[Prompt],
    at_once: int,
    ledger: Ledger | None = None,
    tell: Callable[[str], None] = lambda line: None,
    *,
    nonce: str = "",
) -> tuple[Probe, ...]:
    """What its server shows, in this order: cache (where a nonce is given, new to every cache), own answers, tokens,
    temperature, seed, max_tokens, context, stop, tools (where cases have some), log-probs, stream (of an arm that is
    streamed), model.

    prompts: that it will be asked; the longest says how long a prompt it must read whole. tell: a line about a server
    that wants to be left alone for a while, "" for none. Contradicted (64) for what no
    answer may rest on. A server that does not answer now has one entry that says so: what asks its cases tells more.
    """
    assert arm.served is not None, "asked of served arms alone"
    charges = Charges(ledger, arm.name, arm.served) if ledger is not None else None

    async def made() -> tuple[Probe, ...]:
        assert arm.served is not None, "asked of served arms alone"
        async with asyncio.timeout(SECONDS) as limit:

            def waits(seconds: float, line: str) -> None:
                limit.reschedule((limit.when() or 0.0) + seconds)
                tell(line)

            client = Client(arm.name, arm.served, at_once, tries=TRIES, charges=charges, told=waits)
            return await _probe(arm, prompts, client, nonce)

    try:
        return asyncio.run(made())
    except (InfrastructureError, NotServed, TimeoutError) as error:
        return (_not_made(str(error) or f"no answers within {SECONDS:g} s"),)


async def _probe(arm: ArmSpec, prompts: Sequence[Prompt], opened: Client, nonce: str) -> tuple[Probe, ...]:
    assert arm.served is not None, "asked of served arms alone"
    chats = any('"messages"' in prompt.asked for prompt in prompts)
    async with opened as client:
        asking = _Asking(client=client, arm=arm, chats=chats)
        await _check_parameters(asking, prompts)
        own = await _shown(_cache(asking, nonce)) if nonce else []  # while nothing else is asked
        own += await _shown(_own(asking))
        if all(one.name == NOT_MADE for one in own):  # it answers nothing now
            return (own[0],)
        found = await _shown(
            _tokens(asking),
            _drawing(asking, any(prompt.sampling.drawn for prompt in prompts)),
            _max_tokens(asking),
            _context(asking, _fillers(prompts)),
            _stop(asking, any(prompt.until for prompt in prompts)),
            *([_tools(asking)] if chats and any('"tools"' in prompt.asked for prompt in prompts) else []),
            _log_probs(asking),
            *([_streams(asking, prompts)] if arm.served.stream else []),
        )
    return (*own, *found, _who(client))


async def _check_parameters(asking: _Asking, prompts: Sequence[Prompt]) -> None:
    """Ask a fixed question by the parameters of a case. Contradicted where the server does not know one of them, for it
    would refuse every case."""
    path, case = request_of(prompts[0], asking.arm, seed=0)
    of_case = ("messages", "prompt", "tools", "response_format", "stop", "return_token_ids", "logprobs", "max_tokens")
    more = {name: value for name, value in case.items() if name not in of_case}
    asked = {"messages": [{"role": "user", "content": FIXED[0]}]} if asking.chats else {"prompt": FIXED[0]}
    try:
        await asking.client.ask(path, {**asked, **more, "max_tokens": FEW_TOKENS})
    except RequestRefused as refused:
        if "`parameters:" in str(refused):
            raise Contradicted(str(refused)) from None
    except InfrastructureError:  # what asks the cases tells more
        return


async def _all(*work: Awaitable[Of]) -> list[Of]:
    """What each gives. Where some fail, the first failure once all have ended, so that each request is settled in the
    ledger."""
    found = await asyncio.gather(*work, return_exceptions=True)
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return [one for one in found if not isinstance(one, BaseException)]


async def _shown(*probes: Awaitable[list[Probe]]) -> list[Probe]:
    """What all show, once they have ended: one without an answer takes no other's away. Contradicted before any other
    failure."""
    found = await asyncio.gather(*probes, return_exceptions=True)
    failed = sorted((one for one in found if isinstance(one, BaseException)), key=lambda one: not _ends_the_run(one))
    for error in failed:
        if _ends_the_run(error) or not isinstance(error, InfrastructureError | NotServed):
            raise error
    shown = [probe for probes in found if not isinstance(probes, BaseException) for probe in probes]
    fault = "some of them were not answered" if shown else NONE_MADE
    return [*shown, *(_not_made(str(error), fault) for error in failed[:1])]


def _ends_the_run(error: BaseException) -> bool:
    return isinstance(error, Contradicted | BudgetSpent)


def _not_made(told: str, fault: str = NONE_MADE) -> Probe:
    return Probe(name=NOT_MADE, asked="fixed questions", saw=told[:300], fault=fault)


def _who(client: Client) -> Probe:
    """values: how many names there are; none where it does not tell."""
    names = list(client.named)
    told = (float(len(names)),) if names else ()
    return Probe(name=WHO, asked="who answers", saw=", ".join(names) or "it does not tell", values=told)


async def _cache(asking: _Asking, nonce: str) -> list[Probe]:
    """saw: the hash of its reply, which several arms' are compared by; "" where another server may give its id too, or
    all of its replies have one."""
    assert asking.arm.served is not None, "asked of served arms alone"
    stream = STREAMED if asking.arm.served.stream else {}
    numbers = nonce, f"{nonce}-2", nonce
    first, other, again = [await asking.ask(NEW + one, DRAWN_TOKENS, **stream) for one in numbers]
    reply = "" if first.reply.endswith(SHORT_ID) or first.reply[:8] == other.reply[:8] else first.reply
    fault = ""
    if reply and reply == again.reply:
        fault = "asked again it sends the same reply, with its id: a cache answers, and A/A measures no noise"
    return [Probe(name=CACHE, asked="new questions, the same of every arm, one of them twice", saw=reply, fault=fault)]


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
    crossed, alone = await _crossed(asking, DRAWN_TOKENS)
    for _ in range(OWN_ROUNDS if crossed else 0):  # thoughts may begin as another's: in longer ones each has its own
        if crossed := (await _crossed(asking, OWN_TOKENS))[0]:
            break
    if crossed:
        raise Contradicted(
            f"{asking.arm.name}: its server gives a question the answer to another one that is asked at the same time: "
            f"of {asked} {len(crossed)} were such. Answers are no one's then: mend the server, or the proxy before it."
        )
    saw, fault = f"{len({*alone})} different answers", ""
    if len({*alone}) == 1 and len({_told(await asking.ask(text, LONG_TOKENS)) for text in WORDED[:2]}) == 1:
        fault = (
            f"it answers different questions alike ({alone[0]!r:.60}): a cache does, or its model does not read them"
        )
    return [Probe(name="own answers", asked=asked, saw=saw, fault=fault)]


async def _crossed(asking: _Asking, most: int) -> tuple[list[int], list[str]]:
    """Which questions got, asked together, an answer that another one alone has, and all answers asked one by one."""
    together = [_told(one) for one in await _all(*(asking.ask(text, most) for text in WORDED))]
    alone = [_told(await asking.ask(text, most)) for text in WORDED]
    own = {one for one in alone if alone.count(one) == 1}
    crossed = [at for at, one in enumerate(together) if one != alone[at] and {one, alone[at]} <= own]
    return [at for at in crossed if _told(await asking.ask(WORDED[at], most)) == alone[at]], alone  # steady alone


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


async def _streams(asking: _Asking, prompts: Sequence[Prompt]) -> list[Probe]:
    """Whether a stream says what the same answer says that is asked whole; else all answers are asked whole."""
    asked = "the same by a stream and whole"
    try:
        await asking.ask(COUNT, STREAMED_TOKENS, check=True, **STREAMED)
        if asking.chats and any('"tools"' in prompt.asked for prompt in prompts):
            await asking.ask(ORDER, STREAMED_TOKENS, check=True, tools=[TOOL], **STREAMED)
    except NotServed as refused:
        return [Probe(name=STREAM, asked=asked, saw=str(refused)[:300])]
    why = asking.client.forms.whole
    fault = "answers are asked whole" if why not in ("", REPEATS) else ""
    return [Probe(name=STREAM, asked=asked, saw=why or "the same", fault=fault)]


async def _log_probs(asking: _Asking) -> list[Probe]:
    asked = "the log-probabilities of a fixed text"
    said = {"prompt": FIXED[0], "max_tokens": 1, "temperature": 0.0, "echo": True, "logprobs": 1}
    try:
        reply = await asking.client.whole("/completions", asking.body(said))
    except (NotServed, InfrastructureError):
        return [Probe(name="log-probs", asked=asked, saw="it does not tell them")]
    choice = reply.choices[0] if reply.choices else None
    told = choice.logprobs.token_logprobs if choice and choice.logprobs else None
    values = tuple(one for one in told or () if one is not None)
    if len(values) < len(FIXED[0].split()):  # of its own answer alone
        return [Probe(name="log-probs", asked=asked, saw="it does not tell them")]
    mean = sum(values) / len(values)
    return [Probe(name="log-probs", asked=asked, saw=f"{mean:.4f} nats a token, mean of {len(values)}", values=values)]
