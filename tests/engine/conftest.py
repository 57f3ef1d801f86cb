"""What holds of every pass is looked at in every test of the engine; and tiny models that are made once a session."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from qualgate.engine.loaded import LoadedArm
from tests.engine.engines import PACKED
from tests.engine.invariants import held
from tests.engine.jobs import Kind, arms_under
from tests.tiny_models import END, save_tiny_model


@pytest.fixture(autouse=True)
def every_pass_is_sound():
    with held():
        yield


@pytest.fixture(scope="session")
def saved(tmp_path_factory) -> Callable[..., Path]:
    """The folder of a tiny model, by what it is made of. Copy what you change."""
    return cache(lambda **how: save_tiny_model(tmp_path_factory.mktemp("saved") / "model", **how))


@pytest.fixture(scope="session")
def model(saved) -> Path:
    """The folder of the tiny model that most tests ask."""
    return saved()


@pytest.fixture(scope="session")
def arms_of(tmp_path_factory) -> Callable[..., Callable[..., LoadedArm]]:
    """Loads arms as `arms_under` does, each once: they answer every job that they are asked. Leave their models be."""

    @cache
    def of(kind: Kind = "plain", ends: tuple[int, ...] = (END,)) -> Any:
        return cache(arms_under(kind, tmp_path_factory.mktemp("arms"), ends))

    return of


@pytest.fixture(scope="session")
def tiny_arm(arms_of) -> LoadedArm:
    """A baseline that passes through C."""
    return arms_of()()


@pytest.fixture(scope="module", params=PACKED)
def arms(request, arms_of) -> Callable[..., LoadedArm]:
    """Loads arms that pass through C, or through their own modules."""
    return arms_of(request.param)
