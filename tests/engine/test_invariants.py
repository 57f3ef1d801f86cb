"""What every pass is held to is held against it: one thing made wrong, and a run is stopped by the name of that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from qualgate.engine import draft_model, packed
from qualgate.engine.constraint import GrammarMask
from qualgate.engine.draft_blocks import OwnBlocks
from qualgate.engine.draft_model import DraftModel
from qualgate.engine.request import Request
from qualgate.engine.schedule import Schedule
from qualgate.engine.steering import Steering
from tests.engine.engines import answered
from tests.engine.fake_decoder import FakeDecoder, FakeHead, fake_engine
from tests.engine.invariants import held
from tests.verification.lossless.constrained import fresh_mask

Plant = Callable[[pytest.MonkeyPatch], None]
ALIKE = (1, 2, 3, 4) * 5


def run(*, drafted: bool = True, masked: bool = False) -> None:
    """Two prompts that begin alike; drafts that are mostly wrong."""
    head: Any = FakeHead()
    draft = DraftModel("draft", FakeDecoder(odd=4), head, blocks=OwnBlocks(64), threads=1, stop_ids=frozenset())
    asked = [Request(prompt=(*ALIKE, last), max_new_tokens=12) for last in (1, 2)]
    if masked:
        asked = [replace(one, steering=Steering(one.prompt, mask=fresh_mask(5))) for one in asked]
    with held():  # around what was planted; the fixture's is within
        answered(fake_engine(FakeDecoder(odd=2)), asked, proposer=draft if drafted else None, tokens=3)


def parts_moved(monkeypatch) -> None:
    """What is decoded stands one further."""
    told = Schedule.next
    monkeypatch.setattr(
        Schedule,
        "next",
        lambda *of: [replace(part, first=part.first + part.decodes) for part in told(*of)],
    )


def draft_before_its_text(monkeypatch) -> None:
    """The last token that was said counts as a token of the draft."""
    told = Schedule.next
    monkeypatch.setattr(
        Schedule,
        "next",
        lambda *of: [replace(part, drafted=part.drafted + bool(part.drafted)) for part in told(*of)],
    )


def after_a_pass(done: Callable[[Schedule, Any], None]) -> Plant:
    def planted(monkeypatch: pytest.MonkeyPatch) -> None:
        told = Schedule.passed

        def wrong(schedule: Schedule, parts: Any) -> None:
            told(schedule, parts)
            done(schedule, parts[0].stream)

        monkeypatch.setattr(Schedule, "passed", wrong)

    return planted


def freed(schedule: Schedule, one: Any) -> None:
    if schedule.pool._users[one.blocks[-1]]:
        schedule.pool.release(one.blocks[-1:])


def lost(schedule: Schedule, one: Any) -> None:
    schedule.pool.take()


def shared(schedule: Schedule, one: Any) -> None:
    """Another writes where the first one reads."""
    other = schedule.going[-1]
    if other is not one and len(other.blocks) == len(one.blocks) and other.blocks[-1] != one.blocks[-1]:
        schedule.pool.release(other.blocks[-1:])
        other.blocks[-1] = one.blocks[-1]
        schedule.pool._users[one.blocks[-1]] += 1


def positions_apart(monkeypatch) -> None:
    told = packed.batch

    def wrong(*of: Any, **how: Any) -> Any:
        passed = told(*of, **how)
        passed.places.position[-1] += 1
        return passed

    monkeypatch.setattr(packed, "batch", wrong)


def numbers_of_the_next(where: Any) -> Plant:
    def planted(monkeypatch: pytest.MonkeyPatch) -> None:
        told = where.say
        monkeypatch.setattr(where, "say", lambda d, of, rows, at: told(d, of, rows, [one + 1 for one in at]))

    return planted


def model_moved(monkeypatch) -> None:
    told = DraftModel._parts
    monkeypatch.setattr(
        DraftModel, "_parts", lambda *of: [replace(part, first=max(0, part.first - 1)) for part in told(*of)]
    )


def stale_keys(monkeypatch) -> None:
    """What a draft model keeps is said to be of this text, whatever it is of."""
    told = OwnBlocks.rewind

    def wrong(blocks: OwnBlocks, row: Any) -> None:
        told(blocks, row)
        row.kept[-1:] = [0] * len(row.kept[-1:])

    monkeypatch.setattr(OwnBlocks, "rewind", wrong)


def steered_behind_another(monkeypatch) -> None:
    """The token that was said last is left out."""
    told = packed._steered

    def wrong(parts: Any) -> Any:
        return {index: (how, [*text[1:], 0]) for index, (how, text) in told(parts).items()}

    monkeypatch.setattr(packed, "_steered", wrong)


def mask_of_another(monkeypatch) -> None:
    """A mask's state is one token ahead."""
    told = GrammarMask._reads

    def wrong(mask: GrammarMask, text: Any) -> bool:
        whole = told(mask, text)
        mask._read = [*mask._read, 0]
        return whole

    monkeypatch.setattr(GrammarMask, "_reads", wrong)


WRONG: dict[str, tuple[Plant, str]] = {
    "off by one": (parts_moved, "first row stands at position 22, and 21 keys and values"),
    "a draft before its text": (draft_before_its_text, "a draft does not stand behind its text"),
    "a freed block": (after_a_pass(freed), "held by nobody"),
    "a lost block": (after_a_pass(lost), "held by nobody who goes on"),
    "one block for two": (after_a_pass(shared), "a block that others read"),
    "a gap": (positions_apart, "positions are not consecutive"),
    "the next number": (numbers_of_the_next(packed), "drawn by others' numbers"),
    "the next number of a draft": (numbers_of_the_next(draft_model), "drawn by others' numbers"),
    "off by one in a draft": (model_moved, "keys and values are kept"),
    "stale keys of a draft": (stale_keys, "what is kept is of another text"),
    "steered behind another text": (steered_behind_another, "steered behind another text"),
    "a mask that is ahead": (mask_of_another, "a mask is of another text"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named_and_stops_the_run(name: str, monkeypatch):
    plant, said = WRONG[name]
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=said):
        run(masked="mask" in name or "steered" in name)


@pytest.mark.parametrize("how", [{}, {"drafted": False}, {"masked": True}])
def test_what_is_right_is_let_through(how: Any):
    run(**how)
