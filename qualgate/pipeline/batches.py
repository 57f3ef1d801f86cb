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

from qualgate.gate.early import Question
from qualgate.gate.evidence.time_groups import groups_for
from qualgate.records import NOISE, Job, Policy, Prompt, Sampling, UnitKey
from qualgate.records.metrics import METRICS

JOB_ROWS = 128  # rows handed to a worker at once, and the most that a kill can lose; the engine schedules passes
TIMED_ROWS = 64  # the same where times decide: these rows begin together and share each pass
JOB_TOKENS = 32_768  # limit of rows x (longest prompt + longest answer)
LEAST_BATCHES = 24  # where times decide: six Williams squares
LEAST_FOR_TAILS = 60  # with a service level objective: of fewer, none may lie beyond the 95th percentile
TIMED = 3  # how timed runs are laid out and measured; 1: arm after arm, no warm-up; 2: in six blocks


def times_decide(policy: Policy) -> bool:
    """Whether the policy needs times: it has a rule on latency, cost or goodput, or chooses by cost. A service level
    objective alone does not: only a load is measured against it."""
    return policy.chooses or any(METRICS[rule.metric].kind in ("latency", "cost", "service") for rule in policy.rules)


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
    compared, noise_jobs = (list(jobs), []) if looks else split_noise_arm(jobs)
    count = 1 + max(job.index for job in compared)
    turns = min(turns or count, count)
    arms, generator = list(dict.fromkeys(job.arm.name for job in compared)), random.Random(seed)
    orders = [generator.sample(arms, len(arms)) for _ in range(turns)]
    compared = [replace(job, stage=job.index * turns // count) for job in compared]
    return [
        *sorted(compared, key=lambda job: (job.stage, orders[job.stage].index(job.arm.name), job.index)),
        *after_turns(noise_jobs, turns),
    ]


def after_turns(noise_jobs: Sequence[Job], turns: int) -> list[Job]:
    """Return the A/A arm's jobs with stages after all turns."""
    return [replace(job, stage=turns + job.index) for job in noise_jobs]


def split_noise_arm(jobs: Sequence[Job]) -> tuple[list[Job], list[Job]]:
    """Return the jobs of the compared arms, and those of the A/A arm."""
    noise_jobs = [job for job in jobs if job.arm.name.endswith(NOISE)]
    return [job for job in jobs if not job.arm.name.endswith(NOISE)], noise_jobs
