"""The statement of `compare --tokens` about two servers, as JSON and on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from qualgate.pipeline.endpoint_statement import ANCHORS, SURE, Statement
from qualgate.pipeline.endpoints import SIDES, Asked
from qualgate.report import screen
from qualgate.report.blocks import Block, Lines, Note, Section, Table, Terms
from qualgate.report.terminal_blocks import print_sections

NULL = "both servers answer these prompts from the same distribution"


def endpoints_body(asked: Asked, statement: Statement) -> dict[str, Any]:
    """Return the statement as JSON: p-values, sizes in nats, tokens as they were counted."""
    apart = statement.apart
    return {
        "outcome": statement.outcome,
        "by_logprobs_alone": _by_logprobs_alone(statement),
        "null": NULL + (", with the same log-probs" if apart and apart.p_logprobs is not None else ""),
        "alpha": statement.alpha,
        "tests": None if apart is None else asdict(apart),
        "faults": list(statement.faults),
        "notes": list(statement.notes),
        "would_have_been_found": dict(statement.chances),
        "smallest_noise_found": {"nats": statement.limit, "chance": SURE},
        "asked": {
            "models": dict(zip(SIDES, asked.models, strict=True)), "prompts": asked.prompts, "repeats": asked.repeats,
            "most_tokens": asked.most, "budget": asked.tokens, "draw": asked.draw,
            "spent": {name: asdict(spent) for name, spent in zip(SIDES, asked.spent, strict=True)},
        },
    }  # fmt: skip


def print_endpoints(asked: Asked, statement: Statement) -> None:
    """Print the statement on stdout."""
    alone = ", by their log-probs alone" if _by_logprobs_alone(statement) else ""
    print_sections(
        screen.console(), [Section(f"A and B: {statement.outcome}{alone}", tuple(_blocks(asked, statement)))]
    )


def _by_logprobs_alone(statement: Statement) -> bool:
    apart = statement.apart
    return apart is not None and apart.different and apart.p > apart.each


def _blocks(asked: Asked, statement: Statement) -> Iterator[Block]:
    apart, total = statement.apart, sum(spent.tokens for spent in asked.spent)
    rows = [(name, model) for name, model in zip(SIDES, asked.models, strict=True)]
    each = " and ".join(f"{spent.tokens:,} by {name}" for name, spent in zip(SIDES, asked.spent, strict=True))
    plan = f"{asked.prompts} prompts x {asked.repeats} answers x at most {asked.most} tokens of each"
    rows.append(("asked", f"{plan}; {total:,} of {asked.tokens:,} tokens: {each}"))
    if apart is not None:
        rows.append(("answers", f"p = {apart.p:.2g}, different from {apart.each:g} down"))
    if apart is not None and apart.p_logprobs is not None:
        noise = " and ".join(f"{nats:.2g} at {name}" for name, nats in zip(SIDES, apart.noise, strict=True))
        size = f"{apart.nats:.2g} nats apart over {apart.tokens:,} tokens; each server's own noise {noise}"
        rows.append(("log-probs", f"p = {apart.p_logprobs:.2g}, different from {apart.each:g} down; {size}"))
    yield Terms(rows=tuple(rows))
    if statement.faults:
        yield Lines(tuple(f"fault: {fault}" for fault in statement.faults))
    if statement.notes:
        yield Lines(statement.notes)
    if apart is None:
        yield Note("Nothing is said about the models. Remove the fault and compare again.")
        return
    law = NULL + ("" if apart.p_logprobs is None else ", with the same log-probs")
    yield Note(f"Tested: {law}. Two that do are called different in at most {statement.alpha:g} of comparisons.")
    if _by_logprobs_alone(statement):
        yield Note("Other kernels or another GPU move log-probs, too: compare the size with the table.")
    yield Table(
        heads=("a difference like", "found with this budget", "its log-probs, nats apart"),
        rows=tuple((name, f"{chance:.0%}", f"{ANCHORS[name].nats:g}") for name, chance in statement.chances.items()),
        numbers=(1, 2),
        title="Sizes are those of the reference model that ships with qualgate; another model may differ more or less.",
    )
    kind = "logits" if apart.p_logprobs is None else "log-probs"
    smallest = f"noise of {statement.limit:g} nats on its {kind}" if statement.limit else "none of those tried"
    yield Note(f"Smallest difference found in {SURE:.0%} of comparisons: {smallest}.")
