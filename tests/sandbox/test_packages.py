"""Packages for programs: wheels alone, installed once, hashed, read-only inside, and never the program's fault."""

from __future__ import annotations

import json
import os
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from qualgate.sandbox import Ended, Limits, Sandbox, packages, probe
from qualgate.sandbox.packages import NoPackages, equipped, fault, installed
from tests.sandbox.wheels import source, wheel

GREETS = {"greets/__init__.py": "from greets.word import WORD\n", "greets/word.py": "WORD = 'hello'\n"}
LIMITS = Limits(cpu_seconds=2, wall_seconds=120, memory_bytes=2**29)
FALSE = {"json/__init__.py": "raise SystemExit(3)\n", "inside/values.py": "1/0\n"}  # of names that are others'


@pytest.fixture
def index(tmp_path, monkeypatch) -> Path:
    """A folder that pip finds its packages in, and an empty cache."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    installed.cache_clear()
    packages._of_this_process.cache_clear()
    return folder


def content(files: dict[str, str]) -> str:
    """The hash of a folder by name and bytes of its files."""
    lines = [f"{name}\0{sha256(files[name].encode()).hexdigest()}\n" for name in sorted(files)]
    return sha256("".join(lines).encode()).hexdigest()


def test_a_program_imports_what_was_declared_and_cannot_change_it(index):
    wheel(index, "greets", GREETS | FALSE, needs="other")
    wheel(index, "other", {"other.py": "X = 1\n"}, version="2.5")
    tiers = [found.tier for found in map(probe, "AB") if found.tier]
    if not tiers:
        pytest.skip(str(probe()))
    for tier in tiers:
        imports_and_cannot_change(Sandbox(tier=tier, limits=LIMITS))


def imports_and_cannot_change(sandbox: Sandbox) -> None:
    found, held = equipped(sandbox, ["greets"])
    assert held.versions == ("greets==1.0", "other==2.5")
    assert held.sha256 == content(GREETS | FALSE | {"other.py": "X = 1\n"})  # wherever and whenever it was installed
    assert held.identity == f"packages:greets==1.0:{held.sha256[:12]}"
    with found.program() as running:
        assert running.run("import greets, json, other\nprint(greets.WORD, json.dumps(other.X))", "") == "hello 1\n"
    with found.program() as running, pytest.raises(Ended, match=r"OSError|PermissionError"):
        running.run("import greets\nopen(greets.__file__, 'w').write('changed')", "")
    assert Path(found.packages, "greets/__init__.py").read_text() == GREETS["greets/__init__.py"]
    with sandbox.program() as running, pytest.raises(Ended, match="No module named 'greets'"):
        running.run("import greets", "")  # a set that declares nothing has nothing
    with found.interpreter("witness") as witness:  # which holds what is expected
        said = witness.exchange({"tests": "import greets", "support": "", "remote": [], "errors": []})
    assert "No module named" in said["reason"]


def test_what_was_installed_stays_names_its_content_and_is_refused_once_changed(index, tmp_path, monkeypatch):
    wheel(index, "greets", GREETS)
    first = installed(("greets",))
    wheel(index, "greets", GREETS | {"greets/word.py": "WORD = 'bye'\n"}, version="1.1")
    for where in ("greets/word.py", "more.py", "../lock.json"):
        changed = Path(first.folder, where)
        before = changed.read_text() if changed.exists() else None
        changed.write_text(json.dumps({"versions": []}) if where.endswith("json") else "WORD = 'bye'\n")
        installed.cache_clear()
        with pytest.raises(NoPackages, match="remove it, and it is made again"):
            installed(("greets",))
        changed.unlink() if before is None else changed.write_text(before)
    installed.cache_clear()
    assert installed(("greets",)) == first
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    installed.cache_clear()
    second = installed(("greets",))
    assert (first.versions, second.versions) == (("greets==1.0",), ("greets==1.1",))
    assert first.sha256 != second.sha256
    assert second.identity == f"packages:greets==1.1:{second.sha256[:12]}"


def test_nothing_of_a_source_package_runs(index, tmp_path):
    marker = tmp_path / "ran"
    source(
        index, "evil", f"open({str(marker)!r}, 'w')\nfrom setuptools import setup\nsetup(name='evil', version='1.0')"
    )
    with pytest.raises(NoPackages, match="pip installs no wheels of evil here"):
        installed(("evil",))
    assert not marker.exists()
    assert os.listdir(tmp_path / "cache/qualgate/packages") == []


def test_nothing_of_a_wheel_runs_outside_the_sandbox(index, tmp_path):
    if (sandbox := Sandbox.best()) is None:
        pytest.skip(str(probe()))
    marker = tmp_path / "ran"
    text = f"open({str(marker)!r}, 'w')\n"
    wheel(index, "evil", {"evil.pth": f"import os; {text}", "evil.py": text, "sitecustomize.py": text})
    with pytest.raises(NoPackages, match="evil is installed, and does not work in the sandbox"):
        equipped(sandbox, ["evil"])
    assert not marker.exists()


@pytest.mark.parametrize(
    "text",
    ["", "../greets", "./greets", "-r x", "--index-url=x", "greets @ file:///x", "a b", "greets;x", "a[b]", 5, "é"],
)
def test_what_is_no_name_with_versions_is_refused(text):
    assert "is no package's name" in (fault(text) or "")


@pytest.mark.parametrize("text", ["numpy", "numpy==2.3.4", "pandas >= 2, < 3", "scikit-learn~=1.5", "a!=1.*"])
def test_names_with_versions_are_read(text):
    assert fault(text) is None


def test_what_pip_says_of_its_index_is_not_shown(index, monkeypatch):
    told = "WARNING: x\nERROR: no access to https://user:secret@127.0.0.1/simple/greets\n"
    said = subprocess.CompletedProcess([], 1, "", told)
    monkeypatch.setattr(packages, "_python", lambda *arguments: said)
    with pytest.raises(NoPackages, match="no access to …") as found:
        installed(("greets",))
    assert "secret" not in str(found.value)
