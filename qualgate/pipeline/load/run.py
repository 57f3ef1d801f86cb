"""The main path of `qualgate load`: measure the arms in turns, at each level, in each round; `rules` judges."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from qualgate.config import GateFile
from qualgate.errors import IntegrityError, UsageError
from qualgate.pipeline.load.asking import ask
from qualgate.pipeline.load.connections import connections
from qualgate.pipeline.load.counters import Counted, counted_since, written_now
from qualgate.pipeline.load.loops import closed_loop, open_loop
from qualgate.pipeline.load.prompts import ArmPrompts, places_in, prompts_of_arms
from qualgate.pipeline.load.schedule import Level, arrivals, is_closed, levels_of, prompt_of, replayed, turns
from qualgate.pipeline.load.sent import Sent, Stage
from qualgate.pipeline.load.trace import Arrival, read_trace
from qualgate.pipeline.served_arms import leaves_the_machine, told_of
from qualgate.records import ArmSpec, Load, Prompt
from qualgate.served.asked import request_of
from qualgate.served.client import Client
from qualgate.served.declared import declared
from qualgate.served.faults import RequestRefused
from qualgate.served.launch import check_programs, running
from qualgate.served.questions import of_case
from qualgate.text.numbers import counted, time_text

MOST_OPEN = 4_096  # concurrent requests in an open loop; further ones wait while their times run


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """All requests of a load. stages, counts: by arm and level, one per round; counts: None if no requests were closed,
    or the server does not count tokens. declarations: arm → its server's description of itself."""

    load: Load
    seed: int
    levels: tuple[Level, ...]
    arms: tuple[ArmSpec, ...]
    prompts: int
    declarations: Mapping[str, str]
    stages: Mapping[tuple[str, Level], tuple[Stage, ...]]
    counts: Mapping[tuple[str, Level], tuple[Counted | None, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """One stage to be run."""

    load: Load
    level: Level
    seed: int
    number: int
    trace: tuple[Arrival, ...] = ()
    cases: Mapping[int, int] = field(default_factory=dict)

    @property
    def what(self) -> tuple[object, ...]:
        """The key of the random draws, without the arm, so all arms get the same requests at the same times."""
        return self.number, self.level.label

    @property
    def seconds(self) -> float:
        """The time in which new requests are sent."""
        return self.load.seconds if self.level.kind != "trace" else replayed(self.trace, self.load.speed)[-1]


def measure(gate: GateFile, tell: Callable[[str], None] = lambda line: None) -> Loaded:
    """Load every served arm of the gate file, as its section `load` says.

    UsageError for requests that cannot be made, or that a server refuses; InfrastructureError if a server does not
    start or does not identify itself; IntegrityError if it identifies itself differently after a stage. Failures under
    load are counted. tell: receives progress lines.
    """
    by_name, levels = {each.arm.name: each for each in prompts_of_arms(gate)}, levels_of(gate.load)
    trace = read_trace(Path(gate.load.trace)) if gate.load.trace else ()
    _check_window(gate.load, trace)
    first = next(iter(by_name.values()))
    cases = places_in(first.prompts, trace, gate.load.trace)
    stages: dict[tuple[str, Level], list[Stage]] = {}
    counts: dict[tuple[str, Level], list[Counted | None]] = {}
    check_programs([each.arm for each in by_name.values()], gate.path.parent)
    declarations = told_of([each.arm for each in by_name.values()])  # fails first for missing or wrong servers
    order = turns(list(by_name), gate.load.rounds, levels, gate.seed)
    for line in (
        *leaves_the_machine([each.arm for each in by_name.values()]),
        _duration_text(gate.load, levels, trace, len(by_name)),
    ):
        tell(line)
    for number, level, arm_prompts in _with_servers(order, by_name, gate.path.parent, gate.seed):
        tell(f"round {number + 1} of {gate.load.rounds}: {arm_prompts.arm.name}, {level.label}")
        turn = _Turn(load=gate.load, level=level, seed=gate.seed, number=number, trace=trace, cases=cases)
        stage, count, declaration = asyncio.run(_stage(arm_prompts, turn))
        _check_same(arm_prompts.arm, declarations.setdefault(arm_prompts.arm.name, declaration), declaration)
        stages.setdefault((arm_prompts.arm.name, level), []).append(stage)
        counts.setdefault((arm_prompts.arm.name, level), []).append(count)
    return Loaded(
        load=gate.load,
        seed=gate.seed,
        levels=levels,
        arms=tuple(each.arm for each in by_name.values()),
        prompts=len(first.prompts),
        declarations=declarations,
        stages={key: tuple(of_rounds) for key, of_rounds in stages.items()},
        counts={key: tuple(of_rounds) for key, of_rounds in counts.items()},
    )


def _with_servers(
    order: Sequence[tuple[int, Level, str]], by_name: Mapping[str, ArmPrompts], folder: Path, seed: int
) -> Iterator[tuple[int, Level, ArmPrompts]]:
    """Yield each turn with its arm's address. Servers started here run one at a time, since they may not fit the device
    together; a turn is then all levels of an arm in a round."""
    started = any(each.arm.served is not None and each.arm.served.command for each in by_name.values())
    if started:
        names = list(dict.fromkeys(name for _, _, name in order))
        levels = list(dict.fromkeys(level for _, level, _ in order))
        rounds = 1 + max(number for number, _, _ in order)
        whole = turns(names, rounds, levels[:1], seed)
        order = [(number, level, name) for number, _, name in whole for level in levels]
    with ExitStack() as stack:
        turn: tuple[int, str] | None = None
        reached: ArmSpec | None = None
        for number, level, name in order:
            if reached is None or turn != (number, name):
                stack.close()
                reached, turn = stack.enter_context(running(by_name[name].arm, folder, lambda: False)), (number, name)
            assert reached is not None, "never asked to stop"
            yield number, level, replace(by_name[name], arm=reached)


def _duration_text(load: Load, levels: Sequence[Level], trace: Sequence[Arrival], arms: int) -> str:
    """Return how many arms, levels and rounds are measured, and how long that takes without the last answers."""
    of_trace = replayed(trace, load.speed)[-1] if trace else 0.0
    seconds = load.rounds * arms * sum(of_trace if level.kind == "trace" else load.seconds for level in levels)
    return (
        f"{counted(arms, 'arm')} at {counted(len(levels), 'level')} in "
        f"{counted(load.rounds, 'round')}: {time_text(seconds)}, and what the last answers take"
    )


def _check_window(load: Load, trace: Sequence[Arrival]) -> None:
    """Raise UsageError if warm-up and cool-down leave nothing of the trace to count."""
    lasts = replayed(trace, load.speed)[-1] if trace else None
    if lasts is not None and load.warmup + load.cooldown >= lasts:
        raise UsageError(
            f"{load.trace}: at speed {load.speed:g} it lasts {lasts:g} s, of which {load.warmup:g} s are warm-up and "
            f"{load.cooldown:g} s cool-down, so nothing would count. Shorten `load.warmup` and `load.cooldown`."
        )


async def _stage(arm_prompts: ArmPrompts, turn: _Turn) -> tuple[Stage, Counted | None, str]:
    """Load one arm at one level for one round; return also its server's counts and description of itself."""
    served = arm_prompts.arm.served
    assert served is not None, "chosen so"
    closed = turn.level.kind == "concurrency"
    at_once = connections(int(turn.level.value)) if closed else connections(MOST_OPEN, at_most=True)
    async with Client(arm_prompts.arm.name, served, at_once) as client:
        before = await declared(client, arm_prompts.arm)
        written = await written_now(client) if turn.load.cancel else None

        async def send(number: int, due: float) -> Sent:
            index = turn.cases.get(number)
            if index is None:
                index = prompt_of(number, len(arm_prompts.prompts), turn.seed, *turn.what)
            return await _sent(client, arm_prompts.arm, arm_prompts.prompts[index], index, number, due, turn)

        gc.collect()
        gc.freeze()  # a collection over old objects takes milliseconds and would delay the timing of a piece
        try:
            if closed:
                start, sent = await closed_loop(send, at_once, turn.seconds)
            else:
                start, sent = await open_loop(send, _arrivals(turn))
        finally:
            gc.unfreeze()
        count = await counted_since(client, written)
        _check_same(arm_prompts.arm, before, await declared(client, arm_prompts.arm))
    stage = Stage(
        start=start,
        opens=start + turn.load.warmup,
        closes=start + turn.seconds - turn.load.cooldown,
        end=start + turn.seconds,
        sent=tuple(sorted(sent, key=lambda sent: (sent.due, sent.began))),
    )
    return stage, count, before


def _check_same(arm: ArmSpec, before: str, current: str) -> None:
    """Raise IntegrityError if the server describes itself otherwise than before."""
    if current != before:
        raise IntegrityError(
            f"{arm.name}: its server declared {before!r:.300} at first and {current!r:.300} now: it changed while it "
            "was measured, and the times are of two."
        )


def _arrivals(turn: _Turn) -> tuple[float, ...]:
    if turn.level.kind == "trace":
        return replayed(turn.trace, turn.load.speed)
    return arrivals(turn.level.value, turn.seconds, turn.load.burstiness, turn.seed, *turn.what)


async def _sent(
    client: Client, arm: ArmSpec, prompt: Prompt, index: int, number: int, due: float, turn: _Turn
) -> Sent:  # fmt: skip
    """Ask one prompt as the turn says and return its times. index: of the prompt. number: of the request."""
    path, body = request_of(prompt, arm, turn.seed)
    if turn.trace and turn.level.kind == "trace" and (max_tokens := turn.trace[number].max_tokens) is not None:
        body = {**body, "max_tokens": max_tokens}
    closes = is_closed(number, turn.load.cancel, turn.seed, *turn.what)
    try:
        return await ask(client, path, body, prompt=index, due=due, tries=1 + turn.load.retries, closes=closes)
    except RequestRefused as refused:
        raise of_case(refused, prompt) from None
