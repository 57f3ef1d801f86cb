"""A store as reviewers meet it, made once: a complete run, one under way, one whose answers are hostile."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest

from qualgate.gate.verdict import decide_plain
from qualgate.store import runs
from qualgate.store.database import open_store
from tests.store.made import make_plan, make_results, make_run

# It looks through every installed package for parts of a page, which took two thirds of each test's time.
manifest_scanner.scan_component_manifests = cache(manifest_scanner.scan_component_manifests)

MAIN = Path(__file__).resolve().parents[2] / "app" / "main.py"
HOSTILE = (
    "<script>window.owned=1</script><img src=x onerror=window.owned=1> ![x](http://outside.invalid/x.png) "
    "[link](javascript:window.owned=1) \u202egnp.exe\u202c \x1b[31mred\x00 zero\u200bwidth $x^2$ 漢字 🙂"
)


@dataclass(frozen=True)
class Made:
    path: Path
    complete: str
    under_way: str
    hostile: str

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"


@pytest.fixture(scope="session")
def made_once(tmp_path_factory) -> Made:
    path = tmp_path_factory.mktemp("made") / "qualgate.db"
    with open_store(f"sqlite:///{path}") as store:
        hostile = _hostile_run(store)
        under_way = make_run(store, make_plan(cases=4, seed=2, job_rows=6), jobs=1)
        complete = make_run(store, make_plan(cases=60))
    return Made(path, complete, under_way, hostile)


@pytest.fixture
def made(made_once, tmp_path, monkeypatch) -> Made:
    """A copy that a test may write to, and that the pages read."""
    copy = Made(tmp_path / "qualgate.db", made_once.complete, made_once.under_way, made_once.hostile)
    shutil.copy(made_once.path, copy.path)
    monkeypatch.setenv("QUALGATE_STORE", copy.url)
    return copy


@pytest.fixture
def open_page():
    """Open a page as a browser would: `open_page("verdict", run=…, variant=…)`."""

    def opened(name: str = "queue", **query: str) -> AppTest:
        app = AppTest.from_file(str(MAIN), default_timeout=30)
        for key, value in query.items():
            app.query_params[key] = value
        app.run()
        return app if name == "queue" else app.switch_page(f"views/{name}.py").run()

    return opened


def _hostile_run(store) -> str:
    """Every wrong answer of the variant says what no page should obey."""
    plan = make_plan(cases=4, wrong={"int2-g32": 0.5}, families=("tool_calls", "json_extract"), seed=1)
    record = runs.begin(store, plan)
    for result, scored in make_results(plan, {"int2-g32": 0.5}):
        said = result.completions
        if result.arm != "baseline":
            said = tuple(replace(one, text=HOSTILE) for one in said)
            scored = {
                key: tuple(replace(score, value=0.0, verdict=False, extracted=HOSTILE, reason=HOSTILE) for score in job)
                for key, job in scored.items()
            }
        runs.record(store, record.run_id, replace(result, completions=said), scored)
    runs.finish(store, record.run_id, decide_plain(runs.evidence(store, record.run_id), plan.policy), complete=True)
    return record.run_id
