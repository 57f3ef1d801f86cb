"""Evalsets and calibration sets: NAME.yaml and NAME.jsonl, read strictly, every fault named with its file and line.

An evalset judges; a calibration set (`kind: calibration`) is data for quantizers. Neither can replace the other: a
variant calibrated on the cases that judge it has seen its exam.
"""

from qualgate.evalsets.cases import identity_faults, misspelt_keys
from qualgate.evalsets.header import NAME, CalibrationFile, EvalsetFile, ServedByEntry
from qualgate.evalsets.places import is_path, kind_of, locate, lying_in, name_of, own_path, shipped, shipped_folder
from qualgate.evalsets.sets import (
    added_beside,
    asked_again,
    check,
    forgiven_beside,
    load,
    load_calibration,
    notes,
    read,
    simulation_beside,
)
from qualgate.evalsets.trajectories import read_turns, read_whole

__all__ = [
    "NAME",
    "CalibrationFile",
    "EvalsetFile",
    "ServedByEntry",
    "added_beside",
    "asked_again",
    "check",
    "forgiven_beside",
    "identity_faults",
    "is_path",
    "kind_of",
    "load",
    "load_calibration",
    "locate",
    "lying_in",
    "misspelt_keys",
    "name_of",
    "notes",
    "own_path",
    "read",
    "read_turns",
    "read_whole",
    "shipped",
    "shipped_folder",
    "simulation_beside",
]
