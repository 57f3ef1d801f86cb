"""A server that goes away in the middle of what a store does: waited for, and what was written is there once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import event, select, text

from qualgate.errors import Exit, InfrastructureError, IntegrityError
from qualgate.records import Verdict
from qualgate.store import bulk, decisions, nights, postgresql, queries, runs, scorings
from qualgate.store.database import Store, open_store
from qualgate.store.tables import scores
from tests.postgresql import Server
from tests.store.made import make_plan, make_results, make_run

pytestmark = pytest.mark.proof
SMALL = make_plan(cases=2, wrong={"int8": 0.0})


@pytest.fixture
def store(on_server):
    return on_server


@pytest.fixture
def url(on_server) -> str:
    return on_server.url


def cut_at(store: Store, pg: Server, statement: str, times: int = 1) -> list[str]:
    """End every session of the store's the first `times` that `statement` is about to be sent."""
    cut: list[str] = []

    def before(conn, cursor, said, parameters, context, executemany):
        if said.startswith(statement) and len(cut) < times:
            cut.append(said)
            pg.end_sessions(store.url)

    event.listen(store.engine, "before_cursor_execute", before)
    return cut


@pytest.mark.parametrize("statement", ["SELECT pg_advisory_xact_lock", "SELECT arms"])
def test_a_job_whose_connection_is_cut_is_recorded_once(store, pg, no_pause, statement):
    run_id = runs.begin(store, SMALL).run_id
    cut = cut_at(store, pg, statement, times=3)
    for result, scored in make_results(SMALL):
        runs.record(store, run_id, result, scored)
    assert len(cut) == 3
    assert runs.evidence(store, run_id).integrity == ()
    with store.read() as connection:
        assert connection.execute(text("select distinct status, attempts from units")).all() == [("done", 1)]


def cut_once_committed(store: Store, pg: Server) -> list[str]:
    """End the sessions just after the next transaction of writes is on the server, and before it can say so."""
    cut: list[str] = []

    def before(conn):
        if not cut and conn.get_execution_options().get("writes"):
            conn.connection.dbapi_connection.commit()
            cut.append("committed")
            pg.end_sessions(store.url)

    event.listen(store.engine, "commit", before)
    return cut


def a_night(store: Store, run_id: str) -> object:
    nights.add_night(store, nights.Night(nightly="n", gate="g", model="", due_at="a", began_at="b", finished_at="c",
                                  run_id=None, repeated=False, exit=13, said="\0"))  # fmt: skip
    return len(nights.untold(store, "n"))


def a_delivery(store: Store, run_id: str) -> object:
    nights.add_digests(store, "n", {"slack": {}, "webhook": {}}, 0)
    for sent in nights.undelivered(store, "n"):
        nights.note_attempt(store, sent, "no answer")
    return [sent.attempts for sent in nights.undelivered(store, "n")]


def a_scoring(store: Store, run_id: str) -> object:
    last = scorings.read(store, run_id)
    given = {one.unit_id: one.scores for one in last.answers}
    return scorings.add(store, run_id, 0, given), scorings.read(store, run_id).number


def a_decision(store: Store, run_id: str) -> object:
    seen = queries.run_summary(store, run_id).verdict("int8").sha256
    decisions.append(
        store, run_id, "int8", decisions.Said(action="block", name="Ada", reason="no"), decisions.Seen(seen)
    )
    return len(queries.run_summary(store, run_id).verdict("int8").decisions)


def a_verdict(store: Store, run_id: str) -> object:
    said = Verdict(variant="int8", word="block", exit=Exit.BLOCK, reasons=("no",))
    runs.add_verdicts(store, run_id, [said], SMALL.policy)
    with store.read() as connection:
        return connection.scalar(text("select count(*) from verdicts"))


@pytest.mark.parametrize(
    ("act", "once"),
    [(a_night, 1), (a_delivery, [1, 1]), (a_scoring, (1, 1)), (a_decision, 1), (a_verdict, 2)],
)
@pytest.mark.parametrize("cut", [cut_once_committed, lambda store, pg: cut_at(store, pg, "INSERT INTO")])
def test_what_is_written_over_a_connection_that_is_lost_is_there_once(store, pg, no_pause, act, once, cut):
    run_id = make_run(store, SMALL)
    lost = cut(store, pg)
    assert act(store, run_id) == once
    assert len(lost) == 1


def test_rows_that_a_lost_connection_took_half_are_all_there_in_the_end(store, pg, no_pause, monkeypatch):
    run_id, copied, cut = make_run(store, SMALL), bulk._copy, []

    def at_first_lost(*given):
        if not cut:
            cut.append(pg.end_sessions(store.url))
        copied(*given)

    monkeypatch.setattr(bulk, "_copy", at_first_lost)
    assert a_scoring(store, run_id) == (1, 1)
    assert len(cut) == 1
    with store.read() as connection:
        said = connection.execute(select(scores)).all()
    with pytest.raises(IntegrityError, match="duplicate key"), store.write() as connection:
        bulk.put(connection, scores, scores.c.values(), said)


def test_a_server_that_stays_away_is_told_after_the_wait(store, pg, no_pause, monkeypatch):
    monkeypatch.setattr(postgresql, "RECONNECT_SECONDS", 0.0)
    run_id = runs.begin(store, SMALL).run_id
    cut_at(store, pg, "UPDATE units", times=9)
    with pytest.raises(postgresql.LostConnection, match=r"See that its server runs.*resumes"):
        runs.record(store, run_id, *next(make_results(SMALL)))


def test_a_server_that_is_started_again_is_waited_for(pg, url, monkeypatch):
    with open_store(url) as store:
        run_id = runs.begin(store, SMALL).run_id
        pg.stop()
        asked = []

        def pause(seconds: float) -> None:
            asked.append(seconds)
            if len(asked) == 3:
                pg.start()

        monkeypatch.setattr(postgresql.persistently, "__defaults__", (pause,))
        try:
            with pytest.raises(InfrastructureError, match="See that its server runs"):
                open_store(url)
            runs.record(store, run_id, *next(make_results(SMALL)))
        finally:
            if len(asked) < 3:
                pg.start()
    assert len(asked) == 3
    assert all(0 <= one <= postgresql.LONGEST_PAUSE for one in asked)


def test_one_process_at_a_time_works_on_a_run(store, url, pg, no_pause):
    with open_store(url) as other:
        with store.sole("a run"):
            with (
                other.sole("another run"),
                pytest.raises(InfrastructureError, match="working on this run"),
                other.sole("a run"),
            ):
                pass
            pg.end_sessions(url)
            runs.begin(store, SMALL)  # takes it again
            with pytest.raises(InfrastructureError, match="working on this run"), other.sole("a run"):
                pass
        with other.sole("a run"):
            pass


def test_who_lost_a_run_to_another_process_writes_nothing_more_to_it(store, url, pg, no_pause):
    impatient = replace(store, patience=0.0)
    with open_store(url) as other, impatient.sole("a run"):
        pg.end_sessions(url)
        with other.sole("a run"), pytest.raises(InfrastructureError, match="has taken over this run"):
            runs.begin(impatient, SMALL)
    assert queries.count_runs(store) == 0


def test_a_run_is_held_again_where_the_connection_is_lost_once_more_while_it_is_taken_up(pg, url, store, no_pause):
    with store.sole("a run"), open_store(url) as other:
        pg.end_sessions(url)
        cut = cut_at(store, pg, "SELECT set_config('tcp_keepalives_idle'")
        run_id = runs.begin(store, SMALL).run_id
        assert cut
        assert queries.list_runs(other)[0].run_id == run_id
        with pytest.raises(InfrastructureError, match="working on this run"), other.sole("a run"):
            pass


@pytest.fixture
def crowded(pg):
    """Of a role that owns a database: its address, and what takes all of its connections away or gives them back."""
    pg.execute("CREATE ROLE ada LOGIN")
    url = pg.new_database(None, "OWNER ada").replace("postgres@", "ada@")

    def allowed(connections: int) -> None:
        pg.execute(f"ALTER ROLE ada CONNECTION LIMIT {connections}")
        pg.end_sessions(url)

    yield url, allowed
    pg.execute(f"DROP DATABASE {url.partition('?')[0].rpartition('/')[2]} WITH (FORCE)")
    pg.execute("DROP ROLE ada")


def test_a_server_that_has_no_connection_left_is_waited_for_as_one_that_is_away(crowded, monkeypatch):
    url, allowed = crowded
    asked = []

    def pause(seconds: float) -> None:
        asked.append(seconds)
        if len(asked) == 3:
            allowed(9)

    monkeypatch.setattr(postgresql.persistently, "__defaults__", (pause,))
    with open_store(url) as store, store.sole("a run"):
        run_id = runs.begin(store, SMALL).run_id
        allowed(0)
        with pytest.raises(InfrastructureError, match=r"too many connections.*Raise max_connections or the role's"):
            open_store(url)
        assert not asked
        for result, scored in make_results(SMALL):
            runs.record(store, run_id, result, scored)
        assert runs.evidence(store, run_id).integrity == ()
    assert len(asked) == 3
