"""Reports of one run as it should be, of one that is not complete, and of one in which every text is an attack."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate.report.source import Source
from qualgate.report.summary import Report, load_report
from qualgate.store.database import open_store
from tests.report.reading import ATTACK, hostile
from tests.store.made import make_plan, make_run


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    url = f"sqlite:///{tmp_path_factory.mktemp('formats') / 'q.db'}"
    with open_store(url) as store:
        make_run(store, make_plan(cases=60, wrong={"int8": 0.0, "int4-g32": 0.012, "int2-g32": 0.22}))
    return load_report(url)


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Report:
    url = f"sqlite:///{tmp_path_factory.mktemp('unfinished') / 'q.db'}"
    with open_store(url) as store:
        make_run(store, make_plan(cases=8, wrong={"int8": 0.0}), jobs=1)
    return load_report(url)


@pytest.fixture(scope="module")
def attacked(report: Report) -> Report:
    """Every text of the store is an attack, in rules and paths too."""
    bad = hostile(report)
    (stored, *others), name = bad.run.verdicts, ATTACK
    verdict = stored.verdict
    comparisons = tuple(
        replace(one, rule=name, slice=name, reason=name, status=status, tier=tier)
        for one in verdict.comparisons
        for status in ("broken", "undecided", "proven")
        for tier in ("critical", "supporting", "advisory")
    )
    verdict = replace(verdict, variant=name, reasons=(name, name), comparisons=comparisons)
    (lost,) = bad.flips.values()
    counts = tuple(replace(one, evalset=name, metric=name, lost=3) for one in report.flip_counts["int2-g32"])
    return replace(
        bad,
        run=replace(bad.run, verdicts=(replace(stored, verdict=verdict), *others), failures=(name,), status="complete"),
        flips={name: tuple(replace(flip, baseline=name, variant=name + "x") for flip in lost)},
        flip_counts={name: counts},
        drift={name: report.drift["int2-g32"]},
        source=Source(path="our gates/gate.yaml", lines={}),
    )
