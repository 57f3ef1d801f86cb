"""One process for one run."""

from __future__ import annotations

import pytest

from qualgate.errors import InfrastructureError
from qualgate.pipeline.locks import sole_coordinator
from qualgate.store.database import open_store


def test_a_second_process_on_a_run_is_refused_until_the_first_has_ended(tmp_path):
    with open_store(f"sqlite:///{tmp_path / 'q.db'}") as store:
        with (
            sole_coordinator(tmp_path / "run", store),
            sole_coordinator(tmp_path / "another run", store),
            pytest.raises(InfrastructureError, match="another qualgate process"),
            sole_coordinator(tmp_path / "run", store),
        ):
            pass
        with sole_coordinator(tmp_path / "run", store):
            pass
