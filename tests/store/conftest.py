"""The stores that the contract holds for. PostgreSQL joins by adding its URL here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from qualgate.store.database import Store, open_store


@pytest.fixture(params=["sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'qualgate.db'}"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as opened:
        yield opened
