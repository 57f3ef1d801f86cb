"""One job of a served arm: every prompt is asked of its server, and what it answers is handed back as an engine's.

Nothing is measured of what a server does not tell: no margins, and drift only where it lists log-probs. What it says of
itself is asked before the job and after it, so that a server that was started again with another model is found (the
store holds it against the plan).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import repeat
from pathlib import Path
from time import time
from typing import Any

from qualgate.engine.prompts import load_tokenizer
from qualgate.engine.stopping import Stops
from qualgate.engine.thoughts import thought_tokens
from qualgate.errors import IntegrityError
from qualgate.quant.model_folder import ModelFolder, read_tokenizer_folder
from qualgate.records import (
    UNBOUND,
    UNCOUNTED,
    ArmFootprint,
    Completion,
    DraftWindow,
    FinishReason,
    Job,
    JobResult,
    Wire,
)
from qualgate.scoring.reasoning import NONE, split, written
from qualgate.scoring.tools.dialects.registry import dialect
from qualgate.scoring.tools.strict import read_calls
from qualgate.served.answer import Answer
from qualgate.served.answering import Answered, answer_all
from qualgate.served.asked import dialect_asked
from qualgate.served.charging import Charges, batch_most
from qualgate.served.client import Client
from qualgate.served.declared import declared, identify_served
from qualgate.served.drafts_counted import read_counts, window_of
from qualgate.served.faults import NotServed
from qualgate.served.ledger import Ledger
from qualgate.served.tape import session_of
from qualgate.served.told_odds import odds_of_drawing

NOT_TOLD = ArmFootprint(bytes_on_disk=0, bytes_in_memory=0, quantized_bytes=0, effective_bits=0.0)


def run_served(
    job: Job,
    sampling: Mapping[str, Any],
    at_once: int,
    *,
    workers: int = 1,
    wire: Wire = UNBOUND,
    ledger: Ledger | None = None,
) -> JobResult:
    """Ask every prompt of `job`, `at_once` at a time. sampling: of the run, for the identity (`sampling_settings`).
    workers: processes that ask its server at the same time, by whose number its rate is parted. ledger: in
    which requests are counted; None: they are not.

    UsageError for what the server refuses, naming the case; InfrastructureError where an answer does not come whole, as
    BudgetSpent where what the run may spend does not reach, before anything of the job is asked if that is known then.
    """
    served = job.arm.served
    assert served is not None, "asked of served arms alone"
    folder = read_tokenizer_folder(Path(served.tokenizer)) if served.tokenizer else None
    charges = None
    if ledger is not None:
        ledger.check_room(job.arm.name, served.price, *batch_most(job.prompts))
        charges = Charges(ledger, job.arm.name, served)
    began = time()
    session = session_of(wire, job.arm.name, job.arm.model, served, f"job-{job.index:05d}")
    client = Client(job.arm.name, served, at_once, share=workers, session=session, charges=charges)
    answered, told, (windows, uncounted) = asyncio.run(_ask(job, folder, client))
    texts = _Texts(job, folder)
    completions = tuple(_completion(job, row, answered, texts, began) for row in range(len(job.prompts)))
    return JobResult(
        index=job.index,
        arm=job.arm.name,
        identity=identify_served(job.arm, folder, dict(sampling), told),
        footprint=NOT_TOLD,
        completions=completions,
        drifts=answered.drifts,
        generation=replace(
            answered.generation,
            engine=told.rpartition("; ")[2],
            windows=windows,
            uncounted=uncounted,
            drawing=_drawing(job, answered),
        ),
    )


def _drawing(job: Job, answered: Answered) -> tuple[float, ...]:
    """What its answers tell of whether its sampler draws, see `Generation.drawing`."""
    assert job.arm.served is not None, "asked of served arms alone"
    margins = (answer.margins for answer in answered.answers)
    told = (odds_of_drawing(*one) for one in zip(job.prompts, repeat(job.arm.served), margins))
    return tuple(map(sum, zip(*filter(None, told), strict=True)))


async def _ask(
    job: Job, folder: ModelFolder | None, opened: Client
) -> tuple[Answered, str, tuple[tuple[DraftWindow, ...], str]]:
    """The answers in the order of the prompts, what the server says that it is, and what it counted of its drafts
    (`window_of`). IntegrityError where it says something else before them than after them."""
    assert job.arm.served is not None, "asked of served arms alone"
    async with opened as client:
        before = await (declared(client, job.arm) if job.arm.served.command else _told(client, job))
        counts = await read_counts(client, job.arm.served.engine)
        try:
            answered = await answer_all(client, job, folder)
        except NotServed:
            await _told(client, job)  # it refuses because it serves another model now?
            raise
        if (after := await _told(client, job)) != before:
            raise IntegrityError(
                f"{job.arm.name}: its server declared {before!r:.300} before these answers and {after!r:.300} after "
                "them: it changed during the run."
            )
        return answered, before, window_of(job, counts, await read_counts(client, job.arm.served.engine))


async def _told(client: Client, job: Job) -> str:
    """What the server declares. IntegrityError where the arm's model is gone."""
    try:
        return await declared(client, job.arm)
    except NotServed as gone:
        raise IntegrityError(f"{gone}. It did when the run was planned: the server changed during the run.") from None


class _Texts:
    """What answers say, as the engine in process would: decoded here where tokens are told, with calls and thoughts as
    their case has them where the server's parser took them out of the text."""

    def __init__(self, job: Job, folder: ModelFolder | None) -> None:
        self._job, self._stop_ids = job, frozenset(folder.stop_ids) if folder else frozenset()
        self._stops = (
            Stops(load_tokenizer(folder.files), [prompt.until for prompt in job.prompts])
            if folder is not None
            else None
        )

    def of(self, row: int, answer: Answer) -> tuple[str, FinishReason, int | None]:
        """Text and reason of an answer, and the tokens of its thought: counted here where tokens are told, else by the
        server. One that counts none of a thought that is there, or more than the answer has, has not counted them."""
        way = self._job.prompts[row].reasoning
        if self._stops is None or answer.token_ids is None:
            said = "" if answer.calls and answer.text.isspace() else answer.text  # what stood between tags
            text = written(answer.thought, said, self._calls(row, answer), way)
            counted = answer.thought_tokens or 0
            credible = 0 < counted <= (answer.completion_tokens or counted)
            if way == NONE:
                return text, answer.finish, None
            silent = split(text, way).state == "none"
            return text, answer.finish, 0 if silent else counted if credible else UNCOUNTED
        ids = list(answer.token_ids)
        ended = answer.finish == "stop" and bool(ids) and ids[-1] in self._stop_ids
        said = ids[:-1] if ended else ids
        thought = thought_tokens(said, way, partial(self._stops.text, row))
        return self._stops.text(row, said), "eos" if ended else answer.finish, thought

    def _calls(self, row: int, answer: Answer) -> str:
        if not answer.calls:
            return ""
        given = [{"type": "function", "function": {"name": name, "arguments": said}} for name, said in answer.calls]
        try:
            return dialect(dialect_asked(self._job.prompts[row]) or "hermes").serialise(read_calls(given))
        except ValueError:  # arguments that are no JSON, a name that the dialect cannot write: no right call
            return "".join(f"<tool_call>{json.dumps(name)} {said}</tool_call>" for name, said in answer.calls)


def _completion(job: Job, row: int, answered: Answered, texts: _Texts, began: float) -> Completion:
    prompt, answer = job.prompts[row], answered.answers[row]
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
        baseline_proposed=answered.proposed[row],
        baseline_accepted=answered.accepted[row],
        began=began,
        max_gap=answer.max_gap,
        draft_proposed=proposed,
        draft_accepted=accepted,
        thought=thought,
        counted=None if answer.token_ids is not None else answer.completion_tokens,
    )
