"""The effect of speculation on an arm, and how to serve it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from qualgate.records import DraftLevel, Gain, Rate, Speculated, Speculation, Verdict
from qualgate.report import plots
from qualgate.report.blocks import Block, Figure, Note, Paste, Section, Table, Terms
from qualgate.report.peer_flags import PeerFlags, draft_command, peer_flags
from qualgate.text.numbers import counted, size_text

LAW = "S = τ / (v(γ + 1) + γ c)"
OFF_BY = 0.1  # relative error of a predicted gain that is reported as a miss


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Advice on serving. sentence: method, length and gain. peers: empty if speculation is not worth it."""

    sentence: str
    made_by: str = ""  # the command that makes the draft's folder, where one is to be made
    peers: tuple[PeerFlags, ...] = ()


def speculation_sections(verdict: Verdict) -> list[Section]:
    """Return the drafts' acceptance by level, position and task, and how to serve the arm."""
    if verdict.speculated is None:
        return []
    return [Section(f"Speculation: {headline(verdict.speculated)}", speculation_blocks(verdict.speculated))]


def headline(speculated: Speculated) -> str:
    """Return the proposer and tokens per verification: "mxfp4 draft, 5 tokens: 4.8 proposed, 4.5 accepted"."""
    proposer = speculated.spec.label if speculated.spec else ", ".join(level.proposer for level in speculated.levels)
    return f"{proposer}: {speculated.levels[0].in_words} a verification"


def speculation_blocks(speculated: Speculated) -> tuple[Block, ...]:
    """Return the numbers, alerts, tables and advice."""
    advised = advice(speculated)
    pasted = [("the draft's folder", advised.made_by)] if advised.made_by else []
    pasted += [(peer_text(peer), peer.flags) for peer in advised.peers]
    return (
        *(Note(line, kind="alert") for line in speculated.alerts),
        Terms(rows=tuple(terms(speculated))),
        _levels(speculated),
        *(block for level in speculated.levels for block in _level(level, named=len(speculated.levels) > 1)),
        Note("", "How to serve it:", advised.sentence),
        *(Paste(label, (text,)) if text else Note(label, kind="quiet") for label, text in pasted),
    )


def terms(speculated: Speculated) -> list[tuple[str, str]]:
    """Return (name, value with bounds or the reason why there is none) for each number of the whole arm."""
    first, gain = speculated.levels[0], speculated.gain
    caveat = "" if gain.same_weights else ", which has other weights or another cache"
    rows = [
        ("accepted / proposed", share_text(first.acceptance_rate)),
        ("accepted a verification, bonus left out", number_text(first.accepted_per_verification)),
        ("tokens a verification, bonus included (τ)", number_text(first.tokens_per_verification_with_bonus)),
        ("target passes saved", share_text(speculated.passes_saved)),
        (f"gain a token, measured against {gain.against}{caveat}", gain_text(gain.measured)),
        (f"gain predicted for one sequence at a time, {LAW}", _predicted(gain)),
    ]
    if first.accepted_of_tested is not None and first.overlap is not None:
        rows.insert(1, ("accepted / tested, by chance", share_text(first.accepted_of_tested)))
        rows.insert(2, ("Σ min(p, q) / tested: what speculative sampling accepts", share_text(first.overlap)))
    if speculated.rested is not None:
        rows.append(("drafts rested", _rested(speculated.rested, speculated.because)))
    if speculated.gaps is not None:
        rows.append((f"longest wait between tokens, p95 of answers, against {gain.against}", _gaps(speculated.gaps)))
    if gain.by_batch:
        rows.append(("S(b), the gain predicted by sequences side by side", _by_batch(gain)))
    names = {
        "draft_weights": "draft's weights",
        "draft_cache_token": "draft's keys and values, a token",
        "draft_workspace": "draft's workspace, a sequence (logits, what is drawn from)",
    }
    memory = speculated.memory
    return rows + [(names[name], size_text(round(memory[name]))) for name in names if name in memory]


def _levels(speculated: Speculated) -> Table:
    """Return the counts of each level, starting with the one that the target verifies."""
    heads = (
        "level", "proposer", "passes", "without a draft", "proposed", "accepted", "rejected", "discarded",
        "unverified", "accepted / proposed",
    )  # fmt: skip
    rows = tuple(
        (
            str(level.level),
            _proposer(speculated, level),
            *(f"{n:,}" for n in (level.passes, level.without_draft, level.proposed, level.accepted, level.rejected)),
            *(f"{n:,}" for n in (level.discarded, level.unverified)),
            share_text(level.acceptance_rate),
        )
        for level in speculated.levels
    )
    return Table(heads=heads, rows=rows, numbers=range(2, 10))


def _proposer(speculated: Speculated, level: DraftLevel) -> str:
    """Return the level's proposer; if nothing was drafted, the configured one."""
    names = speculated.spec.names if speculated.spec else ()
    return level.proposer or (names[level.level - 1] if level.level <= len(names) else "–")


def _level(level: DraftLevel, *, named: bool) -> Iterator[Block]:
    """Yield acceptance by place in the draft, as a picture and a table, and by task. named: with the level's name."""
    if named:
        yield Note(f"Level {level.level}, {level.proposer}:")
    yield Figure(picture=plots.acceptance(level.positions), caption=plots.ACCEPTANCE_CAPTION)
    yield Table(
        heads=("token", "accepted, of all drafts", "accepted, of those tested"),
        rows=tuple((str(p.position), share_text(p.unconditional), share_text(p.conditional)) for p in level.positions),
        numbers=(1, 2),
    )
    yield Table(
        heads=("task", "tested", "rejected of those tested"),
        rows=tuple((task, f"{rate.denominator:,.0f}", share_text(rate)) for task, rate in level.rejection.items()),
        numbers=(1, 2),
    )


def advice(speculated: Speculated) -> Advice:
    """Advise whether to speculate, with which draft and length, and with which flags of other servers."""
    gain, spec = speculated.gain, speculated.spec
    measured, upper = gain.measured.value, gain.measured.upper
    if speculated.levels[0].proposed == 0:
        why = f": {speculated.because}" if speculated.because else ""
        return Advice(sentence=f"Decode without it: nothing was drafted{why}.")
    if speculated.levels[0].accepted == 0:
        return Advice(sentence="Do not serve it with this draft: no token of it was accepted.")
    if gain.best_tokens == 0:
        return Advice(sentence="Decode without it: no length of this draft is predicted to gain anything.")
    drafted = speculated.levels[0].proposed_per_verification.value or 1.0  # a verification has a token or more
    # A shorter draft may still pay.
    if speculated.wasted and (gain.best_tokens or round(drafted)) >= round(drafted):
        return Advice(sentence=f"Do not serve it as it is: {speculated.alerts[0]}.")
    if spec is None:
        return Advice(sentence="Who drafted was not recorded, so nothing can be advised.")
    spec = _part_below(spec, gain.best_by)
    tokens = gain.best_tokens or spec.tokens or round(drafted)
    bounds = "" if gain.measured.lower is None or upper is None else f" ({gain.measured.lower:.2f} to {upper:.2f})"
    timed = "not measured" if measured is None else f"measured {measured:.2f} times{bounds} at {drafted:.2g} a draft"
    predicted = "not predicted" if gain.best is None else f"predicted {gain.best:.2f} times for one sequence at a time"
    return Advice(
        sentence=f"{' < '.join(spec.names)}, {counted(tokens, 'token')} a draft (γ): gain {predicted}, {timed}.",
        made_by=draft_command(spec),
        peers=peer_flags(spec, tokens),
    )


def _part_below(spec: Speculation, proposer: str) -> Speculation:
    """Return the part of a cascade from `proposer` down; the levels above it do not pay."""
    cascade = spec
    while cascade.names[0] != proposer and cascade.draft.under is not None:
        cascade = cascade.draft.under
    return replace(cascade, rule=spec.rule) if cascade.names[0] == proposer else spec


def peer_text(peer: PeerFlags) -> str:
    """Return the server's name, whether it has an equal, and the differences."""
    notes = f" ({'; '.join(peer.notes)})" if peer.notes else ""
    return f"{peer.server}{'' if peer.flags else ': no equal'}{notes}"


def share_text(rate: Rate) -> str:
    """Return a rate in per cent with its bounds, or why there is none."""
    if rate.value is None:
        return rate.reason
    return _percent(rate.value) + (
        "" if rate.lower is None or rate.upper is None else f" [{100 * rate.lower:.1f}, {100 * rate.upper:.1f}]"
    )


def number_text(rate: Rate) -> str:
    """Return a number with its bounds, or why there is none."""
    if rate.value is None:
        return rate.reason
    bounds = "" if rate.lower is None or rate.upper is None else f" [{rate.lower:.2f}, {rate.upper:.2f}]"
    return f"{rate.value:.2f}{bounds}"


def gain_text(rate: Rate) -> str:
    """Return a gain with its bounds, or why it has none."""
    if rate.value is None:
        return f"not measured: {rate.reason}"
    if rate.lower is None or rate.upper is None:
        return f"{rate.value:.2f} times (no bounds: {rate.reason})"
    return f"{rate.value:.2f} times ({rate.lower:.2f} to {rate.upper:.2f})"


def _rested(rate: Rate, because: str) -> str:
    """Return the share of passes without a draft, and why drafts were left out if they were."""
    why = f": {because}" if rate.numerator and because else ""
    return f"in {share_text(rate)} of {rate.denominator:,.0f} passes{why}"


def _gaps(rate: Rate) -> str:
    """Return the longest waits of the arm and of plain decoding in seconds, and their ratio; or why there is none."""
    if rate.value is None:
        return rate.reason
    bounds = f"no bounds: {rate.reason}" if rate.lower is None or rate.upper is None else ""
    bounds = bounds or f"{rate.lower:.2f} to {rate.upper:.2f}"
    return f"{rate.numerator:.3g} s for {rate.denominator:.3g} s, {rate.value:.2f} times ({bounds})"


def _predicted(gain: Gain) -> str:
    """Return the predicted gain, with its error where it is off the measured one by more than OFF_BY; or why there is
    none."""
    if gain.predicted is None:
        return f"not known: {gain.predicted_reason}"
    error = gain.predicted / gain.measured.value - 1 if gain.measured.value else 0.0
    missed = f", {abs(error):.0%} {'over' if error > 0 else 'under'} what was measured" if abs(error) > OFF_BY else ""
    return f"{gain.predicted:.2f} times{missed}"


def _by_batch(gain: Gain) -> str:
    """Return the gain at each batch size, and at which of them drafting pays."""
    gains = ", ".join(f"{batch.sequences}: {batch.predicted:.2f}" for batch in gain.by_batch)
    pays = [batch.predicted > 1 for batch in gain.by_batch]
    if all(pays):
        return f"{gains}; it pays at all of these"
    if not any(pays):
        return f"{gains}; it does not pay at any of these"
    if gain.crossover is not None and pays == sorted(pays, reverse=True):
        return f"{gains}; from {ceil(gain.crossover)} of up to {gain.by_batch[-1].sequences} on it does not pay"
    return f"{gains}; of these it pays at {', '.join(str(b.sequences) for b in gain.by_batch if b.predicted > 1)}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"
