"""Summarise a load: the numbers of each arm at each level, and notes for the reader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from qualgate.pipeline.load.counters import WATCHED
from qualgate.pipeline.load.definitions import Definition
from qualgate.pipeline.load.measures import Measured, measured
from qualgate.pipeline.load.rules import LoadVerdict, verdicts
from qualgate.pipeline.load.run import Loaded
from qualgate.pipeline.load.schedule import Level
from qualgate.records import Load, Slo
from qualgate.text.numbers import counted, ms_text

LATE = 0.01  # seconds; with a later p99 of sending, the client is reported as too slow
DRAINED = 0.05  # share of the counted requests that may end after the last arrivals


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The numbers of one arm at one level."""

    level: Level
    arm: str
    numbers: Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A load's summary. rows: by level, then by arm in the gate file's order. by: name of the definitions.
    declarations: arm → its server's description of itself. notes: sentences. verdicts: of the variants, with rules."""

    load: Load
    seed: int
    by: str
    slo: Slo | None
    declarations: tuple[tuple[str, str], ...]
    prompts: int
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    verdicts: tuple[LoadVerdict, ...] = ()

    @property
    def unanswered(self) -> tuple[Row, ...]:
        """The rows without a single counted answer."""
        return tuple(row for row in self.rows if not row.numbers.answered)


def summarised(loaded: Loaded, by: Definition, slo: Slo | None, alpha: float) -> Summary:
    """Summarise a load by the definitions `by`. alpha: for the verdicts."""
    rows = tuple(
        Row(level=level, arm=arm.name, numbers=measured(loaded.stages[arm.name, level], by, slo))
        for level in loaded.levels
        for arm in loaded.arms
    )
    return Summary(
        load=loaded.load,
        seed=loaded.seed,
        by=by.name,
        slo=slo,
        declarations=tuple(loaded.declarations.items()),
        prompts=loaded.prompts,
        rows=rows,
        notes=tuple(note for row in rows for note in _notes(row, loaded, by, slo)),
        verdicts=verdicts(loaded, by, slo, alpha) if loaded.load.rules else (),
    )


def _notes(row: Row, loaded: Loaded, by: Definition, slo: Slo | None) -> Iterator[str]:
    """Yield what makes one arm's numbers at one level doubtful or incomplete: failures, lateness, repeats, unknown
    times."""
    numbers, where = row.numbers, f"{row.arm}, {row.level.label}"
    for what, causes in (("failed", numbers.failed), ("sent again", numbers.retried)):
        if causes:
            listed = ", ".join(f"{cause} {count}x" for cause, count in causes)
            yield f"{where}: {what}: {listed}, of {counted(numbers.requests, 'request')}"
    if not numbers.answered:
        yield f"{where}: no answer counts, so nothing is known of it"
        return
    if numbers.late is not None and numbers.late > LATE:
        yield (
            f"{where}: one request in a hundred was sent {ms_text(numbers.late)} or more after it was due: this client "
            "is too slow for that rate, or its machine busy, and the times tell that too"
        )
    if numbers.drained > DRAINED and by.windowed:
        yield (
            f"{where}: {100 * numbers.drained:.0f} % of what counts ended when no new requests came any more, on a "
            "server that had less to do: make `load.cooldown` as long as an answer takes"
        )
    if numbers.prompts < numbers.answered:
        yield (
            f"{where}: each prompt was asked {numbers.answered / numbers.prompts:.1f} times, which a server that keeps "
            "prompts answers sooner than new ones"
        )
    if numbers.tokens is None:
        yield f"{where}: its server does not count the tokens of its answers, so there is no TPOT and no tokens/s"
    if not dict(numbers.times)["tpot"] and numbers.tokens is not None:
        yield f"{where}: its answers come whole (`stream: false`?), so TTFT is end to end and there is no TPOT"
    if slo is not None and numbers.good is None:
        yield f"{where}: whether answers are within every limit is not known, for not every time is"
    yield from _closed(row, loaded)


def _closed(row: Row, loaded: Loaded) -> Iterator[str]:
    """Yield a note on requests that were closed early, by the server's own counter."""
    key = row.arm, row.level
    closed_count = sum(request.how == "closed" for stage in loaded.stages[key] for request in stage.sent)
    if not closed_count:
        return
    where, closed = f"{row.arm}, {row.level.label}", counted(closed_count, "request")
    counts = [count for count in loaded.counts[key] if count is not None]
    if len(counts) < len(loaded.counts[key]):
        yield f"{where}: {closed} closed early; whether its server goes on is not known, for it tells no tokens written"
        return
    written, after = sum(count.written for count in counts), sum(count.afterwards for count in counts)
    whole = sum(request.tokens or 0 for stage in loaded.stages[key] for request in stage.sent)
    continued = f"it wrote {after:,.0f} more" if after > 0 else "it wrote none any more"
    yield (
        f"{where}: {closed} closed early; its server counts {written:,.0f} tokens written, {whole:,} of them in "
        f"whole answers; in the {WATCHED:g} s after the last request was over {continued}"
    )
