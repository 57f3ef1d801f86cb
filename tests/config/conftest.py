"""A gate file written, loaded, or refused; and the editor's schema, which says the same as far as a schema can."""

from __future__ import annotations

from pathlib import Path

import pytest
from jsonschema import Draft7Validator

from qualgate.config import GateFile, gate_file_schema, load_gate_file
from qualgate.documents import read_yaml
from qualgate.errors import Exit, UsageError
from tests.config.gate_files import PRICES

# What a schema cannot see: the disk, other parts of the file, names only the program knows.
BEYOND_A_SCHEMA = (
    "no model folder", "written as ./", "no evalset at", "is not one this file runs", "the one on line", "twice",
    "no shipped evalset", "no shipped calibration set", "no calibration set at", "cannot be a path", "home folder",
    "no adapter folder", "at most 4 are allowed", "read as a command", "not an address", "is the API's address",
    "same server", "answers to each case, and `generation.repeats`",
    "leave `count` out", "same number of GPUs", "Ray assigns", "no file", "measures nothing", "own duration", "[1, 2]]",
    "finite number", "valid integer (found 1.0)",  # JSON has no infinity, and to JSON Schema 1.0 is an integer
)  # fmt: skip
VALIDATOR = Draft7Validator(gate_file_schema())


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
    def load(text: str | bytes, *, files: bool = True, schema: bool = False) -> GateFile:
        """schema: what is refused, the editor's schema refuses too; what is taken, it always takes."""
        path = write(text)
        try:
            gate = load_gate_file(path, files=files)
        except UsageError as error:
            if schema and not all(map(_is_beyond, str(error).splitlines())):
                _refused_by_schema(path)
            raise
        assert [error.message for error in VALIDATOR.iter_errors(read_yaml(path).value)] == []
        return gate

    return load


def _refused_by_schema(path: Path) -> None:
    document = read_yaml(path)
    assert document.faults or not VALIDATOR.is_valid(document.value)


def _is_beyond(line: str) -> bool:
    return any(word in line for word in BEYOND_A_SCHEMA)


@pytest.fixture
def faults(load):
    """Line and message of each fault, as the user reads them."""

    def faults(text: str | bytes, *, schema: bool = False) -> list[tuple[int, str]]:
        with pytest.raises(UsageError) as error:
            load(text, schema=schema)
        assert error.value.exit == Exit.USAGE
        parts = [line.split("gate.yaml:", 1)[1].split(": ", 1) for line in str(error.value).splitlines()]
        return [(int(number), message) for number, message in parts]

    return faults
