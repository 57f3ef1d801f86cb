"""Which prompts run together in a batch, and in which order a run's jobs come.

Where times decide ("timed" runs), an arm's batches are to be compared with another's: so there are many, what belongs
together stays in one, and the arms take turns. A turn is each arm's batch of the same cases, one right after the other
in an order that is drawn: whatever the machine does, it does to either arm as likely, so turns are independent
observations though neighbouring batches are not (`gate.evidence.time_groups`).
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from qualgate.errors import UsageError
from qualgate.gate.early import Question
from qualgate.gate.evidence.time_groups import groups_for
from qualgate.metrics import METRICS
from qualgate.records import NOISE, Job, Policy, Prompt, Sampling, UnitKey

JOB_ROWS = 128  # that a worker gets at once: who joins a pass when, is the engine's; what a kill may lose, is this
TIMED_ROWS = 64  # likewise where times decide: they begin together, and are in one pass as long as they last
JOB_TOKENS = 32_768  # rows x (longest prompt + longest answer): likewise, of long answers
LEAST_BATCHES = 24  # where times decide; six Williams squares of four arms
LEAST_FOR_TAILS = 60  # where an objective does: of fewer, none may lie beyond the 95th percentile
TIMED = 3  # how timed runs are laid out and measured; 1: arm after arm, no warm-up; 2: in six blocks


def times_decide(policy: Policy) -> bool:
    """Whether a rule on latency, cost or goodput asks for times, or four arms do, which are served side by side. A
    service level objective alone asks for none: without these nothing is held against it but a load."""
    return policy.four_arm is not None or any(
        METRICS[rule.metric].kind in ("latency", "cost", "service") for rule in policy.rules
    )


def least_batches(policy: Policy) -> int:
    """Where times decide, how many batches there are to be at least; 0 where they do not."""
    if not times_decide(policy):
        return 0
    return max(LEAST_BATCHES, LEAST_FOR_TAILS if policy.slo is not None else 0, groups_for(policy))


def most_rows(prompts: int, least: int) -> int:
    """Of a batch. least: how many batches there are to be at least, to be compared; 0 = times decide nothing."""
    return min(TIMED_ROWS, max(1, prompts // least)) if least else JOB_ROWS


# ---------------------------------------------------------------------------------------------------- the batches


def batches(
    prompts: Sequence[Prompt], most: int = JOB_ROWS, clusters: Mapping[Question, Hashable] | None = None
) -> Iterator[list[int]]:
    """Positions of prompts that run together, `most` at most: of one kind and sampling, and alike in answer length
    first, since the longest answer sets the steps.

    clusters: prompts with equal ones depend on each other anyway, and stay in one batch. Those of a cluster that is too
    large for one are in batches of their own. None: each prompt for itself.
    """
    order = sorted(
        range(len(prompts)),
        key=lambda i: (
            *_kind(prompts[i]),
            -(prompts[i].max_new_tokens // 16),
            -prompts[i].tokens_read,
            prompts[i].key,
        ),
    )
    together: dict[Hashable, list[int]] = {}  # in the order of the longest of each
    for i in order:
        name = i if clusters is None else (_kind(prompts[i]), clusters[_question(prompts[i].key)])
        together.setdefault(name, []).append(i)
    whole: list[list[int]] = []
    for cluster in together.values():
        parts = list(_filled(([i] for i in cluster), prompts, most))
        if len(parts) == 1:
            whole += parts
            continue
        yield from _filled(whole, prompts, most)
        yield from parts
        whole = []
    yield from _filled(whole, prompts, most)


def _filled(units: Iterable[list[int]], prompts: Sequence[Prompt], most: int) -> Iterator[list[int]]:
    """Batches of as many units as fit, in their order; a unit is never parted."""
    batch: list[int] = []
    longest = answer = 0
    for unit in units:
        read = max(prompts[i].tokens_read for i in unit)
        written = max(prompts[i].max_new_tokens for i in unit)
        rows = len(batch) + len(unit)
        full = rows > most or rows * (max(longest, read) + max(answer, written)) > JOB_TOKENS
        if batch and (full or _kind(prompts[batch[0]]) != _kind(prompts[unit[0]])):
            yield batch
            batch, longest, answer = [], 0, 0
        batch, longest, answer = [*batch, *unit], max(longest, read), max(answer, written)
    if batch:
        yield batch


def _kind(prompt: Prompt) -> tuple[bool, Sampling]:
    return bool(prompt.requests), prompt.sampling


def staged(
    prompts: Sequence[Prompt],
    stages: Sequence[frozenset[Question]],
    most: int,
    clusters: Mapping[Question, Hashable] | None = None,
) -> list[tuple[int, list[int]]]:
    """The stage of each batch, and its positions: none holds questions of two looks."""
    found = []
    for stage, questions in enumerate(stages):
        mine = [i for i, prompt in enumerate(prompts) if _question(prompt.key) in questions]
        laid = batches([prompts[i] for i in mine], most, clusters)
        found += [(stage, [mine[i] for i in batch]) for batch in laid]
    return found


def regrouped(prompts: Sequence[Prompt]) -> Iterator[list[int]]:
    """Each of the baseline's batches in two, every second row in the other: no row keeps its neighbours."""
    for batch in batches(prompts):
        yield from filter(None, (batch[0::2], batch[1::2]))


def _question(key: UnitKey) -> Question:
    return key.evalset, key.case_id, key.repeat


# ------------------------------------------------------------------------------------------------------ the order


def in_turns(jobs: Sequence[Job], seed: int, *, looks: bool = False, turns: int | None = None) -> list[Job]:
    """The jobs turn by turn, each a stage: of every arm those of the same cases, the arms in an order of its own.

    turns: how many at most, each then of several batches an arm: for arms that have to be loaded again in each. None:
    as many as there are batches. looks: the jobs are in stages already, which turns keep; else an A/A arm, which is in
    no comparison of times and has other batches, comes after all.
    """
    compared, again = (list(jobs), []) if looks else _apart(jobs)
    count = 1 + max(job.index for job in compared)
    turns = min(turns or count, count)
    arms, generator = list(dict.fromkeys(job.arm.name for job in compared)), random.Random(seed)
    orders = [generator.sample(arms, len(arms)) for _ in range(turns)]
    compared = [replace(job, stage=job.index * turns // count) for job in compared]
    return [
        *sorted(compared, key=lambda job: (job.stage, orders[job.stage].index(job.arm.name), job.index)),
        *_afterwards(again, turns),
    ]


def in_blocks(jobs: Sequence[Job], policy: Policy, baseline: str) -> tuple[list[Job], Policy]:
    """The jobs in turns of four arms, each in an order of Williams', and the policy that tells the orders.

    An A/A arm is no part of the traffic that is compared: its jobs, in batches of their own, come after all turns.
    UsageError when the four arms are not what the run has.
    """
    jobs, again = _apart(jobs)
    arms = policy.four_arm
    assert arms is not None
    letters = {baseline: "B", arms.quantization: "Q", arms.speculation: "S", arms.both: "X"}
    if set(letters) != {job.arm.name for job in jobs} or len(letters) != 4:
        raise UsageError(
            f"four arms are the baseline and three variants, {', '.join(list(letters)[1:])}; the gate file has "
            f"{', '.join(dict.fromkeys(job.arm.name for job in jobs if not job.arm.is_baseline))}. Judge the others "
            "by a gate file that names no arms."
        )
    orders = williams_blocks(1 + max(job.index for job in jobs), arms.seed)
    ordered = sorted(jobs, key=lambda job: (job.index, orders[job.index].index(letters[job.arm.name])))
    turns = [replace(job, stage=job.index) for job in ordered]
    return [*turns, *_afterwards(again, len(orders))], replace(policy, four_arm=replace(arms, blocks=orders))


def _afterwards(again: Sequence[Job], turns: int) -> list[Job]:
    return [replace(job, stage=turns + job.index) for job in again]


def williams_blocks(count: int, seed: int) -> tuple[str, ...]:
    """An order of the four arms B, Q, S, X (both) for each of `count` blocks.

    Every four blocks are a Williams square (each arm once in each place, each after each other one once), its arms
    and its rows shuffled, so that neither place nor predecessor favours an arm. Biometrics 5 (1949).
    """
    square = ((0, 1, 3, 2), (1, 2, 0, 3), (2, 3, 1, 0), (3, 0, 2, 1))
    generator = random.Random(seed)
    orders: list[str] = []
    while len(orders) < count:
        arms, rows = list("BQSX"), list(square)
        generator.shuffle(arms)
        generator.shuffle(rows)
        orders += ["".join(arms[place] for place in row) for row in rows]
    return tuple(orders[:count])


def _apart(jobs: Sequence[Job]) -> tuple[list[Job], list[Job]]:
    """(the jobs of arms that are compared, those of the A/A arm)."""
    again = [job for job in jobs if job.arm.name.endswith(NOISE)]
    return [job for job in jobs if not job.arm.name.endswith(NOISE)], again
