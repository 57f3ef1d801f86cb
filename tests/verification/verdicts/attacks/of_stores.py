"""Attacks on a stored run by who can write its file: a variant that lost two fifths is to be approved after all."""

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
        "lost scores set right": edited(f"UPDATE scores SET value = 1, verdict = 1, error_type = '' WHERE {WRONG}"),
        "one lost score set right": edited(
            f"UPDATE scores SET value = 1 WHERE rowid = (SELECT min(rowid) FROM scores WHERE {WRONG})"),
        "lost scores null": edited(f"UPDATE scores SET value = NULL, error_type = 'timeout' WHERE {WRONG}"),
        "the baseline's scores wrong as well": edited(
            "UPDATE scores SET value = 0, verdict = 0 WHERE unit_id IN (SELECT unit_id FROM units WHERE arm = "
            f"'baseline' AND case_id IN {LOST_CASES})"),
        "scores of the baseline copied": edited(
            f"UPDATE scores SET value = {THEIRS.format('value')}, verdict = {THEIRS.format('verdict')} "
            "WHERE unit_id IN (SELECT unit_id FROM units WHERE arm = 'variant')"),
        "lost scores deleted": edited(f"DELETE FROM scores WHERE {WRONG}"),
        "lost cases deleted on both sides": edited(
            f"CREATE TEMP TABLE gone AS SELECT DISTINCT case_id FROM units WHERE case_id IN {LOST_CASES}",
            "DELETE FROM scores WHERE unit_id IN (SELECT unit_id FROM units WHERE case_id IN (SELECT * FROM gone))",
            "DELETE FROM units WHERE case_id IN (SELECT * FROM gone)"),
        "arms exchanged in the units": edited(
            "UPDATE units SET arm = 'x' WHERE arm = 'variant'", "UPDATE units SET arm = 'variant' WHERE arm = "
            "'baseline'", "UPDATE units SET arm = 'baseline' WHERE arm = 'x'"),
        "lost units pending": edited("UPDATE units SET status = 'pending' WHERE case_id IN " + LOST_CASES),
        "lost units settled": edited("UPDATE units SET status = 'settled' WHERE case_id IN " + LOST_CASES),
        "lost units of another evalset": edited("UPDATE units SET evalset = 'void' WHERE case_id IN " + LOST_CASES),
        "hashes of units emptied": edited("UPDATE units SET sha256 = NULL, answer_sha256 = NULL"),
        "hashes emptied, scores set right": edited(
            "UPDATE units SET sha256 = '', answer_sha256 = ''",
            f"UPDATE scores SET value = 1, verdict = 1 WHERE {WRONG}"),
        "clusters that nobody planned": edited("UPDATE units SET cluster = 'one'"),
        "case hashes of one side": edited("UPDATE units SET case_hash = (SELECT min(case_hash) FROM cases) "
                                          "WHERE arm = 'variant'"),
        "bodies of cases": edited("UPDATE cases SET body_json = '{}'"),
        "times of one side": edited("UPDATE units SET e2e = 0.001 WHERE arm = 'variant'"),
        "tokens of one side": edited("UPDATE units SET token_ids = x'' WHERE arm = 'variant'"),
        "texts of one side": edited("UPDATE units SET text = 'right' WHERE arm = 'variant'"),
        "ends of one side": edited("UPDATE units SET finish_reason = 'length' WHERE arm = 'baseline'"),
        "errors on the lost ones": edited("UPDATE units SET status = 'error', error = 'OOM' WHERE case_id IN "
                                          + LOST_CASES),
        "a laxer policy": edited("UPDATE runs SET policy_json = replace(policy_json, '0.12', '0.19')"),
        "an alpha of a half": edited("UPDATE runs SET policy_json = replace(policy_json, '0.05', '0.49')"),
        "a policy without rules": edited("UPDATE runs SET policy_json = '{\"rules\": []}'"),
        "an advisory rule": edited("UPDATE runs SET policy_json = replace(policy_json, 'critical', 'advisory')"),
        "the gate file's text": edited("UPDATE runs SET gate_file = 'version: 1'"),
        "a run's seal": edited("UPDATE runs SET sha256 = ''"),
        "a closed list's seal": edited("UPDATE runs SET expected_sha256 = ''"),
        "a run that is not done": edited("UPDATE runs SET status = 'running'"),
        "the metrics of a set": edited("UPDATE evalsets SET metrics_json = '[]'"),
        "a set's version": edited("UPDATE evalsets SET version = '9'"),
        "a set's hash": edited("UPDATE evalsets SET sha256 = ''"),
        "what the variant was": edited("UPDATE arms SET observed_json = (SELECT observed_json FROM arms WHERE "
                                       "position = 0)"),
        "what the variant was, unknown": edited("UPDATE arms SET observed_json = NULL WHERE position > 0"),
        "the order of arms": edited("UPDATE arms SET position = 1 - position"),
        "an arm's recipe": edited("UPDATE arms SET spec_json = '{}'"),
        "scorers' versions": edited("UPDATE scores SET scorer = 'exact_match/9'"),
        "scores of a scoring nobody made": edited(
            f"{AGAIN} WHERE {WRONG}"),
        "a scoring without a seal": edited(
            "INSERT INTO scorings SELECT run_id, 1, created_at, '{}', '' FROM runs",
            AGAIN),
        "a stopping that nobody made": edited(
            "INSERT INTO stoppings SELECT run_id, 'variant', 1, 20, 'approve', '', '', created_at, '' FROM runs"),
        "a verdict of approval written in": edited("UPDATE verdicts SET word = 'approve'"),
        "a verdict's body": edited("UPDATE verdicts SET body_json = replace(body_json, 'block', 'approve')"),
        "no units": edited("DELETE FROM scores", "DELETE FROM units"),
        "no arms": edited("DELETE FROM arms"),
        "no variant": edited("DELETE FROM arms WHERE position > 0"),
        "no sets": edited("DELETE FROM evalsets"),
        "no table of scores": edited("DROP TABLE scores"),
        "a revision of the future": edited("UPDATE alembic_version SET version_num = '9999'"),
        "no revision": edited("DELETE FROM alembic_version"),
        "a score in words": edited(f"UPDATE scores SET value = 'right' WHERE {WRONG}"),
        "scores above one": edited(f"UPDATE scores SET value = 7 WHERE {WRONG}"),
        "the file cut": damaged(lambda c: c[: len(c) // 2]),
        "the file's head lost": damaged(lambda c: b"\0" * 100 + c[100:]),
        "pages of zeros": damaged(lambda c: c[:40960] + b"\0" * 8192 + c[49152:]),
        "an empty file": damaged(lambda c: b""),
        "a text": damaged(lambda c: b"store"),
    },
}  # fmt: skip
