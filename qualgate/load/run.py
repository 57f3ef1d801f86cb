"""The main path of `qualgate load`: arms in turns, at each level, in each round; `rules` judges."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from qualgate.config import GateFile
from qualgate.errors import IntegrityError, UsageError
from qualgate.formatting import counted, time_text
from qualgate.load.asking import ask
from qualgate.load.connections import connections
from qualgate.load.counters import Counted, counted_since, written_now
from qualgate.load.loops import closed_loop, open_loop
from qualgate.load.prompts import Asked, asked_of_arms, places_in
from qualgate.load.schedule import Level, arrivals, is_closed, levels_of, prompt_of, replayed, turns
from qualgate.load.sent import Sent, Stage
from qualgate.load.trace import Arrival, read_trace
from qualgate.pipeline.served_arms import leaves_the_machine, told_of
from qualgate.records import ArmSpec, Load, Prompt
from qualgate.served.asked import request_of
from qualgate.served.client import Client
from qualgate.served.declared import declared
from qualgate.served.faults import RequestRefused
from qualgate.served.launch import check_programs, running
from qualgate.served.questions import of_case

MOST_OPEN = 4_096  # requests under way at once in an open loop; those beyond wait, and their times go on


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """All that was sent. stages, counts: by arm and level, one of each round; counts: None where requests were not
    closed, or the server tells no tokens. told: arm → what its server says that it is."""

    load: Load
    seed: int
    levels: tuple[Level, ...]
    arms: tuple[ArmSpec, ...]
    prompts: int
    told: Mapping[str, str]
    stages: Mapping[tuple[str, Level], tuple[Stage, ...]]
    counts: Mapping[tuple[str, Level], tuple[Counted | None, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """One stage to come. closes: share of requests that are closed early."""

    load: Load
    level: Level
    seed: int
    number: int
    trace: tuple[Arrival, ...] = ()
    cases: Mapping[int, int] = field(default_factory=dict)

    @property
    def what(self) -> tuple[object, ...]:
        """What its draws belong to: not the arm, so all arms are asked the same at the same times."""
        return self.number, self.level.label

    @property
    def seconds(self) -> float:
        """In which new requests come."""
        return self.load.seconds if self.level.kind != "trace" else replayed(self.trace, self.load.speed)[-1]


def measure(gate: GateFile, tell: Callable[[str], None] = lambda line: None) -> Loaded:
    """Load every served arm of the gate file, as its section `load` says.

    UsageError for what cannot be asked, or what a server refuses; InfrastructureError where one does not start, or does
    not say who it is; IntegrityError where it says something else after a stage than before. What fails under load is
    counted. tell: a line about what is being done.
    """
    asked, levels = {one.arm.name: one for one in asked_of_arms(gate)}, levels_of(gate.load)
    trace = read_trace(Path(gate.load.trace)) if gate.load.trace else ()
    _check_window(gate.load, trace)
    first = next(iter(asked.values()))
    cases = places_in(first.prompts, trace, gate.load.trace)
    stages: dict[tuple[str, Level], list[Stage]] = {}
    counts: dict[tuple[str, Level], list[Counted | None]] = {}
    check_programs([one.arm for one in asked.values()], gate.path.parent)
    told = told_of([one.arm for one in asked.values()])  # who is not there, or not as said, is told of first
    order = turns(list(asked), gate.load.rounds, levels, gate.seed)
    for line in (
        *leaves_the_machine([one.arm for one in asked.values()]),
        _lasts(gate.load, levels, trace, len(asked)),
    ):
        tell(line)
    for number, level, one in _with_servers(order, asked, gate.path.parent, gate.seed):
        tell(f"round {number + 1} of {gate.load.rounds}: {one.arm.name}, {level.label}")
        turn = _Turn(load=gate.load, level=level, seed=gate.seed, number=number, trace=trace, cases=cases)
        stage, count, said = asyncio.run(_stage(one, turn))
        _check_same(one.arm, told.setdefault(one.arm.name, said), said)
        stages.setdefault((one.arm.name, level), []).append(stage)
        counts.setdefault((one.arm.name, level), []).append(count)
    return Loaded(
        load=gate.load,
        seed=gate.seed,
        levels=levels,
        arms=tuple(one.arm for one in asked.values()),
        prompts=len(first.prompts),
        told=told,
        stages={key: tuple(some) for key, some in stages.items()},
        counts={key: tuple(some) for key, some in counts.items()},
    )


def _with_servers(
    order: Sequence[tuple[int, Level, str]], asked: Mapping[str, Asked], folder: Path, seed: int
) -> Iterator[tuple[int, Level, Asked]]:
    """Each turn with its arm's address. Servers that are started here do not run together, for they may not fit the
    device: where there is one, a turn is all levels of an arm in a round."""
    started = any(one.arm.served is not None and one.arm.served.command for one in asked.values())
    if started:
        names = list(dict.fromkeys(name for _, _, name in order))
        levels = list(dict.fromkeys(level for _, level, _ in order))
        rounds = 1 + max(number for number, _, _ in order)
        whole = turns(names, rounds, levels[:1], seed)
        order = [(number, level, name) for number, _, name in whole for level in levels]
    with ExitStack() as stack:
        at: tuple[int, str] | None = None
        reached: ArmSpec | None = None
        for number, level, name in order:
            if reached is None or at != (number, name):
                stack.close()
                reached, at = stack.enter_context(running(asked[name].arm, folder, lambda: False)), (number, name)
            assert reached is not None, "never asked to stop"
            yield number, level, replace(asked[name], arm=reached)


def _lasts(load: Load, levels: Sequence[Level], trace: Sequence[Arrival], arms: int) -> str:
    of_trace = replayed(trace, load.speed)[-1] if trace else 0.0
    seconds = load.rounds * arms * sum(of_trace if level.kind == "trace" else load.seconds for level in levels)
    return (
        f"{counted(arms, 'arm')} at {counted(len(levels), 'level')} in "
        f"{counted(load.rounds, 'round')}: {time_text(seconds)}, and what the last answers take"
    )


def _check_window(load: Load, trace: Sequence[Arrival]) -> None:
    lasts = replayed(trace, load.speed)[-1] if trace else None
    if lasts is not None and load.warmup + load.cooldown >= lasts:
        raise UsageError(
            f"{load.trace}: at speed {load.speed:g} it lasts {lasts:g} s, of which {load.warmup:g} s are warm-up and "
            f"{load.cooldown:g} s cool-down, so nothing would count. Shorten `load.warmup` and `load.cooldown`."
        )


async def _stage(one: Asked, turn: _Turn) -> tuple[Stage, Counted | None, str]:
    """One arm at one level, once; what its server counted, and what it says that it is."""
    served = one.arm.served
    assert served is not None, "chosen so"
    closed = turn.level.kind == "concurrency"
    at_once = connections(int(turn.level.value)) if closed else connections(MOST_OPEN, at_most=True)
    async with Client(one.arm.name, served, at_once) as client:
        before = await declared(client, one.arm)
        written = await written_now(client) if turn.load.cancel else None

        async def send(number: int, due: float) -> Sent:
            place = turn.cases.get(number)
            if place is None:
                place = prompt_of(number, len(one.prompts), turn.seed, *turn.what)
            return await _sent(client, one.arm, one.prompts[place], place, number, due, turn)

        gc.collect()
        gc.freeze()  # to look through what is long there takes milliseconds, from whichever piece is due
        try:
            if closed:
                start, sent = await closed_loop(send, at_once, turn.seconds)
            else:
                start, sent = await open_loop(send, _arrivals(turn))
        finally:
            gc.unfreeze()
        count = await counted_since(client, written)
        _check_same(one.arm, before, await declared(client, one.arm))
    stage = Stage(
        start=start,
        opens=start + turn.load.warmup,
        closes=start + turn.seconds - turn.load.cooldown,
        end=start + turn.seconds,
        sent=tuple(sorted(sent, key=lambda sent: (sent.due, sent.began))),
    )
    return stage, count, before


def _check_same(arm: ArmSpec, before: str, now: str) -> None:
    if now != before:
        raise IntegrityError(
            f"{arm.name}: its server declared {before!r:.300} at first and {now!r:.300} now: it changed while it was "
            "measured, and the times are of two."
        )


def _arrivals(turn: _Turn) -> tuple[float, ...]:
    if turn.level.kind == "trace":
        return replayed(turn.trace, turn.load.speed)
    return arrivals(turn.level.value, turn.seconds, turn.load.burstiness, turn.seed, *turn.what)


async def _sent(
    client: Client, arm: ArmSpec, prompt: Prompt, place: int, number: int, due: float, turn: _Turn
) -> Sent:  # fmt: skip
    path, body = request_of(prompt, arm, turn.seed)
    if turn.trace and turn.level.kind == "trace" and (most := turn.trace[number].max_tokens) is not None:
        body = {**body, "max_tokens": most}
    closes = is_closed(number, turn.load.cancel, turn.seed, *turn.what)
    try:
        return await ask(client, path, body, prompt=place, due=due, tries=1 + turn.load.retries, closes=closes)
    except RequestRefused as refused:
        raise of_case(refused, prompt) from None
