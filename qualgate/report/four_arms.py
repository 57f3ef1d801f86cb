"""The choice among four arms, and what serving an arm costs."""

from __future__ import annotations

from collections.abc import Sequence

from qualgate.records import ArmService, FourArm, Verdict
from qualgate.report import plots
from qualgate.report.blocks import Block, Cell, Figure, Lines, Note, Section, Table
from qualgate.report.comparison_text import interaction_text
from qualgate.text.escaping import visible_line

UNAVAILABLE, NOT_ASKED = "unavailable", "not asked"
STEPS = {"drafting": "drafting", "parity": "parity", "quality": "quality", "slo": "SLO", "value": "value"}  # in order


def choice_line(answer: FourArm) -> str:
    """Return the arm to serve and the reason, on one line."""
    return visible_line(f"four arms: {answer.choice or 'not known yet'}: {answer.why}")


def choice_section(answer: FourArm) -> Section:
    """Return which arm to serve and why, each arm's steps, interactions, costs, and what to try first."""
    return Section(
        f"Which arm to serve: {answer.choice or 'not known yet'}", (Note(answer.why), *choice_details(answer))
    )


def choice_details(answer: FourArm) -> tuple[Block, ...]:
    """Return the blocks of `choice_section` after the reason."""
    steps: dict[tuple[str, str], str | Cell] = {
        (step.arm, step.step): Cell(step.status, "status", step.reason) for step in answer.steps
    }
    arms = dict.fromkeys(step.arm for step in answer.steps)
    return (
        Table(
            heads=("arm", *STEPS.values()),
            rows=tuple((arm, *(steps.get((arm, step), "–") for step in STEPS)) for arm in arms),
        ),
        Figure(
            picture=plots.interactions(answer.interactions),
            caption="Interaction of quantization and speculation",
            lines=tuple(map(interaction_text, answer.interactions)),
        ),
        *service_blocks(answer.services),
        Note("Try first:", answer.first, f"({answer.first_why})"),
        *([Note(f"Blocks (seed {answer.seed}): {' '.join(answer.blocks)}", kind="quiet")] if answer.blocks else []),
    )


def service_sections(verdict: Verdict) -> list[Section]:
    """Return what serving cost, of a variant that is not one of four arms; those are shown with the choice."""
    return [Section("", service_blocks(verdict.services))] if verdict.four_arm is None else []


def service_blocks(services: Sequence[ArmService]) -> tuple[Block, ...]:
    """Return costs and accepted answers: `unavailable` where unknown, `not asked` where nobody asked. Below them the
    price tables and the reasons for unavailable figures, each once."""
    if not services:
        return ()
    heads = ("arm", "cost per accepted answer", "accepted", "attempts", "retries", "within SLO", "corrected")
    prices = dict.fromkeys(service.prices or "no prices: a cost is in seconds" for service in services)
    notes = (
        *(f"prices: {source}" for source in prices),
        *(f"{service.arm}: {UNAVAILABLE}: {why}" for service in services for why in service.unavailable),
    )
    title = "What serving took and gave"
    return Table(heads=heads, rows=tuple(map(_service, services)), numbers=(1, 3), title=title), Lines(notes)


def _service(service: ArmService) -> tuple[str, ...]:
    heard = "" if service.feedback is None or service.correction_rate is None else f" of {service.feedback}"
    cost, attempts, retries = service.per_accepted, service.attempts, service.retries
    return (
        service.arm,
        UNAVAILABLE if cost is None else f"{cost:.4g}",
        _accepted(service),
        UNAVAILABLE if attempts is None else str(attempts),
        UNAVAILABLE
        if retries is None
        else ", ".join(f"{cause} {_share(rate)}" for cause, rate in retries.items()) or "none",
        _share(service.within_slo) if service.slo_asked else NOT_ASKED,
        f"{_share(service.correction_rate)}{heard}" if service.feedback_asked else NOT_ASKED,
    )


def _accepted(service: ArmService) -> str:
    """Return the accepted answers: of those with feedback if feedback is asked for, else of all."""
    accepted = UNAVAILABLE if service.accepted is None else str(service.accepted)
    total = f"{service.units}" if service.feedback is None else f"{service.feedback} heard on"
    reasons = ", ".join(f"{count} {why}" for why, count in service.refused.items())
    return f"{accepted} of {total}{f' ({reasons})' if reasons else ''}"


def _share(value: float | None) -> str:
    return UNAVAILABLE if value is None else f"{100 * value:.1f} %"
