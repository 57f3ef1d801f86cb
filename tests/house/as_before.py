"""`python -m tests.house.as_before --old SITE`: does this checkout say what another version says, byte for byte?

SITE is a folder into which the other version was installed (`pip install --no-deps --target SITE WHEEL`). Both judge
the demo's store, and 100 seeded pairs and fours of score files with faults in some; help texts are compared
for every command that the other version has. What differs is printed and, with --keep, left as files to look at.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.house.imports import ROOT
from tests.house.score_files import write_gates

FORMATS = ("terminal", "json", "markdown", "html", "junit", "sarif", "github", "gitlab", "annotations")
# Runs in a process of the version that is asked: command lines in, exit codes and bytes out.
_ASKED = r"""
import contextlib, io, json, os, shutil, sys
from pathlib import Path
os.environ.update(COLUMNS="100", NO_COLOR="1", TERM="dumb")
from qualgate.cli import main
asked, answered = sys.argv[1:3]
answers = []
for command in json.load(open(asked)):
    for origin, place in command["restore"]:
        for path in Path(place).parent.glob(Path(place).name + "*"):
            path.unlink() if path.is_file() else shutil.rmtree(path)
        shutil.copy(origin, place)
    os.chdir(command["cwd"])
    out, err, code = io.StringIO(), io.StringIO(), 0
    sys.argv[:] = ["qualgate", *command["args"]]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as left:
            code = left.code
    written = {p: Path(p).read_bytes().decode("utf-8", "replace") for p in command["files"] if Path(p).is_file()}
    answers.append({"exit": code, "out": out.getvalue(), "err": err.getvalue(), "files": written})
json.dump(answers, open(answered, "w"))
"""
_COMMANDS = r"""
import json, sys, typer
from qualgate.cli import app
def walk(command, path):
    yield path
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        yield from walk(inner, [*path, name])
print(json.dumps(list(walk(typer.main.get_command(app), []))))
"""


def _python(site: Path | None, *arguments: str, cwd: Path) -> str:
    """What a Python prints that finds the version of this site first; None: this checkout's, as installed."""
    environment = dict(os.environ) | ({"PYTHONPATH": str(site)} if site else {})
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode not in (0, 10, 11, 12):
        raise SystemExit(f"{arguments[:3]} ended with {done.returncode}")
    return done.stdout


def _asked(site: Path | None, commands: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    asked, answered = folder / "asked.json", folder / "answered.json"
    asked.write_text(json.dumps(commands), encoding="utf-8")
    _python(site, "-c", _ASKED, str(asked), str(answered), cwd=folder)
    return json.loads(answered.read_text(encoding="utf-8"))


def _command(cwd: Path, *args: str, restore: tuple[tuple[Path, Path], ...] = (), files: tuple[str, ...] = ()) -> Any:
    return {
        "cwd": str(cwd), "args": list(args), "files": list(files),
        "restore": [[str(origin), str(place)] for origin, place in restore],
    }  # fmt: skip


def _of_a_store(folder: Path, kept: Path, run: str) -> Iterator[dict[str, Any]]:
    """Every question that a stored run can be asked. kept: the store as the run left it."""
    store = folder / "qualgate.db"
    url, again = f"sqlite:///{store}", ((kept, store),)
    for form in FORMATS:
        yield _command(folder, "report", "--store", url, "--run", run, "--format", form, restore=again)
        yield _command(folder, "gate", "--store", url, "--format", form, restore=again)
    yield _command(folder, "gate", "gate.yaml", "--peers", restore=again)
    yield _command(folder, "gate", "gate.yaml", "--peers", "--json", restore=again)
    yield _command(folder, "plan", "gate.yaml", "--json", restore=again)
    yield _command(folder, "drift", "--store", url, "--json", restore=again)
    yield _command(folder, "rescore", "--store", url, "--json", restore=again)
    yield _command(folder, "report", "--store", url, "--run", "no-such-run", restore=again)


def _made(site: Path, folder: Path) -> list[dict[str, Any]]:
    """The run that is asked about, made by the other version, and the questions."""
    kept = folder / "kept"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "qualgate" / "refmodel" / "demo.yaml", folder / "gate.yaml")
    if not kept.exists():
        print("running the demo ...", file=sys.stderr)
        _python(site, "-m", "qualgate", "run", "gate.yaml", "--json", cwd=folder)
        with closing(sqlite3.connect(folder / "qualgate.db")) as store:
            store.execute("VACUUM INTO ?", (str(kept),))
    with closing(sqlite3.connect(kept)) as store:
        (run,) = store.execute("SELECT run_id FROM runs").fetchone()
    return list(_of_a_store(folder, kept, run))


def _all(site: Path, folder: Path, runs: Path) -> list[dict[str, Any]]:
    commands = [_command(folder, *path, "--help") for path in json.loads(_python(site, "-c", _COMMANDS, cwd=folder))]
    commands += [_command(folder, *line.split()) for line in (
        "config metrics", "config schema", "evalset list", "report --schema", "score", "gate", "nothing",
        "run none.yaml",
    )]  # fmt: skip
    gates = folder / "gates"
    gates.mkdir()
    for number, arguments in enumerate(write_gates(gates, 100)):
        for form in ("json", FORMATS[number % len(FORMATS)]):
            commands.append(_command(gates, "gate", *arguments, "--format", form))
    return [*commands, *_made(site, runs)]


def main() -> int:
    """Print how many answers were compared and each that differs; 1 where one does."""
    parser = argparse.ArgumentParser(prog="python -m tests.house.as_before", description=__doc__)
    parser.add_argument("--old", type=Path, required=True, metavar="SITE")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave both sides of what differs there")
    parser.add_argument("--runs", type=Path, metavar="FOLDER", help="keep the run there, or take that kept there")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = (asked.runs or folder / "runs").resolve()
        commands = _all(asked.old.resolve(), folder, runs)
        before, after = (_asked(site, commands, folder) for site in (asked.old.resolve(), None))
    differing = [number for number, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]]
    for number in differing:
        parts = [part for part in before[number] if before[number][part] != after[number][part]]
        print(f"{' '.join(commands[number]['args'])}: {', '.join(parts)}")
        if asked.keep is not None:
            for side, answers in (("old", before), ("new", after)):
                place = asked.keep / f"{number:03}.{side}"
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text("".join(f"== {part}\n{text}\n" for part, text in answers[number].items()))
    exits = Counter(answer["exit"] for answer in before)
    print(f"{len(commands)} command lines compared (exit codes {dict(sorted(exits.items()))}): {len(differing)} differ")
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
