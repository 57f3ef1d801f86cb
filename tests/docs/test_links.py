"""Links lead somewhere: files that are there, headings that are there, and every page can be found from the index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, pages

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def links(page: Path) -> list[str]:
    return LINK.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """Of the headings, as code hosts make them: lower case, without punctuation, hyphens for spaces."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", pages(), ids=str)
def test_every_link_leads_to_a_file_and_a_heading(page: Path):
    for link in links(page):
        assert "://" not in link, f"{link}: a page's sources are in the repository"
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_is_found_from_the_readme():
    found, open_ = set(), [ROOT / "README.md"]
    while open_:
        page = open_.pop()
        if page not in found and page.suffix == ".md":
            found.add(page)
            open_ += [(page.parent / link.partition("#")[0]).resolve() for link in links(page)]
    assert set(pages()) <= found


def test_no_page_names_a_machine():
    for page in pages():
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"/(work|root|home|tmp/bash_jobs)/", text), page
