"""Servers' answers to fixed questions before their cases, and differences between two arms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qualgate.formatting import counted
from qualgate.records import Probe
from qualgate.store.queries import ArmLine


def probe_lines(arms: Sequence[ArmLine]) -> list[str]:
    """Of each arm that was probed what is wrong, or that nothing is; against the baseline, what differs. arms: the
    baseline first."""
    lines: list[str] = []
    baseline = probes_of(arms[0]) if arms else {}
    for arm in arms:
        found = probes_of(arm)
        if not found:
            continue
        wrong = [one for one in found.values() if one.fault]
        lines += [f"{arm.name}, probe of {one.name}: {one.fault} (asked {one.asked}; saw {one.saw})" for one in wrong]
        if not wrong:
            lines.append(f"{arm.name}: nothing wrong by {counted(len(found), 'probe')}: {', '.join(found)}")
        if arm is not arms[0]:
            lines += [f"{arm.name}, {line}" for line in _beside(found, baseline)]
    return lines


def probes_of(arm: ArmLine) -> dict[str, Probe]:
    """By name; {} of an arm that no server answers for, or that was not probed."""
    return {one.name: one for one in arm.footprint.probes} if arm.footprint else {}


def _beside(found: dict[str, Probe], baseline: dict[str, Probe]) -> Iterator[str]:
    mine, theirs = (side["tokens"].values if "tokens" in side else () for side in (found, baseline))
    if mine and theirs and mine != theirs:
        yield (
            f"probe of tokens: fixed prompts are {_numbers(mine)} tokens here and {_numbers(theirs)} of the baseline: "
            "another chat template or tokenizer, so the two do not read the same questions"
        )
    mine, theirs = (side["log-probs"].values if "log-probs" in side else () for side in (found, baseline))
    if mine and len(mine) == len(theirs):
        furthest = max(abs(one - other) for one, other in zip(mine, theirs, strict=True))
        what = "the same to the last digit" if not furthest else f"up to {furthest:.3g} nats apart"
        yield f"log-probs of a fixed text beside the baseline's: {what}"


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{one:g}" for one in values)
