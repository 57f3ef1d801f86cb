"""ARCHITECTURE names files that are there."""

from __future__ import annotations

import re

from tests.docs.blocks import ROOT

TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PACKAGES = ROOT / "qualgate"


def section(title: str) -> str:
    return TEXT.partition(f"## {title}")[2].partition("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    found = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if "|" in line]
    return [row for row in found if set("".join(row)) - set("-| ")]


def test_every_file_to_touch_is_there():
    for what, where in rows(section("To add something"))[1:]:
        for path in re.findall(r"`((?:qualgate|kernels|migrations|tests|docs)/[^`]*)`", where):
            assert (ROOT / path).exists(), f"{what}: {path}"


def test_every_room_is_in_the_map():
    named = set(re.findall(r"`([a-z_/]+)`", "".join(row[0] for row in rows(section("The rooms")))))
    there = {path.stem for path in PACKAGES.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert there - named == {"__init__", "__main__"}
