"""Served arms: who answered, with which flags, and how drafts did."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence

from qualgate.records import NOISE, DraftCounts, Served, counted_in, evalsets_of
from qualgate.report.blocks import Cell, Section, Table
from qualgate.store.queries import ArmLine

NOT_SAID = "–"


def served_sections(arms: Sequence[ArmLine]) -> list[Section]:
    """Return the served arms side by side: what the server declares, then how it was asked, then each flag of its
    command. Empty if fewer than two are served; the A/A arm repeats the baseline and is left out."""
    served = [arm for arm in arms if arm.spec.served is not None and not arm.name.endswith(NOISE)]
    if len(served) < 2:
        return []
    settings = [dict(_settings(arm)) for arm in served]
    names = list(dict.fromkeys(name for of_arm in settings for name in of_arm))
    # Flags come last, in the order of the first command that has them.
    names.sort(key=lambda name: name.startswith(("-", "extra_body ", "extra_headers ", "extra_query ")))
    rows: list[tuple[str | Cell, ...]] = []
    for name in names:
        cells = tuple(of_arm.get(name, NOT_SAID) for of_arm in settings)
        if len(set(cells)) > 1:
            rows.append((f"≠ {name}", *(Cell(cell, "differs") for cell in cells)))
        else:
            rows.append((name, *cells))
    table = Table(heads=("≠ is not the same of all", *(arm.name for arm in served)), rows=tuple(rows))
    return [Section("Served side by side", (table,))]


def _settings(arm: ArmLine) -> Iterator[tuple[str, str]]:
    """Yield the name and value of each setting of a served arm: who answered, how it was asked, then its flags."""
    served = arm.spec.served
    assert served is not None, "chosen so"
    model, engine, version = _declared(arm)
    yield "engine", engine or served.engine or NOT_SAID
    yield "version", version or NOT_SAID
    yield "model", model or arm.spec.model
    yield "asked for", arm.spec.model
    answered = arm.footprint.generation.answered_by if arm.footprint else ()
    yield "answered by", ", ".join(f"{name} ({count:,})" for name, count in answered) or NOT_SAID
    yield "asked by", "token ids" if served.tokenizer else "messages"
    asked_whole = arm.footprint is not None and arm.footprint.generation.asked_whole
    yield "streamed", "not always" if asked_whole else "yes" if served.stream else "no"
    yield "requests at once", str(served.concurrency)
    if served.command:
        yield from _flags(served.command)
    else:
        yield "address", served.endpoint
    yield from _request_settings(served)


def _declared(arm: ArmLine) -> tuple[str, str, str]:
    """Return (model with its root, engine, version) as the server declares them; "" each if it does not run yet."""
    model, _, engine = arm.declared.rpartition("; ")
    name, _, version = engine.rpartition(" ")
    if arm.spec.served is not None and arm.spec.served.command:  # the part before "; " is the command, not a model
        model = ""
    return (model, name, version) if any(letter.isdigit() for letter in version) else (model, engine, "")


def _flags(command: str) -> Iterator[tuple[str, str]]:
    """Yield the command up to its first flag, then each flag with its values; "given" for a flag without one."""
    words = shlex.split(command)
    first = next((index for index, word in enumerate(words) if word.startswith("-")), len(words))
    yield "command", " ".join(words[:first])
    flags: dict[str, list[str]] = {}
    flag = ""
    for word in words[first:]:
        if word.startswith("-") and not word.lstrip("-.").isdigit():
            flag, equals, value = word.partition("=")
            flags.setdefault(flag, []).extend([value] if equals else [])
        else:
            flags[flag].append(word)
    for name, values in flags.items():
        yield name, " ".join(values) or "given"


def _request_settings(served: Served) -> Iterator[tuple[str, str]]:
    """Yield the fields that the gate file adds to every request: body, headers and query."""
    for name, value in json.loads(served.extra_body or "{}").items():
        yield f"extra_body {name}", json.dumps(value)
    for name, value in served.extra_headers:
        yield f"extra_headers {name}", value
    for name, value in served.extra_query:
        yield f"extra_query {name}", value


def drafts_line(arm: ArmLine) -> str:
    """Return the server's draft counts while it answered for the arm, over all and by evalset; "" if it counted none
    and no drafting was expected of it."""
    generation = arm.footprint.generation if arm.footprint else None
    served = arm.spec.served
    if generation is None or served is None:
        return ""
    counts = counted_in(generation.windows)
    if counts is None or not counts.drafted:
        if not served.drafts:
            return ""
        if generation.uncounted or counts is None:
            return f"{arm.name}: whether it drafted is not known: {generation.uncounted or 'nothing was counted'}"
        return f"{arm.name}: its server's counters of drafts stood still while it answered"
    sets = evalsets_of(generation.windows)
    by_name = ((name, counted_in(generation.windows, name)) for name in sets)
    by_evalset = [f"{name} {_drafts(of_set)}" for name, of_set in by_name if of_set is not None]
    by_set = f"; by set: {'; '.join(by_evalset)}" if len(by_evalset) > 1 else ""
    partly = f"; of a part of its answers, for {generation.uncounted}" if generation.uncounted else ""
    return f"{arm.name}: drafts, as its server counts them: {_drafts(counts)}{by_set}{partly}"


def _drafts(counts: DraftCounts) -> str:
    """Return draft counts as text: tokens a verification, share accepted, and that share by place in the draft."""
    parts = []
    if counts.acceptance_length is not None:
        parts.append(f"{counts.acceptance_length:.2f} tokens a verification")
    elif counts.verifications:
        parts.append(f"{counts.verifications:,} verifications")
    if counts.acceptance_rate is not None:
        parts.append(f"{counts.acceptance_rate:.1%} of {counts.proposed:,} drafted tokens accepted")
    elif counts.proposed:
        parts.append(f"{counts.proposed:,} tokens drafted")
    shares = [f"{count / counts.verifications:.0%}" for count in counts.by_place if counts.verifications]
    if shares:
        parts.append(f"accepted at place 1 to {len(shares)}: {', '.join(shares)}")
    return ", ".join(parts) or "none"
