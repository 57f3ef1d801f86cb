"""Servers' answers to fixed questions before their cases, and differences between two arms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qualgate.records import Probe
from qualgate.store.queries import ArmLine
from qualgate.text.numbers import counted


def probe_lines(arms: Sequence[ArmLine]) -> list[str]:
    """Return each probed arm's faults, if any, and its differences from the baseline, the first of `arms`."""
    lines: list[str] = []
    baseline = probes_of(arms[0]) if arms else {}
    for arm in arms:
        probes = probes_of(arm)
        if not probes:
            continue
        wrong = [probe for probe in probes.values() if probe.fault]
        lines += [f"{arm.name}, probe of {p.name}: {p.fault} (asked {p.asked}; saw {p.saw})" for p in wrong]
        if not wrong:
            lines.append(f"{arm.name}: nothing wrong by {counted(len(probes), 'probe')}: {', '.join(probes)}")
        if arm is not arms[0]:
            lines += [f"{arm.name}, {line}" for line in _differences_from_baseline(probes, baseline)]
    return lines


def probes_of(arm: ArmLine) -> dict[str, Probe]:
    """Return an arm's probes by name; {} if it is not served or was not probed."""
    return {probe.name: probe for probe in arm.footprint.probes} if arm.footprint else {}


def _differences_from_baseline(probes: dict[str, Probe], baseline: dict[str, Probe]) -> Iterator[str]:
    """Yield a line if fixed prompts have other token counts than in the baseline, and one on how far the
    log-probabilities of a fixed text lie apart. A probe that either arm lacks is passed over."""
    values, baseline_values = (side["tokens"].values if "tokens" in side else () for side in (probes, baseline))
    if values and baseline_values and values != baseline_values:
        yield (
            f"probe of tokens: fixed prompts are {_numbers(values)} tokens here and {_numbers(baseline_values)} of the "
            "baseline: another chat template or tokenizer, so the two do not read the same questions"
        )
    values, baseline_values = (side["log-probs"].values if "log-probs" in side else () for side in (probes, baseline))
    if values and len(values) == len(baseline_values):
        largest = max(
            abs(value - baseline_value) for value, baseline_value in zip(values, baseline_values, strict=True)
        )
        what = "the same to the last digit" if not largest else f"up to {largest:.3g} nats apart"
        yield f"log-probs of a fixed text beside the baseline's: {what}"


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)
