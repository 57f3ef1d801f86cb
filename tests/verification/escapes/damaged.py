"""A store whose bytes were damaged: which column of which table, how, and what each command that reads it says then."""

from __future__ import annotations

import io
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from qualgate.cli import main
from qualgate.gate.verdict import decide_plain
from qualgate.records import Policy, Rule
from qualgate.store import decisions, queries, runs, scorings
from qualgate.store.database import open_store
from qualgate.store.schema import metadata
from tests.drafts import with_drafts
from tests.store.made import make_plan, make_results

WRONG = {"int8": 0.0, "int2-g32": 0.5}
POLICY = Policy(rules=(Rule(metric="exact_match", max_drop=0.12),))

# From the value that is there (NULL, a number, text, bytes) to the one that stands there then.
KINDS: dict[str, Callable[[Any], Any]] = {
    "NULL": lambda value: None,
    "bytes where text is": lambda value: b"\x00\xff",
    "text that is no UTF-8": lambda value: Broken(b"ab\xff\xfe\x80"),
    "a number where text is": lambda value: 7,
    "text where a number is": lambda value: "approve",
    "infinity": lambda value: float("inf"),
    "a huge number": lambda value: 2**62,
    "a negative number": lambda value: -(2**62),
    "empty": lambda value: b"" if isinstance(value, bytes) else "",
    "cut in half": lambda value: value[: len(value) // 2] if isinstance(value, str | bytes) else None,
    "one more byte": lambda value: value + (b"\x00" if isinstance(value, bytes) else "\x00"),
    "other JSON": lambda value: '{"word": ["approve"], "rules": 1e999}',
    "a list of JSON": lambda value: "[" * 3 + "NaN" + "]" * 3,
    "JSON without an end": lambda value: "[" * 100_000,
    "JSON of digits": lambda value: "9" * 5_000,
    "a lone half of a letter": lambda value: '"\\ud800"',
}


@dataclass(frozen=True)
class Broken:
    """Bytes that stand where text does."""

    content: bytes


@dataclass(frozen=True)
class Damage:
    """To the first and to the last row of a table, in one column."""

    table: str
    column: str
    kind: str

    @property
    def name(self) -> str:
        return f"{self.table}.{self.column}: {self.kind}"


def damages() -> Iterator[Damage]:
    for table in metadata.sorted_tables:
        for column in table.columns:
            yield from (Damage(table.name, column.name, kind) for kind in KINDS)


def make_store(path: Path) -> str:
    """A run with an approved variant that speculates and a blocked one, a second scoring, and a decision of a person.
    Its id."""
    with open_store(f"sqlite:///{path}") as store:
        plan = make_plan(cases=16, wrong=WRONG, families=("arithmetic", "json_extract"), policy=POLICY)
        run = runs.begin(store, plan).run_id
        for result, scores in make_results(plan, WRONG):
            runs.record(store, run, with_drafts(result) if result.arm == "int8" else result, scores)
        runs.finish(store, run, decide_plain(runs.evidence(store, run), POLICY), complete=True)
        last = scorings.read(store, run)
        scorings.add(store, run, 0, {one.unit_id: one.scores for one in last.answers})
        judged = decide_plain(runs.evidence(store, run), POLICY)
        assert [one.word for one in judged] == ["approve", "block"]
        runs.add_verdicts(store, run, judged, POLICY)
        seen = queries.run_summary(store, run).verdicts[0]
        decisions.append(
            store, run, "int8", decisions.Said(action="block", name="Ada", reason="later"), decisions.Seen(seen.sha256)
        )
    with closing(sqlite3.connect(path)) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")  # damage asks no trigger, and no constraint
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = replace(sql, ' NOT NULL', '') WHERE type = 'table'")
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return run


def damaged(made: Path, path: Path, damage: Damage) -> bool:
    """A copy of the store with it. False where the table is empty, or the value is no other one then."""
    for left in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        left.unlink(missing_ok=True)  # whoever may still have the copy before open keeps that one
    shutil.copy(made, path)
    connection = sqlite3.connect(path)
    try:
        connection.text_factory = lambda content: content.decode("utf-8", "surrogateescape")
        key = "unit_id, step" if damage.table == "draft_steps" else "rowid"  # it has none
        for way in ("ASC", "DESC"):
            order = ", ".join(f"{name} {way}" for name in key.split(", "))
            row = f"({key}) = (SELECT {key} FROM {damage.table} ORDER BY {order} LIMIT 1)"
            found = connection.execute(f"SELECT {damage.column} FROM {damage.table} WHERE {row}").fetchone()
            if found is None:
                return False
            try:
                value = KINDS[damage.kind](found[0])
            except TypeError:  # a kind of damage that this value cannot have
                return False
            asked, given = ("CAST(? AS TEXT)", value.content) if isinstance(value, Broken) else ("?", value)
            try:
                connection.execute(f"UPDATE {damage.table} SET {damage.column} = {asked} WHERE {row}", (given,))
            except sqlite3.Error:  # a key that would stand there twice, or no rowid
                return False
        connection.commit()
        changed = connection.execute(f"SELECT {damage.column} FROM {damage.table} WHERE {row}").fetchone()
        return changed is None or changed[0] != found[0] or type(changed[0]) is not type(found[0])
    finally:
        connection.close()


def commands(url: str, run: str) -> dict[str, tuple[str, ...]]:
    """Every one that reads a store, by what it is called here."""
    store = ("--store", url)
    return {
        "report": ("report", *store),
        "report --run": ("report", *store, "--run", run),
        **{f"report {form}": ("report", *store, "--format", form) for form in ("json", "html", "markdown", "junit")},
        "gate": ("gate", *store),
        "gate --peers": ("gate", *store, "--run", run, "--peers", "--json"),
        "rescore": ("rescore", *store, "--dry-run"),
        "drift": ("drift", *store, "--json"),
        "runs": ("runs", *store),
        "flips": ("flips", run, "int2-g32", *store),
        "diff": ("diff", run, run, *store),
        "db upgrade": ("db", "upgrade", *store),
    }


def called(*arguments: str) -> tuple[int, str]:
    """Exit code of a command in this process, and what it wrote to stdout. What it does not catch is not caught."""
    out, before = io.StringIO(), sys.argv
    sys.argv = ["qualgate", *arguments]
    try:
        with redirect_stdout(out), redirect_stderr(io.StringIO()):
            main()
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue()
    finally:
        sys.argv = before
    raise AssertionError("a command ends with an exit code")


_ATTACKS = Path(__file__).parent / "programs" / "store_attacks.yaml"
ATTACKS: dict[str, list[str]] = yaml.safe_load(_ATTACKS.read_text(encoding="utf-8"))


def attacked(made: Path, path: Path, statements: Sequence[str]) -> None:
    """A copy of the store after these, each of which must change something."""
    shutil.copy(made, path)
    connection = sqlite3.connect(path)
    try:
        for statement in statements:
            assert connection.execute(statement).rowcount > 0, statement
        connection.commit()
    finally:
        connection.close()
