"""A sandbox that code is run in, and a job that has to be stopped."""

from __future__ import annotations

import pytest

from qualgate.sandbox import Limits, Sandbox, killable, probe


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    found = probe()
    if found.tier is None:
        pytest.skip(str(found))
    return Sandbox(tier=found.tier, limits=Limits(cpu_seconds=2, wall_seconds=120))


@pytest.fixture
def stopped(monkeypatch):
    """Whatever is asked of a child takes too long, as tests/sandbox/test_killable.py has it in earnest."""

    def run(*_: object, **__: object) -> None:
        raise killable.Killed("more than 1 s of work", "timeout")

    monkeypatch.setattr(killable, "run", run)
