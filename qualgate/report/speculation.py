"""The effect of speculation on an arm, in words and tables, and how to serve it: the same in every format."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from qualgate.escaping import visible_line
from qualgate.formatting import counted, size_text
from qualgate.records import DraftLevel, Gain, Rate, Speculated, Speculation
from qualgate.report.peer_flags import PeerFlags, draft_command, peer_flags

LEVEL_HEADS = (
    "level", "proposer", "passes", "without a draft", "proposed", "accepted", "rejected", "discarded", "unverified",
    "accepted / proposed",
)  # fmt: skip
TASK_HEADS = ("task", "tested", "rejected of those tested")
POSITION_HEADS = ("token", "accepted, of all drafts", "accepted, of those tested")
LAW = "S = τ / (v(γ + 1) + γ c)"
OFF_BY = 0.1  # of the measured gain: a prediction that misses it by more is said to


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """said: method, length and gain in a sentence. peers: none where speculation is not worth it."""

    said: str
    made_by: str = ""  # the command that makes the draft's folder, where one is to be made
    peers: tuple[PeerFlags, ...] = ()


def headline(found: Speculated) -> str:
    """Who drafts, how much, and what a verification came to: "mxfp4 draft, 5 tokens: 4.8 proposed, 4.5 accepted"."""
    who = found.spec.label if found.spec else ", ".join(level.proposer for level in found.levels)
    return f"{who}: {found.levels[0].in_words} a verification"


def terms(found: Speculated) -> list[tuple[str, str]]:
    """(what it is, its value with bounds, or why there is none) of each number of the whole arm."""
    first, gain = found.levels[0], found.gain
    beside = "" if gain.same_weights else ", which has other weights or another cache"
    told = [
        ("accepted / proposed", share_text(first.acceptance_rate)),
        ("accepted a verification, bonus left out", number_text(first.accepted_per_verification)),
        ("tokens a verification, bonus included (τ)", number_text(first.tokens_per_verification_with_bonus)),
        ("target passes saved", share_text(found.passes_saved)),
        (f"gain a token, measured against {gain.against}{beside}", gain_text(gain.measured)),
        (f"gain predicted for one sequence at a time, {LAW}", _predicted(gain)),
    ]
    if first.accepted_of_tested is not None and first.overlap is not None:
        told.insert(1, ("accepted / tested, by chance", share_text(first.accepted_of_tested)))
        told.insert(2, ("Σ min(p, q) / tested: what speculative sampling accepts", share_text(first.overlap)))
    if found.rested is not None:
        told.append(("drafts rested", _rested(found.rested, found.because)))
    if found.gaps is not None:
        told.append((f"longest wait between tokens, p95 of answers, against {gain.against}", _gaps(found.gaps)))
    if gain.by_batch:
        told.append(("S(b), the gain predicted by sequences side by side", _by_batch(gain)))
    names = {
        "draft_weights": "draft's weights",
        "draft_cache_token": "draft's keys and values, a token",
        "draft_workspace": "draft's workspace, a sequence (logits, what is drawn from)",
    }
    return told + [(names[name], size_text(round(found.memory[name]))) for name in names if name in found.memory]


def level_rows(found: Speculated) -> list[tuple[str, ...]]:
    """What LEVEL_HEADS names, the level that the target verifies first."""
    return [
        (
            str(one.level),
            _who(found, one),
            *(f"{n:,}" for n in (one.passes, one.without_draft, one.proposed, one.accepted, one.rejected)),
            *(f"{n:,}" for n in (one.discarded, one.unverified)),
            share_text(one.acceptance_rate),
        )
        for one in found.levels
    ]


def _who(found: Speculated, level: DraftLevel) -> str:
    """Who drafted there; where nobody did, who was to."""
    names = found.spec.names if found.spec else ()
    return level.proposer or (names[level.level - 1] if level.level <= len(names) else "–")


def task_rows(level: DraftLevel) -> list[tuple[str, ...]]:
    """What TASK_HEADS names."""
    return [(task, f"{rate.denominator:,.0f}", share_text(rate)) for task, rate in level.rejection.items()]


def position_rows(level: DraftLevel) -> list[tuple[str, ...]]:
    """What POSITION_HEADS names, from the first token of a draft on."""
    return [(str(one.position), share_text(one.unconditional), share_text(one.conditional)) for one in level.positions]


def advice(found: Speculated) -> Advice:
    """Whether to speculate, with what and how long, and the flags of other servers that mean the same."""
    gain, spec = found.gain, found.spec
    measured, upper = gain.measured.value, gain.measured.upper
    if found.levels[0].proposed == 0:
        why = f": {found.because}" if found.because else ""
        return Advice(said=f"Decode without it: nothing was drafted{why}.")
    if found.levels[0].accepted == 0:
        return Advice(said="Do not serve it with this draft: no token of it was accepted.")
    if gain.best_tokens == 0:
        return Advice(said="Decode without it: no length of this draft is predicted to gain anything.")
    drafted = found.levels[0].proposed_per_verification.value or 1.0  # a verification has a token or more
    if found.wasted and (gain.best_tokens or round(drafted)) >= round(drafted):  # shorter drafts are not said to pay
        return Advice(said=f"Do not serve it as it is: {found.alerts[0]}.")
    if spec is None:
        return Advice(said="Who drafted was not recorded, so nothing can be advised.")
    spec = _of(spec, gain.best_by)
    tokens = gain.best_tokens or spec.tokens or round(drafted)
    bounds = "" if gain.measured.lower is None or upper is None else f" ({gain.measured.lower:.2f} to {upper:.2f})"
    timed = "not measured" if measured is None else f"measured {measured:.2f} times{bounds} at {drafted:.2g} a draft"
    predicted = "not predicted" if gain.best is None else f"predicted {gain.best:.2f} times for one sequence at a time"
    return Advice(
        said=f"{' < '.join(spec.names)}, {counted(tokens, 'token')} a draft (γ): gain {predicted}, {timed}.",
        made_by=draft_command(spec),
        peers=peer_flags(spec, tokens),
    )


def _of(spec: Speculation, proposer: str) -> Speculation:
    """What is left of a cascade whose upper levels leave it to `proposer` to draft."""
    one = spec
    while one.names[0] != proposer and one.draft.under is not None:
        one = one.draft.under
    return replace(one, rule=spec.rule) if one.names[0] == proposer else spec


def advice_lines(said: Advice) -> list[str]:
    """The advice as lines; a line of flags can be pasted whole."""
    lines = [said.said, *([f"the draft's folder: {said.made_by}"] if said.made_by else [])]
    return [*lines, *(f"{peer_text(peer)}{f': `{peer.flags}`' if peer.flags else ''}" for peer in said.peers)]


def peer_text(peer: PeerFlags) -> str:
    """Which server it is, whether it has an equal, and what is not the same there."""
    notes = f" ({'; '.join(peer.notes)})" if peer.notes else ""
    return f"{peer.server}{'' if peer.flags else ': no equal'}{notes}"


def speculation_lines(found: Speculated) -> list[str]:
    """All of it as plain lines."""
    first = found.levels[0]
    lines = [headline(found), *(f"{term}: {value}" for term, value in terms(found))]
    for level in found.levels:
        if len(found.levels) > 1:
            lines.append(f"level {level.level}, {_who(found, level)}: {level.in_words} a verification")
        lines.append(
            f"{level.proposed:,} proposed = {level.accepted:,} accepted + {level.rejected:,} rejected + "
            f"{level.discarded:,} discarded; {level.unverified:,} never verified; "
            f"{counted(level.passes, 'pass', 'passes')}, {level.without_draft:,} without a draft"
        )
    tested = [one for one in first.positions if one.conditional.value is not None]
    by_place = ", ".join(f"{one.position}: {_percent(one.conditional.value)}" for one in tested)
    by_task = ", ".join(
        f"{task} {_percent(rate.value) if rate.value is not None else rate.reason}"
        for task, rate in first.rejection.items()
    )
    lines += [f"accepted by token of the draft, of those tested: {by_place or '–'}"] if by_place else []
    lines += [f"rejected of those tested, by task: {by_task}", *(f"ALERT: {line}" for line in found.alerts)]
    return [visible_line(line) for line in (*lines, *(f"advice: {line}" for line in advice_lines(advice(found))))]


def share_text(rate: Rate) -> str:
    """In per cent with its bounds, or why there is none."""
    if rate.value is None:
        return rate.reason
    return _percent(rate.value) + (
        "" if rate.lower is None or rate.upper is None else f" [{100 * rate.lower:.1f}, {100 * rate.upper:.1f}]"
    )


def number_text(rate: Rate) -> str:
    """With its bounds, or why there is none."""
    if rate.value is None:
        return rate.reason
    bounds = "" if rate.lower is None or rate.upper is None else f" [{rate.lower:.2f}, {rate.upper:.2f}]"
    return f"{rate.value:.2f}{bounds}"


def gain_text(rate: Rate) -> str:
    """A gain with its bounds, and why it has none."""
    if rate.value is None:
        return f"not measured: {rate.reason}"
    if rate.lower is None or rate.upper is None:
        return f"{rate.value:.2f} times (no bounds: {rate.reason})"
    return f"{rate.value:.2f} times ({rate.lower:.2f} to {rate.upper:.2f})"


def _rested(rate: Rate, because: str) -> str:
    why = f": {because}" if rate.numerator and because else ""
    return f"in {share_text(rate)} of {rate.denominator:,.0f} passes{why}"


def _gaps(rate: Rate) -> str:
    """Both in seconds, and how many times as long."""
    if rate.value is None:
        return rate.reason
    bounds = f"no bounds: {rate.reason}" if rate.lower is None or rate.upper is None else ""
    bounds = bounds or f"{rate.lower:.2f} to {rate.upper:.2f}"
    return f"{rate.numerator:.3g} s for {rate.denominator:.3g} s, {rate.value:.2f} times ({bounds})"


def _predicted(gain: Gain) -> str:
    if gain.predicted is None:
        return f"not known: {gain.predicted_reason}"
    off = gain.predicted / gain.measured.value - 1 if gain.measured.value else 0.0
    missed = f", {abs(off):.0%} {'over' if off > 0 else 'under'} what was measured" if abs(off) > OFF_BY else ""
    return f"{gain.predicted:.2f} times{missed}"


def _by_batch(gain: Gain) -> str:
    """S at each, and at which of them drafting gains, whatever it does between two that do not."""
    said = ", ".join(f"{one.sequences}: {one.predicted:.2f}" for one in gain.by_batch)
    pays = [one.predicted > 1 for one in gain.by_batch]
    if all(pays):
        return f"{said}; it pays at all of these"
    if not any(pays):
        return f"{said}; it does not pay at any of these"
    if gain.crossover is not None and pays == sorted(pays, reverse=True):
        return f"{said}; from {ceil(gain.crossover)} of up to {gain.by_batch[-1].sequences} on it does not pay"
    return f"{said}; of these it pays at {', '.join(str(one.sequences) for one in gain.by_batch if one.predicted > 1)}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"
