"""Served arms, as reports and the dashboard show them: who answered, by which flags, and what drafts came to."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from qualgate.records import NOISE, DraftCounts, Served, counted_in, evalsets_of
from qualgate.store.queries import ArmLine

NOT_SAID = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide:
    """One thing that is known of each served arm, in their order. differs: not the same of all."""

    what: str
    cells: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether it is not the same of all of them."""
        return len(set(self.cells)) > 1


def side_by_side(arms: Sequence[ArmLine]) -> tuple[tuple[str, ...], tuple[SideBySide, ...]]:
    """The served arms' names, and what is known of each: what its server declares, then what it was asked with, then
    each flag of its command. Empty where fewer than two are served; the A/A arm is the baseline, asked again."""
    served = [arm for arm in arms if arm.spec.served is not None and not arm.name.endswith(NOISE)]
    if len(served) < 2:
        return (), ()
    told = [dict(_of(arm)) for arm in served]
    names = list(dict.fromkeys(name for one in told for name in one))
    # Known things first, flags in the order in which the first command that has them says them.
    names.sort(key=lambda name: name.startswith(("-", "extra_body ", "extra_headers ", "extra_query ")))
    rows = (SideBySide(what=name, cells=tuple(one.get(name, NOT_SAID) for one in told)) for name in names)
    return tuple(arm.name for arm in served), tuple(rows)


def _of(arm: ArmLine) -> Iterator[tuple[str, str]]:
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
    yield from _added(served)


def _declared(arm: ArmLine) -> tuple[str, str, str]:
    """(model with its root, engine, version) by what its server says; "" each where it does not run yet."""
    model, _, engine = arm.declared.rpartition("; ")
    name, _, version = engine.rpartition(" ")
    if arm.spec.served is not None and arm.spec.served.command:  # before "; " stands the command, which has its rows
        model = ""
    return (model, name, version) if any(letter.isdigit() for letter in version) else (model, engine, "")


def _flags(command: str) -> Iterator[tuple[str, str]]:
    """What a command says before its first flag, and each flag with its value."""
    words = shlex.split(command)
    first = next((at for at, word in enumerate(words) if word.startswith("-")), len(words))
    yield "command", " ".join(words[:first])
    found: dict[str, list[str]] = {}
    flag = ""
    for word in words[first:]:
        if word.startswith("-") and not word.lstrip("-.").isdigit():
            flag, same, value = word.partition("=")
            found.setdefault(flag, []).extend([value] if same else [])
        else:
            found[flag].append(word)
    for name, values in found.items():
        yield name, " ".join(values) or "given"


def _added(served: Served) -> Iterator[tuple[str, str]]:
    for name, value in json.loads(served.extra_body or "{}").items():
        yield f"extra_body {name}", json.dumps(value)
    for name, value in served.extra_headers:
        yield f"extra_headers {name}", value
    for name, value in served.extra_query:
        yield f"extra_query {name}", value


def drafts_line(arm: ArmLine) -> str:
    """What its server counted of drafts while it answered for the arm, over all and by set; "" where there is nothing
    to say: it drafted nothing, or does not tell, and is not said to."""
    generation = arm.footprint.generation if arm.footprint else None
    served = arm.spec.served
    if generation is None or served is None:
        return ""
    found = counted_in(generation.windows)
    if found is None or not found.drafted:
        if not served.drafts:
            return ""
        if generation.uncounted or found is None:
            return f"{arm.name}: whether it drafted is not known: {generation.uncounted or 'nothing was counted'}"
        return f"{arm.name}: its server's counters of drafts stood still while it answered"
    sets = evalsets_of(generation.windows)
    each = [f"{name} {_drafts(of)}" for name in sets if (of := counted_in(generation.windows, name)) is not None]
    by_set = f"; by set: {'; '.join(each)}" if len(each) > 1 else ""
    part = f"; of a part of its answers, for {generation.uncounted}" if generation.uncounted else ""
    return f"{arm.name}: drafts, as its server counts them: {_drafts(found)}{by_set}{part}"


def _drafts(found: DraftCounts) -> str:
    told = []
    if found.acceptance_length is not None:
        told.append(f"{found.acceptance_length:.2f} tokens a verification")
    elif found.verifications:
        told.append(f"{found.verifications:,} verifications")
    if found.acceptance_rate is not None:
        told.append(f"{found.acceptance_rate:.1%} of {found.proposed:,} drafted tokens accepted")
    elif found.proposed:
        told.append(f"{found.proposed:,} tokens drafted")
    places = [f"{count / found.verifications:.0%}" for count in found.by_place if found.verifications]
    if places:
        told.append(f"accepted at place 1 to {len(places)}: {', '.join(places)}")
    return ", ".join(told) or "none"
