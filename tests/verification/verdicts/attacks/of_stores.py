"""Attacks on a stored run by who can write its file: a variant that lost two fifths is to be approved after all.

Of several tables, rows or pages at once: what single columns and rows are damaged to is `tests.verification.escapes`.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from qualgate.records import Policy, Rule
from tests.verification.verdicts.attacks.scene import Ask, Code, asked

LOST = {"variant": 0.4}


@lru_cache(maxsize=2)
def _made(share: float) -> bytes:
    """The file of a store with one run: a sound variant, or one that lost this share."""
    from qualgate.store.database import open_store
    from tests.store.made import make_plan, make_run

    wrong = {"variant": share}
    policy = Policy(rules=(Rule(metric="exact_match", max_drop=0.12),))
    with tempfile.TemporaryDirectory() as name:
        with open_store(f"sqlite:///{name}/q.db") as store:
            make_run(store, make_plan(cases=60, wrong=wrong, policy=policy), wrong)
        connection = sqlite3.connect(f"{name}/q.db")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        return Path(name, "q.db").read_bytes()


def stored(content: bytes, folder: Path) -> Code:
    """The exit code of `qualgate gate --store` over a store of these bytes."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "q.db").write_bytes(content)
    return asked(store=f"sqlite:///{folder}/q.db")


def edited(*statements: str) -> Ask:
    """The lost run's store, after these statements, which must change something."""

    def ask(folder: Path) -> Code:
        content = changed(LOST["variant"], folder, *statements)
        return stored(content, folder)

    return ask


def changed(share: float, folder: Path, *statements: str) -> bytes:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = folder / "edit.db"
    path.write_bytes(_made(share))
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA foreign_keys = OFF")
    locks = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
    for (name,) in connection.execute(locks).fetchall():  # what keeps tables append-only
        connection.execute(f"DROP TRIGGER {name}")
    done = sum(max(0, connection.execute(one).rowcount) for one in statements)
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    if not done and not any(one.startswith("DROP") for one in statements):
        raise AssertionError(f"nothing was changed by {statements}")
    return path.read_bytes()


def damaged(change: Callable[[bytes], bytes]) -> Ask:
    return lambda folder: stored(change(_made(LOST["variant"])), folder)


WRONG = "unit_id IN (SELECT unit_id FROM units WHERE arm = 'variant') AND value = 0"
THEIRS = (
    "(SELECT s.{0} FROM scores s JOIN units u ON u.unit_id = s.unit_id JOIN units o ON o.case_id = u.case_id "
    "WHERE o.unit_id = scores.unit_id AND u.arm = 'baseline' AND s.metric = scores.metric)"
)
AGAIN = (
    "INSERT INTO scores (unit_id, metric, scoring, value, verdict, error_type, extracted, reason, scorer) "
    "SELECT unit_id, metric, 1, 1, 1, '', extracted, '', scorer FROM scores"
)
LOST_CASES = f"(SELECT case_id FROM units WHERE unit_id IN (SELECT unit_id FROM scores WHERE {WRONG}))"

GROUPS = {
    "stores edited by hand": {
        "the baseline's scores wrong as well": edited(
            "UPDATE scores SET value = 0, verdict = 0 WHERE unit_id IN (SELECT unit_id FROM units WHERE arm = "
            f"'baseline' AND case_id IN {LOST_CASES})"),
        "scores of the baseline copied": edited(
            f"UPDATE scores SET value = {THEIRS.format('value')}, verdict = {THEIRS.format('verdict')} "
            "WHERE unit_id IN (SELECT unit_id FROM units WHERE arm = 'variant')"),
        "lost cases deleted on both sides": edited(
            f"CREATE TEMP TABLE gone AS SELECT DISTINCT case_id FROM units WHERE case_id IN {LOST_CASES}",
            "DELETE FROM scores WHERE unit_id IN (SELECT unit_id FROM units WHERE case_id IN (SELECT * FROM gone))",
            "DELETE FROM units WHERE case_id IN (SELECT * FROM gone)"),
        "arms exchanged in the units": edited(
            "UPDATE units SET arm = 'x' WHERE arm = 'variant'", "UPDATE units SET arm = 'variant' WHERE arm = "
            "'baseline'", "UPDATE units SET arm = 'baseline' WHERE arm = 'x'"),
        "hashes emptied, scores set right": edited(
            "UPDATE units SET sha256 = '', answer_sha256 = ''",
            f"UPDATE scores SET value = 1, verdict = 1 WHERE {WRONG}"),
        "scores of a scoring nobody made": edited(f"{AGAIN} WHERE {WRONG}"),
        "a scoring without a seal": edited(
            "INSERT INTO sealed (kind, run_id, name, part, at, body_json, key, sha256) "
            "SELECT 'scoring', run_id, '', '1', created_at, '{}', '', '' FROM runs", AGAIN),
        "a stopping that nobody made": edited(
            "INSERT INTO sealed (kind, run_id, name, part, at, body_json, key, sha256) "
            "SELECT 'stopping', run_id, '', 'variant', created_at, '{\"look\":1,\"seen\":20,\"word\":\"approve\","
            "\"order\":\"\",\"policy\":' || policy_json || '}', '', '' FROM runs"),
        "no units": edited("DELETE FROM scores", "DELETE FROM units"),
        "no arms": edited("DELETE FROM arms"),
        "no variant": edited("DELETE FROM arms WHERE position > 0"),
        "no sets": edited("DELETE FROM evalsets"),
        "no table of scores": edited("DROP TABLE scores"),
        "a revision of the future": edited("UPDATE alembic_version SET version_num = '9999'"),
        "no revision": edited("DELETE FROM alembic_version"),
        "pages of zeros": damaged(lambda c: c[:40960] + b"\0" * 8192 + c[49152:]),
        "an empty file": damaged(lambda c: b""),
        "a text": damaged(lambda c: b"store"),
    },
}  # fmt: skip
