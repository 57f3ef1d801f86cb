"""Extras are those of pyproject.toml, and the command that adds one fits how this installation was made."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest

from qualgate.errors import extras

ROOT = Path(__file__).resolve().parents[2]
PIP = f"{sys.executable} -m pip install"


def test_extras_are_those_that_users_can_install():
    offered = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras.EXTRAS) == set(offered) - {"dev"}
    for extra, (package, _) in extras.EXTRAS.items():
        assert any(wanted.startswith(package) for wanted in offered[extra]), extra


GIT = {"vcs": "git", "commit_id": "c0ffee"}


@pytest.mark.parametrize(
    ("origin", "command", "newer"),
    [
        ({"url": "file://AT/my%20gate", "dir_info": {"editable": True}},
         "--constraint 'AT/my gate/constraints.txt' --editable 'AT/my gate[ray]'", "update AT/my gate, then: "),
        ({"url": "file://AT/my%20gate", "dir_info": {}},
         "--constraint 'AT/my gate/constraints.txt' 'AT/my gate[ray]'", "update AT/my gate, then: "),
        ({"url": "file://AT/my%20gate/dist/qualgate-0.1.0.whl", "archive_info": {}},
         "--constraint 'AT/my gate/constraints.txt' 'AT/my gate/dist/qualgate-0.1.0.whl[ray]'", "NEWER.whl"),
        ({"url": "file://AT/qualgate-0.1.0.whl", "archive_info": {}}, "'AT/qualgate-0.1.0.whl[ray]'", "NEWER.whl"),
        ({"url": "https://git.example.org/q", "vcs_info": GIT},
         "'qualgate[ray] @ git+https://git.example.org/q@c0ffee'", "'qualgate @ git+https://git.example.org/q'"),
    ],
)  # fmt: skip
def test_the_command_installs_from_where_this_installation_came(monkeypatch, tmp_path, origin, command, newer):
    (tmp_path / "my gate").mkdir()
    (tmp_path / "my gate" / "constraints.txt").touch()
    record = json.dumps(origin).replace("AT", str(tmp_path))
    monkeypatch.setattr(extras, "distribution", lambda name: Recorded(record))
    assert extras.install_command("ray") == f"{PIP} {command}".replace("AT", str(tmp_path))
    assert newer.replace("AT", str(tmp_path)) in extras.upgrade_advice()


class Recorded:
    """A distribution as its installer recorded where it came from."""

    def __init__(self, record: str | None) -> None:
        self.read_text = lambda name: record


@pytest.mark.parametrize("record", [None, "", "{", "[]", '{"url": 7}', '{"url": "file:///x", "vcs_info": 7}'])
def test_where_nothing_says_from_where_it_came_no_index_is_named(monkeypatch, tmp_path, record):
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "site-packages" / "qualgate" / "errors" / "extras.py"))
    monkeypatch.setattr(extras, "distribution", lambda name: Recorded(record))
    assert extras.needs("it", "ray").endswith("install the extra `ray` from where you installed qualgate")
    for said in (extras.needs("it", "ray"), extras.install_command("", "--no-deps"), extras.upgrade_advice()):
        assert "pip" not in said
        assert "from where you installed qualgate" in said


def test_without_pip_the_command_is_uv_s(monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    assert extras.pip_install("x") == f"uv pip install --python {sys.executable} x"
