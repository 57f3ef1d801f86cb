"""Packages that programs need are had before a run is planned, or the plan names what is missing."""

from __future__ import annotations

import pytest

from qualgate.errors import UsageError
from qualgate.pipeline import check_packages
from qualgate.pipeline.check_packages import packages_held
from qualgate.pipeline.score_sample import of_today
from qualgate.records import Case, Evalset
from qualgate.sandbox.packages import NoPackages


def a_set(*wanted: list[str] | None) -> Evalset:
    bodies = [{"id": str(at), **({"packages": names} if names else {})} for at, names in enumerate(wanted)]
    cases = tuple(Case(evalset="ours", body=body) for body in bodies)
    return Evalset(name="ours", version="1", sha256="", metrics=("code.pass",), cases=cases)


def test_each_list_is_looked_at_once_and_told_and_named_by_what_it_came_to(monkeypatch):
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(check_packages, "held_packages", lambda wanted: asked.append(wanted) or f"packages:{wanted[0]}")
    told: list[str] = []
    sets = [a_set(["numpy"], None, ["numpy"]), a_set(["pandas"])]
    assert packages_held(sets, told.append) == ("packages:numpy", "packages:pandas")
    assert asked == [("numpy",), ("pandas",)]
    assert told == ["planning: packages of ours: numpy", "planning: packages of ours: pandas"]
    assert packages_held([a_set(None)]) == ()


def test_a_package_that_cannot_be_had_stops_the_plan_by_name(monkeypatch):
    def missing(wanted):
        raise NoPackages("pip installs no wheels of nummpy here: none found")

    monkeypatch.setattr(check_packages, "held_packages", missing)
    with pytest.raises(UsageError, match=r"evalset ours: its `packages` cannot be had .* no wheels of nummpy here"):
        packages_held([a_set(["nummpy"])])


def test_a_stored_score_is_of_today_with_the_packages_that_it_was_made_with():
    held = "packages:numpy==2.3.4:0123456789ab"
    versions = {"code.pass": "code/7"}
    assert of_today("code.pass", f"code/6 {held}", versions) == f"code/7 {held}"
    assert of_today("code.pass", f"code/6 {held} reasoning/1 think", versions).startswith(f"code/7 {held} reasoning/")
    assert of_today("code.pass", "code/6", versions) == "code/7"
