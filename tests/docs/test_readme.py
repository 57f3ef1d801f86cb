"""The README is what a stranger reads first: short, with a picture, and true to the program."""

from __future__ import annotations

import re

from qualgate.errors import Exit
from tests.docs.blocks import ROOT
from tests.docs.test_links import links

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_is_short():
    assert len(README.encode()) <= 10_000


def test_its_exit_codes_are_the_programs():
    table = README.partition("## Exit codes")[2].partition("##")[0]
    shown = {int(code) for row in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for code in row.split(",")}
    assert shown == {code.value for code in Exit}


def test_its_picture_is_small_and_fetches_nothing():
    pictures = [ROOT / link for link in links(ROOT / "README.md") if link.endswith((".svg", ".png"))]
    assert pictures
    for picture in pictures:
        assert picture.stat().st_size < 200_000
        addresses = re.findall(rb"https?://[^\s\"']+", picture.read_bytes()) if picture.suffix == ".svg" else []
        assert set(addresses) <= {b"http://www.w3.org/2000/svg"}
