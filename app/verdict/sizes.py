"""Show what a variant gains (size, memory, time), and how many cases changed."""

from __future__ import annotations

import streamlit as st
from qualgate_app import data
from qualgate_app.text import escape
from streamlit.delta_generator import DeltaGenerator

from qualgate.records import Verdict
from qualgate.store.queries import ArmLine, RunSummary, StoredVerdict, judged_by
from qualgate.text.numbers import ms_text, size_text

MEMORY_HELP = (
    "Weights as a server holds them in memory: packed ones as packed, all others in the arm's dtype. A dense model "
    "reads all of them for each token of one sequence."
)
TIMES = {"latency.tpot": "Time per token", "latency.e2e": "Time of an answer", "latency.ttft": "First token after"}


def show_sizes(run: RunSummary, stored: StoredVerdict) -> None:
    """Show the weights on disk and in memory and the time per token beside the baseline's, and how many cases changed
    by the deciding rules."""
    variant, deciding = stored.verdict.variant, judged_by(stored.verdict, {item.name for item in run.evalsets})
    moved = data.flipped_cases(run.run_id, variant, deciding)
    baseline, arm = run.arms[0], next(arm for arm in run.arms if arm.name == variant)
    size, full = arm.sizes, baseline.sizes
    cells = st.container(horizontal=True)
    # The size on disk: while it runs here the baseline is held in float32, whatever its weights' dtype.
    on_disk = size.bytes_on_disk if size else None
    _gain(cells, "Weights on disk", on_disk, full.bytes_on_disk if full else None)
    if (held := _held(arm)) is not None:
        _gain(cells, "In memory, read per token", held, _held(baseline), help=MEMORY_HELP, width=190)
    memory_note = "in memory; what is not quantized is held in float32 while it runs"
    cells.metric("Bits a weight", f"{size.effective_bits:.2f}" if size else "–", help=memory_note, width=120)
    _time(cells, stored.verdict)
    by = ", ".join(metric if evalset is None else f"{metric} of {escape(evalset)}" for metric, evalset in deciding)
    help = f"cases, each once, by {by or 'any score'}: the broken rules, or the critical ones where none is"
    cells.metric("Right → wrong", moved["lost"], help=help, width=130)
    cells.metric("Wrong → right", moved["gained"], help=help, width=130)


def _gain(
    cells: DeltaGenerator, name: str, size: int | None, full: int | None, help: str | None = None, width: int = 150
) -> None:
    """Show a size in bytes, and how much smaller or larger it is than the baseline's. None: unknown."""
    ratio = _ratio_text(full / size if size and full else None, "smaller", "larger")
    cells.metric(name, size_text(size) if size is not None else "–", ratio, delta_color="off", delta_arrow="off",
                 help=help, width=width)  # fmt: skip


def _held(arm: ArmLine) -> int | None:
    """Return the bytes of an arm's weights in a server's memory; None where they were not measured."""
    fact = arm.sizes.facts.get("memory.weights") if arm.sizes else None
    return None if fact is None else round(fact)


def _time(cells: DeltaGenerator, verdict: Verdict) -> None:
    """Show the time that a latency rule measured, the one per token first; nothing without such a rule."""
    own = [rule for rule in reversed(verdict.comparisons) if rule.baseline and rule.variant and not rule.against]
    rules = {rule.metric: rule for rule in own}
    for metric, name in TIMES.items():
        if (rule := rules.get(metric)) and rule.baseline and rule.variant:
            text = _ratio_text(rule.baseline / rule.variant, "faster", "slower")
            cells.metric(name, ms_text(rule.variant), text, delta_color="off", delta_arrow="off",
                         help=f"as measured by {escape(rule.rule)} in this run", width=160)  # fmt: skip
            return


def _ratio_text(ratio: float | None, better: str, worse: str) -> str | None:
    """Return how much better or worse the variant is: "3.9× smaller". ratio: the baseline's value by the variant's."""
    if ratio is None:
        return None
    times = max(ratio, 1 / ratio)
    if times < 1.005:
        return "as the baseline"
    return f"{times:.{1 if times >= 1.1 else 2}f}× {better if ratio > 1 else worse}"
