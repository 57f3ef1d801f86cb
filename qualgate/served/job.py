"""Run one job of a served arm: request an answer to every prompt, and return them as an engine's.

What a server does not report is not measured: no margins, and drift only if it lists log-probs. Its declaration is read
before the job and after it, to detect a server that was restarted with another model (the store compares it with the
plan).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import time
from typing import Any

from qualgate.errors import IntegrityError
from qualgate.quant.model_folder import ModelFolder, read_tokenizer_folder
from qualgate.records import (
    ArmFootprint,
    Completion,
    Job,
    JobFailure,
    JobResult,
    Prompt,
    UnitKey,
)
from qualgate.served.answer import Answer
from qualgate.served.answering import Answered, answer_all, plain_answers
from qualgate.served.asked import gives_calls
from qualgate.served.charging import Charges, batch_most
from qualgate.served.client import Client
from qualgate.served.declared import declared, identify_served
from qualgate.served.drafts_counted import read_counts, window_of
from qualgate.served.faults import ModelGone, NotServed
from qualgate.served.forms import Forms
from qualgate.served.ledger import Ledger
from qualgate.served.one_by_one import Fault, ask_each
from qualgate.served.questions import answer_to, check_streams
from qualgate.served.received import received_of
from qualgate.served.retries import Pace
from qualgate.served.texts import Texts
from qualgate.served.told_odds import odds_of_drawing
from qualgate.served.turns import Notify

Hand = Callable[[JobResult | JobFailure], None]
LOOKS = 3  # at a list of models before a name that it lacks is gone
NOT_TOLD = ArmFootprint(bytes_on_disk=0, bytes_in_memory=0, quantized_bytes=0, effective_bits=0.0)


def run_served(
    job: Job,
    sampling: Mapping[str, Any],
    at_once: int,
    *,
    ledger: Ledger | None = None,
    hand: Hand | None = None,
    notify: Notify = lambda seconds, line: None,
    pace: Pace | None = None,
) -> JobResult:
    """Ask every prompt of `job`, `at_once` at a time. sampling: of the run, for the identity (`sampling_settings`).
    ledger: in which requests are counted; None: they are not. hand: takes each answer as it comes, and each case that
    fails, where `comes_in_parts`; the result is then the rest. None: all answers are in the result, or one that fails
    is raised. notify, pace: see `Client`.

    UsageError for what the server refuses, naming the case; InfrastructureError if an answer does not come whole, and
    as BudgetSpent if the budget does not suffice, before any request if that is known by then, as LimitLasts if the
    server's limit lasts longer than patience.
    """
    served = job.arm.served
    assert served is not None, "asked of served arms alone"
    folder = read_tokenizer_folder(Path(served.tokenizer)) if served.tokenizer else None
    charges = None
    if ledger is not None:
        ledger.check_room(job.arm.name, served.price, *batch_most(job.prompts))
        charges = Charges(ledger, job.arm.name, served)
    client = Client(job.arm.name, served, at_once, charges=charges, notify=notify, pace=pace)
    results = _Results(job, folder, sampling, client.forms)
    if hand is None or not comes_in_parts(job):
        client.received = received_of(job)
        try:
            return asyncio.run(_ask(client, job, results, lambda: answer_all(client, job, folder)))
        except IntegrityError:
            client.received.forget()
            raise
    handed = _Handed(job, results, hand)
    try:
        return asyncio.run(_ask(client, job, results, lambda: handed.ask(client, at_once)))
    except IntegrityError as error:
        handed.take_back(str(error))
        raise


def comes_in_parts(job: Job) -> bool:
    """Return whether each answer can be handed on as it comes: it depends on no other arm's and is read no further."""
    return job.arm.served is not None and not job.artifact


class _Results:
    """Results of a job's answers, once its server has declared itself (`declaration`)."""

    def __init__(self, job: Job, folder: ModelFolder | None, sampling: Mapping[str, Any], forms: Forms) -> None:
        self._job, self._folder, self._sampling, self._forms = job, folder, dict(sampling), forms
        self._began, self._texts, self.declaration = time(), Texts(job, folder), ""
        self._only_thought: list[bool] = []  # of each answer so far

    def of(self, rows: Sequence[int], answered: Answered, *, part: bool = False) -> JobResult:
        """Return the result of these rows' answers, which are all that `answered` has."""
        job, answers = self._job, answered.answers
        drafts = zip(answered.proposed, answered.accepted, strict=True)
        self._only_thought += [
            bool(answer.thought and not answer.text.strip() and not answer.calls) for answer in answers
        ]
        entries = zip(rows, answers, drafts, strict=True)
        return JobResult(
            index=job.index,
            arm=job.arm.name,
            identity=identify_served(job.arm, self._folder, self._sampling, self.declaration),
            footprint=NOT_TOLD,
            completions=tuple(_completion(job, *entry, self._texts, self._began) for entry in entries),
            drifts=answered.drifts,
            generation=replace(
                answered.generation,
                engine=self.declaration.rpartition("; ")[2],
                because=answered.generation.because or ("" if part else _all_thought(self._only_thought)),
                drawing=_drawing(job, rows, answers),
                answered_by=tuple(sorted(Counter(name for answer in answers for name in answer.models).items())),
                asked_whole=self._forms.whole,
            ),
            part=part,
        )


def _all_thought(answers: Sequence[bool]) -> str:
    """Return the note that the server's parser took every text as a thought, else "".

    answers: for each answer of the batch, whether it is only a thought.
    """
    if not answers or not all(answers):
        return ""
    return (
        f"all {len(answers)} answers of a batch are told as thought (`reasoning_content`), and none has a text: its "
        "server's reasoning parser takes all of it, or `max_new_tokens` ends before the answer"
    )


class _Handed:
    """The answers of one job, handed back before it ends."""

    def __init__(self, job: Job, results: _Results, hand: Hand) -> None:
        self._job, self._results, self._hand = job, results, hand
        self._answered: list[UnitKey] = []
        self._in_turn = asyncio.Lock()

    async def ask(self, client: Client, at_once: int) -> Answered:
        """Request every answer; hand on each, and each case that fails. Returns no answers."""
        prompts = self._job.prompts
        rows = {prompt.key: row for row, prompt in enumerate(prompts)}

        async def checked(prompt: Prompt) -> None:
            answer = await answer_to(client, self._job, prompt)
            await self._answer(rows.pop(prompt.key), answer)

        with suppress(NotServed):  # of a case that is refused: it is asked again with the others, and fails there
            await check_streams(client, self._job, checked)
        remaining = list(rows.values())

        async def ask(prompt: Prompt) -> Answer:
            try:
                return await answer_to(client, self._job, prompt)
            except NotServed:
                await _declared(client, self._job)  # it refuses because it serves another model now?
                raise

        await ask_each(
            [prompts[row] for row in remaining], at_once, ask,
            lambda at, answer: self._answer(remaining[at], answer), lambda at, fault: self._fail(remaining[at], fault),
        )  # fmt: skip
        return Answered(answers=(), proposed=(), accepted=())

    async def _answer(self, row: int, answer: Answer) -> None:
        self._answered.append(self._job.prompts[row].key)
        await self._handed(self._results.of([row], plain_answers([answer]), part=True))

    async def _fail(self, row: int, fault: Fault) -> None:
        key, refused = self._job.prompts[row].key, isinstance(fault, NotServed)
        await self._handed(self._failure((key,), f"{key.question}: {fault}", refused=refused))

    async def _handed(self, part: JobResult | JobFailure) -> None:
        """Hand on a part; in a thread if times are compared, which must not contain the wait for the store."""
        async with self._in_turn:
            if self._job.timed:
                await asyncio.to_thread(self._hand, part)
            else:
                self._hand(part)

    def take_back(self, error: str) -> None:
        """Declare all handed answers void."""
        if self._answered:
            self._hand(self._failure(tuple(self._answered), error, void=True))

    def _failure(self, keys: tuple[UnitKey, ...], error: str, **more: bool) -> JobFailure:
        return JobFailure(index=self._job.index, arm=self._job.arm.name, keys=keys, error=error, part=True, **more)


def _drawing(job: Job, rows: Sequence[int], answers: Sequence[Answer]) -> tuple[float, ...]:
    """Return the evidence on whether the server samples, see `Generation.drawing`."""
    served = job.arm.served
    assert served is not None, "asked of served arms alone"
    odds = (
        odds_of_drawing(job.prompts[row], served, answer.margins) for row, answer in zip(rows, answers, strict=True)
    )
    return tuple(map(sum, zip(*filter(None, odds), strict=True)))


async def _ask(opened: Client, job: Job, results: _Results, answers: Callable[[], Awaitable[Answered]]) -> JobResult:
    """Return the answers in the order of the prompts, with the server's counts of its drafts (`window_of`).

    opened: the client, not yet entered; answers: requests them. IntegrityError if the server's declaration changed
    meanwhile.
    """
    assert job.arm.served is not None, "asked of served arms alone"
    async with opened as client:
        before = await (declared(client, job.arm) if job.arm.served.command else _declared(client, job))
        results.declaration = before
        counts = await read_counts(client, job.arm.served.engine)
        try:
            answered = await answers()
        except NotServed:
            await _declared(client, job)  # it refuses because it serves another model now?
            raise
        if (after := await _declared(client, job)) != before:
            raise IntegrityError(
                f"{job.arm.name}: its server declared {before!r:.300} before these answers and {after!r:.300} after "
                "them: it changed during the run."
            )
        windows, uncounted = window_of(job, counts, await read_counts(client, job.arm.served.engine))
    generation = replace(answered.generation, windows=windows, uncounted=uncounted)
    return results.of(range(len(answered.answers)), replace(answered, generation=generation))


async def _declared(client: Client, job: Job) -> str:
    """Return the server's declaration. IntegrityError if it repeatedly lists its models without the arm's; NotServed if
    it declares nothing now, say for an expired key: that makes no answer void."""
    for tries in range(1, LOOKS):
        with suppress(ModelGone):
            return await declared(client, job.arm)
        await client.pause(tries)
    try:
        return await declared(client, job.arm)
    except ModelGone as gone:
        raise IntegrityError(f"{gone}. It did when the run was planned: the server changed during the run.") from None


def _completion(
    job: Job, row: int, answer: Answer, of_baseline: tuple[int, int], texts: Texts, began: float
) -> Completion:
    """Return an answer as a completion. of_baseline: tokens of the baseline's answer proposed and accepted."""
    prompt = job.prompts[row]
    text, reason, thought = texts.of(row, answer)
    proposed, accepted = answer.drafts or (None, None)
    return Completion(
        key=prompt.key,
        case_hash=prompt.case_hash,
        token_ids=answer.token_ids or (),
        text=text,
        finish_reason=reason,
        prompt_tokens=answer.prompt_tokens or len(prompt.token_ids),
        logprobs=answer.logprobs,
        margins=() if prompt.sampling.drawn else answer.margins,
        ttft=answer.first,
        e2e=answer.last,
        baseline_proposed=of_baseline[0],
        baseline_accepted=of_baseline[1],
        began=began,
        max_gap=answer.max_gap,
        draft_proposed=proposed,
        draft_accepted=accepted,
        thought=thought,
        calls=answer.calls if gives_calls(prompt) else None,
        counted=None if answer.token_ids is not None else answer.completion_tokens,
        reply=answer.reply,
    )
