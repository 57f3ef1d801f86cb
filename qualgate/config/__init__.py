"""The gate file: a user's settings, checked strictly, as frozen records."""

from __future__ import annotations

from qualgate.config.gate_file import GateFile, load_gate_file
from qualgate.config.schema import gate_file_schema

__all__ = ["GateFile", "gate_file_schema", "load_gate_file"]
