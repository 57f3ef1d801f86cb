"""A gate file written, loaded, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from qualgate.config import GateFile, load_gate_file
from qualgate.errors import Exit, UsageError
from tests.config.gate_files import PRICES


@pytest.fixture
def write(tmp_path: Path):
    (tmp_path / "models" / "prod").mkdir(parents=True)
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "support.yaml").write_text("name: support\n")
    (tmp_path / "prices.yaml").write_text(PRICES)
    (tmp_path / "said.jsonl").write_text("{}\n")

    def write(text: str | bytes) -> Path:
        path = tmp_path / "gate.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.fixture
def load(write):
    def load(text: str | bytes) -> GateFile:
        return load_gate_file(write(text))

    return load


@pytest.fixture
def faults(load):
    """Line and message of each fault, as the user reads them."""

    def faults(text: str | bytes) -> list[tuple[int, str]]:
        with pytest.raises(UsageError) as error:
            load(text)
        assert error.value.exit == Exit.USAGE
        parts = [line.split("gate.yaml:", 1)[1].split(": ", 1) for line in str(error.value).splitlines()]
        return [(int(number), message) for number, message in parts]

    return faults
