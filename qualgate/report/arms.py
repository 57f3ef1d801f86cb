"""The arms of a run: their weights, sizes and progress, and notes on how they answered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qualgate.records import Spent
from qualgate.report.blocks import Table
from qualgate.report.probes import probe_lines
from qualgate.report.served import drafts_line
from qualgate.report.spending import spent_lines
from qualgate.store.queries import ArmLine
from qualgate.text.numbers import counted, size_text

LEFT_OUT_SHOWN = 12  # names of left-out tensors for each arm


def arms_table(arms: Sequence[ArmLine]) -> Table:
    """Return weights, sizes, kernels, answers and errors of each arm; dashes where unknown."""
    rows = []
    for arm in arms:
        size = arm.sizes
        sizes = ("–",) * 3
        if size is not None:
            sizes = size_text(size.bytes_on_disk), size_text(size.bytes_in_memory), f"{size.effective_bits:.2f}"
        answers = f"{arm.done:,} of {arm.expected:,}"
        rows.append((arm.name, arm.weights, *sizes, ", ".join(arm.kernels) or "–", answers, f"{arm.errors:,}"))
    heads = ("arm", "weights", "on disk", "in memory", "bits a weight", "kernel", "answers", "errors")
    return Table(heads=heads, rows=tuple(rows), numbers=(2, 3, 4, 6, 7), spare=(2, 3, 4))


def arm_notes(arms: Sequence[ArmLine], judging: Spent | None = None) -> Iterator[str]:
    """Yield what servers declare, invariant modes, probes, requests that deviated from the plan, drafts, spending,
    tensors left out of the model, and peak memory."""
    yield from (_declares(arm) for arm in arms if arm.declared)
    for arm in arms:
        if arm.invariant_mode:
            yield (
                f"{arm.name}: started in {arm.invariant_mode}: what its server answers beside should change no answer"
            )
    yield from probe_lines(arms)
    generations = [(arm.name, arm.footprint.generation) for arm in arms if arm.declared and arm.footprint]
    yield from (f"{name}: {generation.because}" for name, generation in generations if generation.because)
    for name, generation in generations:
        if generation.asked_whole:
            yield f"{name}: answers were asked whole (`stream: false`) from there on: {generation.asked_whole}"
    yield from filter(None, map(drafts_line, arms))
    yield from spent_lines(arms, judging)
    for arm in arms:
        left_out = arm.footprint.left_out if arm.footprint else {}
        named = [f"{name} ({count})" for name, count in left_out.items()]
        more = [f"and {len(named) - LEFT_OUT_SHOWN} more"] if len(named) > LEFT_OUT_SHOWN else []
        if named:
            tensors = counted(sum(left_out.values()), "tensor")
            shown = ", ".join([*named[:LEFT_OUT_SHOWN], *more])
            yield f"{arm.name}: {tensors} of its files left out, no answer rests on them: {shown}"
    yield from memory_notes(arms)


def memory_notes(arms: Sequence[ArmLine]) -> Iterator[str]:
    """Yield a line on the peak memory of each arm's process, and one of its GPU, where they were measured."""
    generations = {arm.name: arm.footprint.generation for arm in arms if arm.footprint}
    for what, peaks in (
        (
            "most memory of its process, libraries and loading included",
            {name: generation.peak for name, generation in generations.items()},
        ),
        ("most memory of its GPU", {name: generation.device_peak for name, generation in generations.items()}),
    ):
        if any(peaks.values()):
            yield f"{what}: {', '.join(f'{name} {size_text(size)}' for name, size in peaks.items() if size)}"


def _declares(arm: ArmLine) -> str:
    """Return what a served arm's server declares, and which part of it was checked."""
    if arm.spec.served is None or not arm.spec.served.command:
        return f"{arm.name}: {arm.weights}, which declares and nobody here checked: {arm.declared}"
    files = arm.spec.served.weights
    hashed = f" over model files of sha256 {files[:12]}" if files else ""
    claims = "its command, and what it declares and nobody here checked"
    return f"{arm.name}: {arm.weights}{hashed}; {claims}: {arm.declared}"
