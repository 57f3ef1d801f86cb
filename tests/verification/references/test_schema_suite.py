"""The rows of JSON Schema, on a suite and files of our own: what they count, and that a slip of ours would be seen."""

from __future__ import annotations

import json

import pytest

from tests.verification.references import maskbench, schema_suite, scoring

SUITE = {
    "": [{"description": "g", "schema": {"type": "integer"}, "tests": [
        {"description": "whole", "data": 1, "valid": True}, {"description": "text", "data": "a", "valid": False}]}],
    "optional": [{"description": "g", "schema": {"contentEncoding": "base64"}, "tests": [
        {"description": "the library does not look", "data": "%", "valid": False}]}],
    "optional/format": [{"description": "g", "schema": {"format": "iri"}, "tests": [
        {"description": "too slow to import", "data": "http://x.org", "valid": True}]}],
}  # fmt: skip


@pytest.fixture
def suite(tmp_path, monkeypatch):
    """Writes the files above, each draft's the same."""
    for draft in schema_suite.DRAFTS:
        for part, groups in SUITE.items():
            folder = tmp_path / "tests" / draft / part
            folder.mkdir(parents=True, exist_ok=True)
            (folder / ("iri.json" if part.endswith("format") else "a.json")).write_text(json.dumps(groups))
    monkeypatch.setattr(schema_suite, "SUITE", tmp_path)
    schema_suite.remotes.cache_clear()
    yield tmp_path
    schema_suite.remotes.cache_clear()


def rows(quick: bool = False) -> dict[str, dict]:
    return {row["id"]: row for row in scoring._suite(quick)[1]}


def test_each_difference_is_the_librarys_or_without_a_verdict(suite):
    found = schema_suite.whole_suite() or {}
    assert {part: (one["tests"], one["agree"], one["library"], one["silent"]) for part, one in found.items()} == {
        "required": (10, 10, 0, {}),
        "optional": (5, 0, 5, {}),
        "optional/format": (5, 2, 0, {"iri": 3}),  # drafts 4 and 6 have no such format
    }
    assert rows()["suite"]["met"] is True
    assert rows()["suite"]["measured"] == 17 / 20
    assert rows(quick=True)["suite"]["met"] is None


@pytest.mark.parametrize(("part", "file"), [("", "a.json"), ("optional", "a.json"), ("optional/format", "other.json")])
def test_a_verdict_that_is_ours_alone_fails_the_row(suite, monkeypatch, part, file):
    ours = schema_suite.first_error
    monkeypatch.setattr(
        schema_suite, "first_error", lambda schema, *more, **options: "no" if "x" in schema else ours(schema, *more)
    )
    groups = [{"description": "g", "schema": {"x": 1}, "tests": [{"description": "t", "data": 1, "valid": True}]}]
    (suite / "tests" / "draft7" / part / file).write_text(json.dumps(groups))
    assert rows()["suite"]["met"] is False


def test_maskbench_counts_what_is_refused_and_what_is_labelled_otherwise(tmp_path, monkeypatch):
    tests = [{"data": "2026-11-25", "valid": True}, {"data": "soon", "valid": False}, {"data": 7, "valid": False}]
    monkeypatch.setattr(maskbench, "FOLDER", tmp_path)
    assert scoring._maskbench(False)[1][0]["met"] is None, "no files, no verdict"
    (tmp_path / "a.json").write_text(json.dumps({"schema": {"format": "date"}, "tests": tests}))
    (tmp_path / "b.json").write_text(json.dumps({"schema": {"pattern": "("}, "tests": tests}))
    found = maskbench.maskbench() or {}
    assert (found["schemas"], found["tests"], found["met"], found["of_a_draft"]) == (2, 3, 2, 0)
    assert list(found["refused"]) == ["b"]
    assert found["differ"] == ["a[2]: labelled False, True"]
    assert scoring._maskbench(False)[1][0]["met"] is False
    (tmp_path / "c.json").write_text(json.dumps({"schema": {"not": {"$schema": "http://x.org"}}}))
    assert (maskbench.maskbench() or {})["of_a_draft"] == 1
