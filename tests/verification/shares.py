"""Shares of `make verify`: which proofs a room of the product needs.

A landing runs the shares of the rooms that it changed, and one more in turn, a share a day. `make verify ALL=1` runs
all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import PurePosixPath


@dataclass(frozen=True, slots=True)
class Share:
    """rooms: packages and modules of the product. tests: folders and files of tests/ whose proofs belong here.
    slices: proofs of `python -m tests.verification`."""

    rooms: tuple[str, ...]
    tests: tuple[str, ...]
    slices: tuple[str, ...] = ()


SHARES: dict[str, Share] = {
    "gate": Share(
        rooms=("gate", "stats", "records", "intake"),
        tests=("gate", "stats", "records", "intake", "verification/verdicts"),
        slices=("decisions", "determinism-report"),
    ),
    "scoring": Share(
        rooms=("scoring", "sandbox", "evalsets", "qualgate_evalsets", "plugins"),
        tests=(
            "scoring",
            "sandbox",
            "evalsets",
            "evalsets_shipped",
            "verification/references",
            "verification/escapes",
        ),
        slices=("scoring",),
    ),
    "engine": Share(
        rooms=("engine", "harness"),
        tests=("engine", "harness", "verification/exactness", "verification/lossless"),
        slices=("architectures", "combinations", "exact", "lossless", "served-arithmetic"),
    ),
    "kernels": Share(
        rooms=("qualgate_kernels", "quant"),
        tests=(
            "kernels",
            "quant",
            "pipeline/quantize",
            "benchmarks",
            "interop",
            "verification/machine_code",
            "verification/methods",
        ),
        slices=("folders", "quantize", "static"),
    ),
    "served": Share(
        rooms=("served",),
        tests=("served", "pipeline/load", "verification/served"),
        slices=("served",),
    ),
    "store": Share(
        rooms=("store", "qualgate_migrations", "workers", "pipeline", "run", "config", "documents"),
        tests=("store", "migrations", "workers", "pipeline", "run", "config", "verification/service"),
        slices=("service",),
    ),
    "pages": Share(
        rooms=("cli", "report", "qualgate_app", "refmodel", "errors", "text", "qualgate"),
        tests=(
            "cli",
            "report",
            "app",
            "refmodel",
            "errors",
            "docs",
            "house",
            "time",
            "verification/test_main.py",
            "verification/mutation",
            "verification/first_hour",
            "verification/test_landing.py",
            "test_api.py",
            "text",
            "test_imports.py",
            "test_makefile.py",
            "test_tables.py",
            "test_wheel.py",
        ),
        slices=("first-hour",),
    ),
}
# Parts of a room that other proofs read than the room's.
WITHIN = {("qualgate", "pipeline", "load"): "served", ("qualgate", "pipeline", "quantize"): "kernels"}
PACKAGES = {
    "kernels": "qualgate_kernels", "app": "qualgate_app", "migrations": "qualgate_migrations",
    "evalsets": "qualgate_evalsets",
}  # fmt: skip
EVERYTHING = ("pyproject.toml", "constraints.txt", "setup.py", "Makefile", ".ci/run", "tests/conftest.py")


def share_of(path: str) -> str | None:
    """The share that a file's change calls for; None for one that no proof reads (pages, other files)."""
    parts = PurePosixPath(path).parts
    if parts[0] == "tests":
        inside = "/".join(parts[1:])
        fits = ((place, name) for name, share in SHARES.items() for place in share.tests)
        return next((name for place, name in fits if inside == place or inside.startswith(f"{place}/")), None)
    if parts[:3] in WITHIN:
        return WITHIN[parts[:3]]
    if parts[0] == "qualgate":
        room = {"__init__.py": "qualgate", "__main__.py": "cli"}.get(parts[1], PurePosixPath(parts[1]).stem)
    else:
        room = PACKAGES.get(parts[0], "")
    return next((name for name, share in SHARES.items() if room in share.rooms), None)


def shares_of(changed: Iterable[str]) -> list[str]:
    """The shares that these files' changes call for, in the table's order."""
    files = list(changed)
    if any(path in EVERYTHING for path in files):
        return list(SHARES)
    needed = {share_of(path) for path in files}
    return [name for name in SHARES if name in needed]


def share_in_turn(day: date) -> str:
    """The share whose turn it is."""
    return list(SHARES)[day.toordinal() % len(SHARES)]
