"""Who reviews which verdict: claims that lapse, assignments that do not, and who may take one from another."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import text

from qualgate.errors import IntegrityError, UsageError
from qualgate.records import UnitKey
from qualgate.store import claims, openings, queries
from qualgate.store.claims import LAPSES, RENEWED, claim, keep
from qualgate.store.people import Grant, grant
from qualgate.store.seals import broken
from tests.store.tampering import tamper


@pytest.fixture
def store(recorded):
    return recorded[0]


@pytest.fixture
def later(monkeypatch):
    """Let the store's clock go on by this much."""
    bare, passed = claims.clock, [0.0]
    monkeypatch.setattr(claims, "clock", lambda connection: bare(connection) + passed[0])

    def goes(time: timedelta) -> None:
        passed[0] += time.total_seconds()

    return goes


@pytest.fixture
def waiting(store) -> list[tuple[str, str]]:
    return [(line.run_id, line.variant) for line in queries.queue(store)]


def holders(store) -> dict[tuple[str, str], str]:
    lines = queries.queue(store)
    return {(line.run_id, line.variant): line.claim.holder for line in lines if line.claim is not None}


def rows(store) -> int:
    with store.read() as connection:
        return connection.scalar(text("select count(*) from sealed where kind = 'claim'"))


def test_a_claim_is_shown_refused_to_others_and_released(store, waiting):
    made = claim(store, *waiting[0], "Ada", name=" Ada ")
    assert holders(store) == {waiting[0]: "Ada"}
    with pytest.raises(UsageError, match="Ada holds"):
        claim(store, *waiting[0], "Bob", name="Bob")
    assert made.text(claims.datetime.fromisoformat(made.at)) == "claimed by Ada, here now"
    claim(store, *waiting[0], "", name="Ada")
    assert holders(store) == {}
    claim(store, *waiting[0], "Bob", name="Bob")
    assert holders(store) == {waiting[0]: "Bob"}
    assert list(broken(store)) == []


def test_a_claim_lapses_without_a_sign_of_life_which_is_written_now_and_then(store, waiting, later):
    claim(store, *waiting[0], "Ada", name="Ada")
    keep(store, *waiting[0], "Ada")
    assert rows(store) == 1, "a sign of life a moment ago is enough"
    later(LAPSES - RENEWED)
    assert keep(store, *waiting[0], "Bob").holder == "Ada", "another's look is no sign of hers"
    keep(store, *waiting[0], "Ada")
    assert rows(store) == 2
    later(LAPSES - timedelta(seconds=1))
    assert holders(store) == {waiting[0]: "Ada"}
    later(timedelta(seconds=2))
    assert holders(store) == {}
    assert keep(store, *waiting[0], "Ada") is None, "a look does not claim again"


def test_an_assignment_does_not_lapse_and_the_queue_has_mine_and_what_is_free(store, waiting, later):
    claim(store, *waiting[0], "Grace", name="Ada", assigned=True)
    claim(store, *waiting[1], "Ada", name="Ada")
    for who, mine, free in (
        ("Grace", waiting[:1], [waiting[0], *waiting[2:]]),
        ("Ada", waiting[1:2], waiting[1:]),
        ("", [], waiting[2:]),
    ):
        for show, expected in (("mine", mine), ("free", free), ("every verdict", waiting)):
            shown = [(line.run_id, line.variant) for line in queries.queue(store, show=show, who=who)]
            assert (shown, queries.count_queue(store, show, who)) == (expected, len(expected)), (who, show)
    later(100 * LAPSES)
    assert holders(store) == {waiting[0]: "Grace"}
    assert claim(store, *waiting[0], "Grace", name="Grace").assigned, "a claim of one's own assignment keeps it"
    assert "assigned to Grace by Ada" in [line.claim.text(None) for line in queries.queue(store) if line.claim]


def test_the_next_in_the_queue_is_never_one_that_another_holds(store, waiting):
    claim(store, *waiting[1], "Bob", name="Bob")
    after = queries.next_in_queue(store, *waiting[0], "Ada")
    assert (after.run_id, after.variant) == (waiting * 2)[2]
    after = queries.next_in_queue(store, *waiting[0], "Bob")
    assert (after.run_id, after.variant) == waiting[1]
    for place in waiting:
        claim(store, *place, "Bob", name="Bob")
    assert queries.next_in_queue(store, *waiting[0], "Ada") is None


def test_where_roles_were_given_each_write_asks_for_one(store, waiting):
    for person, role in (("vic", "viewer"), ("lea", "labeller"), ("ann", "approver")):
        grant(store, Grant(person=person, role=role, by="root"))

    def by(person: str, holder: str, assigned: bool = False) -> None:
        claim(store, *waiting[0], holder, name="x", signed_in=person, assigned=assigned)

    for person, holder, assigned, why in (
        ("", "x", False, "without signing in"),
        ("vic", "vic", False, "role viewer .* may not claim"),
        ("lea", "ann", True, "assign a verdict to another person takes approver or admin"),
        ("ann", "nobody", True, "'nobody' has no role to review with"),
        ("ann", "vic", True, "'vic' has no role to review with"),
    ):
        with pytest.raises(UsageError, match=why):
            by(person, holder, assigned)
    assert rows(store) == 0
    by("lea", "lea", assigned=True)
    by("ann", "ann", assigned=True)
    for holder in ("lea", ""):
        with pytest.raises(UsageError, match="ann holds"):
            by("lea", holder, assigned=True)
    by("ann", "")
    assert holders(store) == {}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"name": " \u200b"}, "needs the name"),
        ({"name": "x" * 201}, "at most 200 characters"),
        ({"holder": "\u200b"}, "visible"),
        ({"variant": "int3"}, "no variant 'int3'"),
        ({"run_id": "none"}, "none"),
    ],
)
def test_a_claim_of_nobody_or_of_nothing_is_refused(store, waiting, given, why):
    given = {"run_id": waiting[0][0], "variant": waiting[0][1], "holder": "Ada", "name": "Ada", **given}
    with pytest.raises(UsageError, match=why):
        claim(store, **given)
    assert rows(store) == 0


def test_a_changed_claim_is_found_where_it_is_read(store, waiting):
    claim(store, *waiting[0], "Ada", name="Ada")
    tamper(store, "update sealed set body_json = replace(body_json, 'Ada', 'Eve')")
    with pytest.raises(IntegrityError, match="claim"):
        queries.queue(store)


def test_an_opened_answer_is_recorded_once_for_each_person(store, waiting):
    unit = UnitKey(waiting[0][1], "arithmetic", "arithmetic-0000")
    for who in ("Ada", "Ada", "Bob"):
        openings.note_opened(store, waiting[0][0], unit, who)
    openings.note_opened(store, waiting[0][0], UnitKey(unit.arm, "arithmetic", "arithmetic-0001"), "Bob")
    first, second = (("arithmetic", f"arithmetic-000{number}", 0) for number in (0, 1))
    assert openings.opened(store, *waiting[0]) == {"Ada": {first}, "Bob": {first, second}}
    with store.read() as connection:
        assert connection.scalar(text("select count(*) from sealed where kind = 'opening'")) == 3
    grant(store, Grant(person="vic", role="viewer", by="root"))
    with pytest.raises(UsageError, match="role viewer"):
        openings.note_opened(store, waiting[0][0], unit, "vic", "vic")
