"""Probes: a few fixed questions that show, before an arm's cases, whether its server follows its requests.

Each probe records its question, what it saw, and the fault, "" for none. A contradiction to the arm's declaration
(another number of tokens than was sent, more tokens than requested, a prompt read in part, the answer to another
question) ends the run. The rest are warnings, since a server is judged as it is. `tokens` and `log-probs` only matter
between two arms, and are compared in the report.
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
    """The server contradicts the arm's declaration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    """One arm's server, with requests like those of its cases."""

    client: Client
    arm: ArmSpec
    chats: bool  # by messages; else by a text

    async def ask(self, text: str, most: int, *, check: bool = False, **more: Any) -> Answer:
        ask = self.client.check if check else self.client.ask
        path, request = ("/chat/completions", {"messages": [{"role": "user", "content": text}]}) if self.chats else (
            "/completions", {"prompt": text}
        )  # fmt: skip
        return await ask(path, self.body({**request, "max_tokens": most, "temperature": 0.0, **more}))

    def body(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        assert self.arm.served is not None, "asked of served arms alone"
        return {"model": self.arm.model, **fields, **json.loads(self.arm.served.extra_body or "{}")}


def probe(
    arm: ArmSpec,
    prompts: Sequence[Prompt],
    at_once: int,
    ledger: Ledger | None = None,
    tell: Callable[[str], None] = lambda line: None,
    *,
    nonce: str = "",
) -> tuple[Probe, ...]:
    """Probe an arm's server, in this order: cache (given a nonce that no cache knows), own answers, tokens,
    temperature, seed, max_tokens, context, stop, tools (if cases have some), log-probs, stream (of a streamed arm),
    model.

    prompts: of its cases; the longest sets the length of prompt that it must read whole. tell: called with a line about
    a server that demands a pause, "" for none. Contradicted (64) for a fault that makes answers worthless. A server
    that does not answer now has a single entry: the requests of its cases will show more.
    """
    assert arm.served is not None, "asked of served arms alone"
    charges = Charges(ledger, arm.name, arm.served) if ledger is not None else None

    async def run_probes() -> tuple[Probe, ...]:
        """Run the probes within a time limit, which the server's demanded pauses extend."""
        assert arm.served is not None, "asked of served arms alone"
        async with asyncio.timeout(SECONDS) as limit:

            def waits(seconds: float, line: str) -> None:
                limit.reschedule((limit.when() or 0.0) + seconds)
                tell(line)

            client = Client(arm.name, arm.served, at_once, tries=TRIES, charges=charges, notify=waits)
            return await _probe(arm, prompts, client, nonce)

    try:
        return asyncio.run(run_probes())
    except TimeoutError:
        return (_not_made(f"no answer to some within {SECONDS:g} s", "they were not all made"),)
    except (InfrastructureError, NotServed) as error:
        return (_not_made(str(error)),)


async def _probe(arm: ArmSpec, prompts: Sequence[Prompt], opened: Client, nonce: str) -> tuple[Probe, ...]:
    """Run all probes in their order; return their results. A server that answers nothing now has a single entry."""
    assert arm.served is not None, "asked of served arms alone"
    chats = any('"messages"' in prompt.asked for prompt in prompts)
    async with opened as client:
        asking = _Asking(client=client, arm=arm, chats=chats)
        await _check_parameters(asking, prompts)
        first_probes = await _shown(_cache(asking, nonce)) if nonce else []  # while nothing else is asked
        first_probes += await _shown(_own(asking))
        if all(probe.name == NOT_MADE for probe in first_probes):  # it answers nothing now
            return (first_probes[0],)
        other_probes = await _shown(
            _tokens(asking),
            _drawing(asking, any(prompt.sampling.drawn for prompt in prompts)),
            _max_tokens(asking),
            _context(asking, _fillers(prompts)),
            _stop(asking, any(prompt.until for prompt in prompts)),
            *([_tools(asking)] if chats and any('"tools"' in prompt.asked for prompt in prompts) else []),
            _log_probs(asking),
            *([_streams(asking, prompts)] if arm.served.stream else []),
        )
    return (*first_probes, *other_probes, _who(client))


async def _check_parameters(asking: _Asking, prompts: Sequence[Prompt]) -> None:
    """Ask a fixed question with the parameters of a case.

    Contradicted if the server does not know one of them, since it would refuse every case.
    """
    path, case = request_of(prompts[0], asking.arm, seed=0)
    of_case = ("messages", "prompt", "tools", "response_format", "stop", "return_token_ids", "logprobs", "max_tokens")
    parameters = {name: value for name, value in case.items() if name not in of_case}
    request = {"messages": [{"role": "user", "content": FIXED[0]}]} if asking.chats else {"prompt": FIXED[0]}
    try:
        await asking.client.ask(path, {**request, **parameters, "max_tokens": FEW_TOKENS})
    except RequestRefused as refused:
        if "`parameters:" in str(refused):
            raise Contradicted(str(refused)) from None
    except InfrastructureError:  # what asks the cases tells more
        return


async def _all(*work: Awaitable[Of]) -> list[Of]:
    """Return all results.

    The first failure is raised once all have ended, so that each request is settled in the ledger.
    """
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


async def _shown(*probes: Awaitable[list[Probe]]) -> list[Probe]:
    """Return the results of all probes once they have ended; one without an answer does not affect the others.
    Contradicted comes before any other failure."""
    results = await asyncio.gather(*probes, return_exceptions=True)
    failed = sorted(
        (failure for failure in results if isinstance(failure, BaseException)),
        key=lambda failure: not _ends_the_run(failure),
    )
    for error in failed:
        if _ends_the_run(error) or not isinstance(error, InfrastructureError | NotServed):
            raise error
    answered = [probe for probes in results if not isinstance(probes, BaseException) for probe in probes]
    fault = "some of them were not answered" if answered else NONE_MADE
    return [*answered, *(_not_made(str(error), fault) for error in failed[:1])]


def _ends_the_run(error: BaseException) -> bool:
    return isinstance(error, Contradicted | BudgetSpent)


def _not_made(message: str, fault: str = NONE_MADE) -> Probe:
    return Probe(name=NOT_MADE, asked="fixed questions", saw=message[:300], fault=fault)


def _who(client: Client) -> Probe:
    """Return the probe of who answers. values: the number of names; empty if unknown."""
    names = list(client.named)
    counts = (float(len(names)),) if names else ()
    return Probe(name=WHO, asked="who answers", saw=", ".join(names) or "it does not tell", values=counts)


async def _cache(asking: _Asking, nonce: str) -> list[Probe]:
    """Probe for a cache: a new question is asked twice.

    saw: the hash of the reply, to compare arms by; "" if its id may not be unique to the server, or all of its replies
    share one.
    """
    assert asking.arm.served is not None, "asked of served arms alone"
    stream = STREAMED if asking.arm.served.stream else {}
    numbers = nonce, f"{nonce}-2", nonce
    first, other, repeated = [await asking.ask(NEW + number, DRAWN_TOKENS, **stream) for number in numbers]
    reply = "" if first.reply.endswith(SHORT_ID) or first.reply[:8] == other.reply[:8] else first.reply
    fault = ""
    if reply and reply == repeated.reply:
        fault = "asked again it sends the same reply, with its id: a cache answers, and A/A measures no noise"
    return [Probe(name=CACHE, asked="new questions, the same of every arm, one of them twice", saw=reply, fault=fault)]


async def _tokens(asking: _Asking) -> list[Probe]:
    """Probe the tokenizer: how many tokens the server counts in fixed prompts."""
    task = f"how many tokens {len(FIXED)} fixed prompts have"
    answers = await _all(*(asking.ask(text, 1) for text in FIXED))
    token_counts = [answer.prompt_tokens for answer in answers]
    if None in token_counts:
        return [Probe(name="tokens", asked=task, saw="it does not tell")]
    values = tuple(float(count) for count in token_counts if count is not None)
    return [Probe(name="tokens", asked=task, saw=", ".join(f"{value:g}" for value in values), values=values)]


async def _drawing(asking: _Asking, drawn: bool) -> list[Probe]:
    """Probe temperature and seed. drawn: whether the run samples its answers, so that a seed matters."""
    task = f"the same at temperature 0 twice, and at {HOT:g} by three seeds"
    try:
        greedy, greedy_again, *hot = await _all(
            asking.ask(OPEN, DRAWN_TOKENS),
            asking.ask(OPEN, DRAWN_TOKENS),
            *(asking.ask(OPEN, DRAWN_TOKENS, temperature=HOT, seed=seed) for seed in (1, 1, 2, 3)),
        )
    except RequestRefused as refused:  # some take no seed, or no temperature this high
        return [Probe(name="temperature", asked=task, saw=f"it refuses: {str(refused)[:200]}")]
    cold, warmed = map(_whole_text, (greedy, greedy_again))
    once, repeated, *other_seeds = map(_whole_text, hot)
    different = len({once, *other_seeds})
    saw = f"{'the same' if cold == warmed else 'another'} answer at 0, {different} different at {HOT:g}"
    fault = ""
    if cold != warmed:
        fault = "it does not say the same twice at temperature 0: it draws all the same, or computes otherwise"
    elif different == 1 and cold:
        fault = "drawn answers are all alike: it ignores `temperature`, or its model has no doubt here"
    same_seed = "the same answer" if once == repeated else "another answer"
    seed_fault = "it ignores `seed`: an answer cannot be drawn again" if once != repeated and drawn else ""
    return [
        Probe(name="temperature", asked=task, saw=saw, fault=fault),
        Probe(name="seed", asked=f"the same at temperature {HOT:g} twice by one seed", saw=same_seed, fault=seed_fault),
    ]


async def _max_tokens(asking: _Asking) -> list[Probe]:
    """Probe `max_tokens`. Contradicted if the answer is longer, since answers of cases would be too."""
    answer = await asking.ask(COUNT, FEW_TOKENS)
    task, count = f"an answer of at most {FEW_TOKENS} tokens", answer.completion_tokens
    if count is None:
        return [Probe(name="max_tokens", asked=task, saw="it does not tell how many it said")]
    if count > FEW_TOKENS:
        raise Contradicted(
            f"{asking.arm.name}: its server ignores `max_tokens`: asked for at most {FEW_TOKENS} tokens, it counts "
            f"{count} in its answer. Its answers would be longer than the cases allow: mend the server, or the proxy "
            "before it."
        )
    return [Probe(name="max_tokens", asked=task, saw=f"{count}, ended by {answer.finish}")]


async def _own(asking: _Asking) -> list[Probe]:
    """Probe whether answers get mixed up: each question must get the same answer among others as when asked alone.

    Contradicted if some do not.
    """
    task = f"{len(WORDED)} numbers in words, together and then one by one"
    crossed, alone = await _crossed(asking, DRAWN_TOKENS)
    for _ in range(OWN_ROUNDS if crossed else 0):  # thoughts may begin as another's: in longer ones each has its own
        if crossed := (await _crossed(asking, OWN_TOKENS))[0]:
            break
    if crossed:
        raise Contradicted(
            f"{asking.arm.name}: its server gives a question the answer to another one that is asked at the same time: "
            f"of {task} {len(crossed)} were such. Answers are no one's then: mend the server, or the proxy before it."
        )
    saw, fault = f"{len({*alone})} different answers", ""
    if len({*alone}) == 1 and len({_whole_text(await asking.ask(text, LONG_TOKENS)) for text in WORDED[:2]}) == 1:
        fault = (
            f"it answers different questions alike ({alone[0]!r:.60}): a cache does, or its model does not read them"
        )
    return [Probe(name="own answers", asked=task, saw=saw, fault=fault)]


async def _crossed(asking: _Asking, max_tokens: int) -> tuple[list[int], list[str]]:
    """Return the questions that, asked together, got the answer of another one, and all answers asked one by one."""
    together = [_whole_text(answer) for answer in await _all(*(asking.ask(text, max_tokens) for text in WORDED))]
    alone = [_whole_text(await asking.ask(text, max_tokens)) for text in WORDED]
    unique = {text for text in alone if alone.count(text) == 1}
    crossed = [index for index, text in enumerate(together) if text != alone[index] and {text, alone[index]} <= unique]
    return [
        index for index in crossed if _whole_text(await asking.ask(WORDED[index], max_tokens)) == alone[index]
    ], alone  # steady alone


async def _stop(asking: _Asking, needed: bool) -> list[Probe]:
    """Probe `stop`, by a text from within an answer. needed: whether cases use it, so that a refusal matters too."""
    task = "the same answer, to be ended by a text that is in it"
    for question in (COUNT, OPEN, *WORDED):  # until one is answered at some length
        full_text = _whole_text(await asking.ask(question, STOPPED_TOKENS))
        if span := _within(full_text):
            break
    else:
        return [Probe(name="stop", asked=task, saw="answers too short to be ended")]
    text = full_text[span]
    try:
        ended = await asking.ask(question, STOPPED_TOKENS, stop=[text])
    except NotServed as refused:
        return [Probe(name="stop", asked=task, saw=str(refused)[:300], fault="it refuses `stop`" if needed else "")]
    shortened = _whole_text(ended)
    saw = f"{len(shortened)} of {len(full_text)} characters, ended by {ended.finish}"
    fault = f"it ignores `stop`: its answer goes on behind {text!r}" if shortened.partition(text)[2] else ""
    return [Probe(name="stop", asked=task, saw=saw, fault=fault)]


def _within(answer: str) -> int:
    """Return the place in the second half of a character that can end the text before its end; 0 for none."""
    return next((index for index in range(len(answer) // 2, len(answer) - 1) if answer[index].strip()), 0)


def _whole_text(answer: Answer) -> str:
    return answer.thought + answer.text


async def _context(asking: _Asking, most: int) -> list[Probe]:
    """Probe long prompts, of three lengths, each double the one before; each must add tokens in proportion.

    most: fillers in the longest one. Contradicted if the server reads a long prompt in part.
    """
    times = most // 4, most // 2, most
    task = f"prompts of {', '.join(f'{4 * count:,}' for count in times)} words"
    try:
        answers = await _all(*(asking.ask(start + FILLER * size, 1) for start, size in zip(STARTS, times, strict=True)))
    except NotServed as refused:  # an open refusal is no fault: the fault is a silent cut
        return [Probe(name="context", asked=task, saw=f"it refuses: {str(refused)[:200]}")]
    token_counts = [answer.prompt_tokens for answer in answers]
    short, half, full = (count or 0 for count in token_counts)
    if None in token_counts or not short or half < short:
        return [Probe(name="context", asked=task, saw="it does not tell how many tokens it read")]
    due = 2 * (half - short)  # the last prompt adds twice what the second does
    if short == half == full:
        raise Contradicted(
            f"{asking.arm.name}: its server reads a long prompt in part, or miscounts it: it counts {short:,} tokens "
            f"in each of {task}. Raise its context length, or mend its `usage.prompt_tokens`."
        )
    if half == short or full - half < READ_WHOLE * due:
        raise Contradicted(
            f"{asking.arm.name}: its server reads a long prompt in part: of {task} it counts {short:,}, {half:,} and "
            f"{full:,} tokens. An answer to a part answers another question: raise its context length to your longest "
            "case's at least."
        )
    return [Probe(name="context", asked=task, saw=", ".join(f"{count:,}" for count in (short, half, full)) + " tokens")]


def _fillers(prompts: Sequence[Prompt]) -> int:
    """Return the number of fillers in a prompt about as long as the longest of these."""
    return min(MOST_FILLERS, max([LEAST_FILLERS, *(_words(prompt) // 4 for prompt in prompts)]))


def _words(prompt: Prompt) -> int:
    """Estimate a prompt's tokens: known, or one for five bytes that its server reads. A response schema does not count,
    and characters beyond ASCII count in UTF-8, not as JSON escapes."""
    request = json.loads(prompt.asked or "{}")
    read = json.dumps([request.get(name) for name in ("messages", "prompt", "tools")], ensure_ascii=False)
    return max(len(prompt.token_ids), len(read.encode("utf-8", "surrogatepass")) // 5)


async def _tools(asking: _Asking) -> list[Probe]:
    """Probe the tool parser, by a question that a tool answers."""
    task, name = "a question that a tool answers", TOOL["function"]["name"]
    try:
        answer = await asking.ask(ORDER, CALL_TOKENS, tools=[TOOL])
    except NotServed as refused:
        return [Probe(name="tools", asked=task, saw=str(refused)[:300], fault="it refuses `tools`")]
    if answer.calls:
        return [Probe(name="tools", asked=task, saw=f"its parser read a call of {answer.calls[0][0]!r:.80}")]
    if name in answer.text and ("{" in answer.text or "(" in answer.text):
        fault = "calls come as text: its tool parser is off, or is another model's"
        return [Probe(name="tools", asked=task, saw=f"no call, and in the text {answer.text!r:.200}", fault=fault)]
    return [Probe(name="tools", asked=task, saw="its model made no call")]


async def _streams(asking: _Asking, prompts: Sequence[Prompt]) -> list[Probe]:
    """Probe whether a streamed answer equals the whole one; if not, all answers are requested whole."""
    task = "the same by a stream and whole"
    try:
        await asking.ask(COUNT, STREAMED_TOKENS, check=True, **STREAMED)
        if asking.chats and any('"tools"' in prompt.asked for prompt in prompts):
            await asking.ask(ORDER, STREAMED_TOKENS, check=True, tools=[TOOL], **STREAMED)
    except NotServed as refused:
        return [Probe(name=STREAM, asked=task, saw=str(refused)[:300])]
    why = asking.client.forms.whole
    fault = "answers are asked whole" if why not in ("", REPEATS) else ""
    return [Probe(name=STREAM, asked=task, saw=why or "the same", fault=fault)]


async def _log_probs(asking: _Asking) -> list[Probe]:
    """Probe the log-probabilities of a fixed text, to compare arms by."""
    task = "the log-probabilities of a fixed text"
    request = {"prompt": FIXED[0], "max_tokens": 1, "temperature": 0.0, "echo": True, "logprobs": 1}
    try:
        reply = await asking.client.whole("/completions", asking.body(request))
    except (NotServed, InfrastructureError):
        return [Probe(name="log-probs", asked=task, saw="it does not tell them")]
    choice = reply.choices[0] if reply.choices else None
    logprobs = choice.logprobs.token_logprobs if choice and choice.logprobs else None
    values = tuple(logprob for logprob in logprobs or () if logprob is not None)
    if len(values) < len(FIXED[0].split()):  # of its own answer alone
        return [Probe(name="log-probs", asked=task, saw="it does not tell them")]
    mean = sum(values) / len(values)
    return [Probe(name="log-probs", asked=task, saw=f"{mean:.4f} nats a token, mean of {len(values)}", values=values)]
