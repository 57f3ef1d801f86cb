"""Whatever the locale says, text of any script is printed, files are UTF-8, and the exit code is the command's own."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from qualgate.store import queries
from qualgate.store.database import open_store
from tests.command_line import in_a_process, qualgate
from tests.store.made import make_plan, make_run

WRITTEN = "größe → 日本語 🎉"
GATE = """\
version: 1   # {written}
baseline: {{model: reference}}
variants: {{variant: {{quantize: int8}}}}
evalsets: [./straße.yaml]
gate: {{identity: ids, rules: [{{metric: exact_match, max_drop: 0.02, where: {{tag: grün}}}}]}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("größe")
    (made / "gäte.yaml").write_text(GATE.format(written=WRITTEN), encoding="utf-8")
    (made / "fäult.yaml").write_text(GATE.format(written=WRITTEN) + f"{WRITTEN}: 1\n", encoding="utf-8")
    (made / "set.yaml").write_text(
        f"name: set\nversion: 1\ndescription: {WRITTEN}\nmetrics: [exact_match]\n", encoding="utf-8"
    )
    asked = {"messages": [{"role": "user", "content": WRITTEN}], "max_new_tokens": 4, "answer": WRITTEN}
    (made / "set.jsonl").write_text(json.dumps({"id": "fäll", **asked}, ensure_ascii=False), encoding="utf-8")
    said = json.dumps({"id": "fäll", "text": f"{WRITTEN}."}, ensure_ascii=False)
    (made / "said.jsonl").write_text(said, encoding="utf-8")
    (made / "array.json").write_text(f'["{WRITTEN}"]', encoding="utf-8")
    with open_store(f"sqlite:///{made / 'q.db'}") as store:
        make_run(store, make_plan(cases=8))
    return made


SECONDS = re.compile(r"\d+ s\b")  # of a progress line
STORE = ("--store", "sqlite:///q.db")
COMMANDS: list[tuple[str, ...]] = [
    ("--help",), ("run", "--help"), ("gate", "--help"), ("config", "check", "gäte.yaml"),
    ("config", "check", "fäult.yaml"), ("config", "check", "größe.yaml"), ("config", "metrics"), ("config", "schema"),
    ("evalset", "check", "set.yaml"), ("evalset", "list"), ("inspect", "./größe"), ("inspect", "reference"),
    ("score", "set.jsonl", "said.jsonl", "--scorer", "exact_match", "--json", "röws.jsonl"),
    ("score", "set.jsonl", "array.json", "--scorer", "exact_match"), ("runs", *STORE), ("runs", "--json", *STORE),
    ("report", *STORE), ("report", "--json", *STORE), ("report", "--schema"), ("gate", *STORE), ("drift", *STORE),
    *(("report", "--format", form, *STORE)
      for form in ("markdown", "html", "junit", "github", "annotations", "gitlab", "sarif")),
    ("report", "--format", "html", "--out", "repört.html", *STORE),
    ("run", "--größe"), ("dashboard", "--port", "größe"), ("rescore", "--dry-run", *STORE),
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_says_the_same_whatever_the_encoding_of_its_output(command, folder):
    done = {name: qualgate(*command, cwd=folder, encoding=name) for name in ("utf-8", "ascii")}
    assert {name: one.returncode for name, one in done.items()} == dict.fromkeys(done, done["utf-8"].returncode)
    said, plainly = (
        [SECONDS.sub("some seconds", text) for text in (done[name].stdout, done[name].stderr)]
        for name in ("utf-8", "ascii")
    )
    assert plainly == said
    assert "Traceback" not in "".join(one.stderr for one in done.values())
    for name in {"röws.jsonl", "repört.html"} & set(command):
        (folder / name).read_text(encoding="utf-8")  # as the plain locale wrote it, the last


def test_flips_of_any_script_are_shown(folder):
    with open_store(f"sqlite:///{folder / 'q.db'}", create=False) as store:
        run = queries.latest_run(store)
    done = qualgate("flips", run, "int2-g32", *STORE, cwd=folder, encoding="ascii")
    assert (done.returncode, "»" in done.stdout) == (0, True)


@pytest.mark.parametrize("command", [("config", "check", "fäult.yaml"), ("report", *STORE)], ids=" ".join)
def test_a_process_without_a_locale_is_no_traceback(command: Sequence[str], folder):
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    done = in_a_process(*command, cwd=folder, **plain)
    assert (done.returncode, "Traceback" in done.stderr) == (64 if command[0] == "config" else 0, False), done.stderr
    assert ("unknown key" if command[0] == "config" else "–") in done.stdout + done.stderr
