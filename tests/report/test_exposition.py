"""`qualgate metrics`: what Prometheus reads of a store, once, in a file and at an address."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from qualgate.config.nightly import Nightly, load_nightly
from qualgate.errors import Exit, InfrastructureError
from qualgate.pipeline.nights.items import overdue
from qualgate.report.exposition import Exposition
from qualgate.store.database import Store, open_store
from qualgate.store.nights import Night, add_night
from qualgate.store.queries.service import ServiceState
from tests.command_line import qualgate
from tests.postgresql import server

prometheus = pytest.importorskip("prometheus_client")
from prometheus_client.parser import text_string_to_metric_families as parsed  # noqa: E402

STATE = ServiceState(
    runs={"running": 1}, units={('we"ird\n', "done"): 4}, verdicts={"block": 1}, last_nights={("n", "g"): 1.5},
    night_exits={("n", 10): 1}, waiting={"n": (2, 60.0)},
)  # fmt: skip


def said(text: str) -> dict[tuple[str, ...], float]:
    """(name, label values by their labels) → value, read by the library's own parser."""
    return {
        (one.name, *dict(sorted(one.labels.items())).values()): one.value
        for family in parsed(text)
        for one in family.samples
    }


def exposed(state=lambda: STATE, failed=None) -> dict[tuple[str, ...], float]:
    registry = prometheus.CollectorRegistry(auto_describe=False)
    registry.register(Exposition(state, lambda: {("n", "g"): 0.0}, failed or (lambda error: None)))
    return said(prometheus.generate_latest(registry).decode())


def test_every_count_is_under_its_name_and_what_is_not_there_is_0():
    found = exposed()
    assert found["qualgate_runs", "running"] == 1
    assert found["qualgate_runs", "complete"] == 0
    assert found["qualgate_units", 'we"ird\n', "done"] == 4
    assert found["qualgate_verdicts_total", "block"] == 1
    assert found["qualgate_nights", "10", "n"] == 1
    assert found["qualgate_digests_waiting", "n"] == 2
    assert found["qualgate_store_up",] == 1


def test_the_page_lists_every_metric_and_no_other():
    page = (Path(__file__).resolve().parents[2] / "docs/service.md").read_text(encoding="utf-8")
    assert {name for name, *_ in exposed()} == set(re.findall(r"`(qualgate_\w+)`", page))


def test_a_store_that_cannot_be_read_is_told_as_that_and_gives_no_number():
    told = []

    def away() -> ServiceState:
        raise InfrastructureError("away")

    found = exposed(away, told.append)
    assert found.pop(("qualgate_store_up",)) == 0
    assert [name for name, *_ in found] == ["qualgate_info"]
    assert [str(one) for one in told] == ["away"]


@pytest.fixture
def store(tmp_path):
    with open_store(f"sqlite:///{tmp_path / 'qualgate.db'}") as opened:
        yield opened


def test_metrics_are_printed_and_written_to_a_file_whole(store, tmp_path):
    asked = ("metrics", "--store", "sqlite:///qualgate.db")
    printed = qualgate(*asked, cwd=tmp_path)
    assert said(printed.stdout)["qualgate_store_up",] == 1
    assert qualgate(*asked, "--textfile", "q.prom", cwd=tmp_path).returncode == Exit.APPROVE
    assert said((tmp_path / "q.prom").read_text()) == said(printed.stdout)


def test_metrics_of_no_store_are_an_error_and_no_file(tmp_path):
    done = qualgate("metrics", "--store", "sqlite:///none.db", "--textfile", "q.prom", cwd=tmp_path)
    assert done.returncode == Exit.USAGE
    assert not (tmp_path / "q.prom").exists()


def test_a_file_of_a_store_that_is_away_since_says_so_and_no_longer_that_it_is_there(store, tmp_path):
    asked = ("metrics", "--store", "sqlite:///qualgate.db", "--textfile", "q.prom")
    assert qualgate(*asked, cwd=tmp_path).returncode == Exit.APPROVE
    (tmp_path / "qualgate.db").rename(tmp_path / "elsewhere.db")
    done = qualgate(*asked, cwd=tmp_path)
    assert done.returncode == Exit.USAGE
    assert "there is no store yet" in done.stderr
    found = said((tmp_path / "q.prom").read_text())
    assert found.pop(("qualgate_store_up",)) == 0
    assert [name for name, *_ in found] == ["qualgate_info"]


@contextmanager
def serving(store: str, folder: Path) -> Iterator[tuple[list[str], Callable[[], float]]]:
    """What the command says before it serves, and the metric of the store's being there, read at its address. It is
    ended by Ctrl-C."""
    command = [sys.executable, "-m", "qualgate", "metrics", "--store", store, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder) as served:
        assert served.stderr is not None
        told = [served.stderr.readline()]
        while "http://" not in told[-1]:
            told.append(served.stderr.readline())

        def store_up() -> float:
            with urllib.request.urlopen(told[-1].split()[1], timeout=30) as reply:
                return said(reply.read().decode())["qualgate_store_up",]

        yield told, store_up
        served.send_signal(signal.SIGINT)
        assert served.wait(30) == Exit.INTERRUPTED


def test_metrics_are_served_until_the_command_is_ended(store, tmp_path):
    with serving(store.url, tmp_path) as (_, store_up):
        assert store_up() == 1


@pytest.mark.proof
def test_metrics_are_served_while_the_store_is_away_and_once_it_is_back_with_its_numbers(tmp_path):
    pg = server()
    url = pg.new_database()
    pg.stop()
    with ExitStack() as open_:
        try:
            told, store_up = open_.enter_context(serving(url, tmp_path))
            assert "See that its server runs" in told[0]
            assert store_up() == 0
        finally:
            pg.start()
        assert store_up() == 1


NOW = datetime(2026, 11, 26, 5, tzinfo=UTC)


def nightly_of(folder: Path, *gates: str) -> Nightly:
    """A nightly file of these entries, each of a gate file of its name."""
    entries = ", ".join(f"{gate[0]}: {{gate: {gate}}}" for gate in gates)
    for gate in gates:
        (folder / f"{gate[0]}.yaml").write_text("version: 1\n")
    (folder / "nightly.yaml").write_text(f"version: 1\nschedule: {{at: '02:00'}}\ngates: {{{entries}}}\n")
    return load_nightly(folder / "nightly.yaml")


def made(store: Store, nightly: Nightly, day: int, model: str = "") -> None:
    """A night of the gate a, due at two and over at three."""
    night = Night(
        nightly=nightly.name, gate="a", model=model, due_at=f"2026-11-{day}T02:00:00+00:00", began_at="",
        finished_at=f"2026-11-{day}T03:00:00Z", run_id=None, repeated=False, exit=0,
    )  # fmt: skip
    add_night(store, night)


def test_a_night_is_overdue_from_its_time_until_it_was_made(store, tmp_path):
    nightly = nightly_of(tmp_path, "a.yaml", "b.yaml")
    made(store, nightly, 26)
    assert overdue(nightly, store, NOW) == {(nightly.name, "a"): 0.0, (nightly.name, "b"): 10_800.0}
    assert overdue(nightly, store, NOW + timedelta(days=1))[nightly.name, "a"] == 10_800.0


def test_a_night_is_overdue_while_one_of_its_models_is_and_not_for_models_that_are_gone(store, tmp_path):
    for name in ("one", "two"):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "config.json").write_text("{}")
    nightly = nightly_of(tmp_path, "a.yaml, models: ['models/*']")
    for model, day in (("one", 26), ("two", 25), ("gone", 20)):
        made(store, nightly, day, str(tmp_path / "models" / model))
    assert overdue(nightly, store, NOW) == {(nightly.name, "a"): 10_800.0}, "of two, the night was cut short"
    (tmp_path / "models" / "two" / "config.json").unlink()
    assert overdue(nightly, store, NOW) == {(nightly.name, "a"): 0.0}
