"""Group prompts into batches, and order a run's jobs.

Where times decide ("timed" runs), one arm's batches are compared with another's. So there are many batches, prompts of
one cluster share a batch, and the arms take turns. A turn runs the same cases on each arm in a drawn order. Machine
disturbances are then equally likely for each arm, so turns are independent observations though neighbouring batches
are not (`gate.evidence.time_groups`).
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

JOB_ROWS = 128  # rows handed to a worker at once, and the most that a kill can lose; the engine schedules passes
TIMED_ROWS = 64  # the same where times decide: these rows begin together and share each pass
JOB_TOKENS = 32_768  # limit of rows x (longest prompt + longest answer)
LEAST_BATCHES = 24  # where times decide: six Williams squares of four arms
LEAST_FOR_TAILS = 60  # with a service level objective: of fewer, none may lie beyond the 95th percentile
TIMED = 3  # how timed runs are laid out and measured; 1: arm after arm, no warm-up; 2: in six blocks


def times_decide(policy: Policy) -> bool:
    """Whether the policy needs times: it has a rule on latency, cost or goodput, or compares four arms. A service level
    objective alone does not: only a load is measured against it."""
    return policy.four_arm is not None or any(
        METRICS[rule.metric].kind in ("latency", "cost", "service") for rule in policy.rules
    )


def least_batches(policy: Policy) -> int:
    """Return the least number of batches where times decide; 0 where they do not."""
    if not times_decide(policy):
        return 0
    return max(LEAST_BATCHES, LEAST_FOR_TAILS if policy.slo is not None else 0, groups_for(policy))


def most_rows(prompts: int, min_batches: int) -> int:
    """Return the most rows of a batch. min_batches: the least number of batches; 0 where times decide nothing."""
    return min(TIMED_ROWS, max(1, prompts // min_batches)) if min_batches else JOB_ROWS


# ---------------------------------------------------------------------------------------------------- the batches


def batches(
    prompts: Sequence[Prompt], max_rows: int = JOB_ROWS, clusters: Mapping[Question, Hashable] | None = None
) -> Iterator[list[int]]:
    """Yield the prompt positions of each batch, at most `max_rows` each: of one kind and sampling, and of similar
    answer length, since the longest answer sets the number of steps.

    clusters: prompts of one cluster depend on each other and stay in one batch; a cluster too large for one gets
    batches of its own. None: each prompt by itself.
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
    members: dict[Hashable, list[int]] = {}  # in the order of the longest of each
    for i in order:
        name = i if clusters is None else (_kind(prompts[i]), clusters[_question(prompts[i].key)])
        members.setdefault(name, []).append(i)
    small_clusters: list[list[int]] = []
    for cluster in members.values():
        cluster_batches = list(_fill_batches(([i] for i in cluster), prompts, max_rows))
        if len(cluster_batches) == 1:
            small_clusters += cluster_batches
            continue
        yield from _fill_batches(small_clusters, prompts, max_rows)
        yield from cluster_batches
        small_clusters = []
    yield from _fill_batches(small_clusters, prompts, max_rows)


def _fill_batches(units: Iterable[list[int]], prompts: Sequence[Prompt], max_rows: int) -> Iterator[list[int]]:
    """Yield batches of as many units as fit into max_rows and JOB_TOKENS, in order. A unit is a list of prompt
    positions and is never split; a batch holds one kind of prompt."""
    batch: list[int] = []
    longest_prompt = longest_answer = 0
    for unit in units:
        prompt_tokens = max(prompts[i].tokens_read for i in unit)
        answer_tokens = max(prompts[i].max_new_tokens for i in unit)
        rows = len(batch) + len(unit)
        tokens = max(longest_prompt, prompt_tokens) + max(longest_answer, answer_tokens)
        full = rows > max_rows or rows * tokens > JOB_TOKENS
        if batch and (full or _kind(prompts[batch[0]]) != _kind(prompts[unit[0]])):
            yield batch
            batch, longest_prompt, longest_answer = [], 0, 0
        batch = [*batch, *unit]
        longest_prompt, longest_answer = max(longest_prompt, prompt_tokens), max(longest_answer, answer_tokens)
    if batch:
        yield batch


def _kind(prompt: Prompt) -> tuple[bool, Sampling]:
    return bool(prompt.requests), prompt.sampling


def staged(
    prompts: Sequence[Prompt],
    stages: Sequence[frozenset[Question]],
    max_rows: int,
    clusters: Mapping[Question, Hashable] | None = None,
) -> list[tuple[int, list[int]]]:
    """Return (stage, prompt positions) of each batch; no batch holds questions of two looks."""
    staged_batches = []
    for stage, questions in enumerate(stages):
        positions = [i for i, prompt in enumerate(prompts) if _question(prompt.key) in questions]
        stage_batches = batches([prompts[i] for i in positions], max_rows, clusters)
        staged_batches += [(stage, [positions[i] for i in batch]) for batch in stage_batches]
    return staged_batches


def regrouped(prompts: Sequence[Prompt]) -> Iterator[list[int]]:
    """Split each of the baseline's batches by even and odd rows, so that no row keeps its neighbours."""
    for batch in batches(prompts):
        yield from filter(None, (batch[0::2], batch[1::2]))


def _question(key: UnitKey) -> Question:
    return key.evalset, key.case_id, key.repeat


# ------------------------------------------------------------------------------------------------------ the order


def in_turns(jobs: Sequence[Job], seed: int, *, looks: bool = False, turns: int | None = None) -> list[Job]:
    """Order the jobs in turns, one stage each: every arm's jobs of the same cases, the arms in a drawn order.

    turns: the most turns, for arms that must be loaded anew in each; None: one turn for each batch. looks: the jobs
    already have stages, which turns keep. Otherwise an A/A arm comes last: it has other batches, and its times are not
    compared.
    """
    compared, noise_jobs = (list(jobs), []) if looks else _split_noise_arm(jobs)
    count = 1 + max(job.index for job in compared)
    turns = min(turns or count, count)
    arms, generator = list(dict.fromkeys(job.arm.name for job in compared)), random.Random(seed)
    orders = [generator.sample(arms, len(arms)) for _ in range(turns)]
    compared = [replace(job, stage=job.index * turns // count) for job in compared]
    return [
        *sorted(compared, key=lambda job: (job.stage, orders[job.stage].index(job.arm.name), job.index)),
        *_after_turns(noise_jobs, turns),
    ]


def in_blocks(jobs: Sequence[Job], policy: Policy, baseline: str) -> tuple[list[Job], Policy]:
    """Return the jobs in turns of four arms, ordered by Williams squares, and the policy with these orders.

    An A/A arm is not compared: its jobs, in batches of their own, come after all turns. Raises UsageError if the run
    does not have exactly the four arms.
    """
    jobs, noise_jobs = _split_noise_arm(jobs)
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
    return [*turns, *_after_turns(noise_jobs, len(orders))], replace(policy, four_arm=replace(arms, blocks=orders))


def _after_turns(noise_jobs: Sequence[Job], turns: int) -> list[Job]:
    return [replace(job, stage=turns + job.index) for job in noise_jobs]


def williams_blocks(count: int, seed: int) -> tuple[str, ...]:
    """Return an order of the four arms B, Q, S, X (both) for each of `count` blocks.

    Every four blocks are a Williams square (each arm once in each place, and once after each other arm) with shuffled
    arms and rows, so that neither place nor predecessor favours an arm. Biometrics 5 (1949).
    """
    square = ((0, 1, 3, 2), (1, 2, 0, 3), (2, 3, 1, 0), (3, 0, 2, 1))
    generator = random.Random(seed)
    orders: list[str] = []
    while len(orders) < count:
        arms, rows = list("BQSX"), list(square)
        generator.shuffle(arms)
        generator.shuffle(rows)
        orders += ["".join(arms[position] for position in row) for row in rows]
    return tuple(orders[:count])


def _split_noise_arm(jobs: Sequence[Job]) -> tuple[list[Job], list[Job]]:
    noise_jobs = [job for job in jobs if job.arm.name.endswith(NOISE)]
    return [job for job in jobs if not job.arm.name.endswith(NOISE)], noise_jobs
