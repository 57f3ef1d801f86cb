"""Ways that answer the same prompts in turns, prompt by prompt: what one gains on another, over tasks and prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qualgate.records import Prompt
from qualgate.store.bulk import uncollected
from tests.benchmarks.shape import told

RESAMPLES = 2000
LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One answer. seconds: from the question to the last token; decoding: from the first token on, None where only the
    whole is known."""

    tokens: tuple[int, ...]
    seconds: float
    decoding: float | None = None


Turns = Mapping[str, Sequence[Mapping[str, Turn]]]  # task → of each prompt: way → its turn


def in_turns(name: str, ways: Mapping[str, Callable[[Prompt], Turn]], prompts: Mapping[str, Sequence[Prompt]]) -> Turns:
    """Every way answers each prompt, one after the other, in an order that is turned from prompt to prompt. A prompt of
    each task comes before the next of any, so that a machine's moods fall on all tasks."""
    names = list(ways)
    found: dict[str, list[dict[str, Turn]]] = {task: [] for task in prompts}
    with uncollected():
        for at in told(name, range(max(map(len, prompts.values()))), lambda at: f"prompt {at + 1} of each task"):
            for shift, (task, mine) in enumerate(prompts.items()):
                if at < len(mine):
                    first = (at + shift) % len(names)
                    order = names[first:] + names[:first]
                    found[task].append({one: ways[one](mine[at]) for one in order})
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What a way gains on another. ratio: the geometric mean over tasks of the other's seconds over its own, each the
    sum over prompts; interval: of 95 %, by a bootstrap over the prompts of each task."""

    ratio: float
    interval: tuple[float, float]
    by_task: Mapping[str, float]


def gain(turns: Turns, ours: str, theirs: str, what: str = "seconds") -> Gain:
    """Of `ours` against `theirs`. what: "seconds" or "decoding" of a turn."""
    draw = np.random.default_rng(0)
    by_task, drawn = {}, np.zeros(RESAMPLES)
    for task, prompts in turns.items():
        took = np.array([[getattr(one[name], what) for name in (theirs, ours)] for one in prompts], dtype=float)
        sums = took.sum(0)
        by_task[task] = float(sums[0] / sums[1])
        again = took[draw.integers(0, len(took), (RESAMPLES, len(took)))].sum(1)
        drawn += np.log(again[:, 0] / again[:, 1])
    low, high = np.quantile(np.exp(drawn / len(by_task)), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    ratio = float(np.exp(np.mean([np.log(one) for one in by_task.values()])))
    return Gain(ratio=ratio, interval=(float(low), float(high)), by_task=by_task)


def unlike(turns: Turns, ours: str, theirs: str) -> int:
    """Prompts that the two answered with other tokens."""
    return sum(one[ours].tokens != one[theirs].tokens for prompts in turns.values() for one in prompts)


def shown(name: str, turns: Turns) -> list[dict[str, Any]]:
    """The turns as a result tells them: of each task and way tokens and seconds, prompt by prompt."""
    return [
        {
            "turns": name,
            "task": task,
            **{
                way: {
                    "tokens": [len(one[way].tokens) for one in prompts],
                    "seconds": [one[way].seconds for one in prompts],
                    "decoding": [one[way].decoding for one in prompts],
                }
                for way in prompts[0]
            },
        }
        for task, prompts in turns.items()
    ]
