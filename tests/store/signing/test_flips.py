"""A thousand changed bytes: of the folder, the attestation and the policy, and values of the store. None passes."""

from __future__ import annotations

import math
import random
import shutil
from collections import Counter

import pytest
from sqlalchemy import text

from qualgate.errors import QualgateError
from qualgate.store import audit
from qualgate.store.database import open_store
from qualgate.store.signing.keys import public_keys
from tests.command_line import qualgate
from tests.store.tampering import tamper

# No verdict rests on these: words and order for people, a digest that only a repeated job meets, and rows' numbers.
FREE = {("evalsets", "description"), ("evalsets", "position"), ("units", "answer_sha256")}
NUMBERS = ("unit_id", "sealed_id", "verdict_id", "decision_id")
SEED = 20261201
TABLES = ("runs", "evalsets", "cases", "arms", "units", "scores", "sealed", "verdicts", "decisions")


def flipped(whole: bytes, rng: random.Random) -> bytes:
    changed = bytearray(whole)
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


@pytest.mark.proof
def test_no_changed_byte_of_folder_attestation_or_policy_is_verified(signed):
    made = qualgate("attest", "same", "--folder", "copy", "--out", "att.json", cwd=signed, QUALGATE_KEY="ci")
    assert made.returncode == 0
    words = ("verify", "copy", "--attestation", "att.json", "--policy", "gate.yaml", "--key", "ci.pub", "--json")
    rng, whole = random.Random(SEED), qualgate(*words, cwd=signed).stdout
    files = sorted(path for path in (signed / "copy").iterdir() if path.stat().st_size)
    for number in range(700):
        path = (signed / "att.json", signed / "gate.yaml", *files)[number % (2 + len(files))]
        before = path.read_bytes()
        path.write_bytes(flipped(before, rng))
        found = qualgate(*words, cwd=signed)
        path.write_bytes(before)
        if path.name != "gate.yaml":
            assert found.returncode == 14, (path.name, number)
        else:  # a byte of a comment, a path or the store's name changes no rule
            assert found.returncode in (14, 64) or found.stdout == whole, number


@pytest.mark.proof
def test_no_changed_value_of_the_store_passes_the_audit(signed, tmp_path):
    keys, rng, tried = public_keys([signed / "ci.pub"]), random.Random(SEED), Counter()
    with open_store(f"sqlite:///{signed / 'qualgate.db'}") as store, store.read() as connection:
        assert list(audit.broken(store, keys, None)) == []
        columns = [(table, column[1]) for table in TABLES
                   for column in connection.execute(text(f"pragma table_info({table})"))]  # fmt: skip
        columns = [one for one in columns if one not in FREE and one[1] not in NUMBERS]
    while sum(tried.values()) < 300:
        table, column = rng.choice(columns)
        shutil.copy(signed / "qualgate.db", tmp_path / "changed.db")
        with open_store(f"sqlite:///{tmp_path / 'changed.db'}") as store:
            with store.read() as connection:
                held = connection.execute(text(f'select rowid, "{column}" from {table} where "{column}" is not null'))
                rows = [row for row in held if row[1] not in ("", b"")]
            if not rows:
                continue
            row, value = rng.choice(rows)
            changed = _other(value, rng)
            tamper(store, f'update {table} set "{column}" = :value where rowid = :row', value=changed, row=row)
            assert _faults(store, keys), (table, column, value, changed)
            tried[table] += 1
    assert len(tried) >= 6


def _faults(store, keys) -> list[str]:
    try:
        return list(audit.broken(store, keys, None))
    except QualgateError as error:  # a crash would not be the audit's finding
        return [str(error)]


def _other(value, rng: random.Random):
    if isinstance(value, str):
        return flipped(value.encode(), rng).decode("utf-8", "replace").replace("\0", "\ufffd")
    if isinstance(value, bytes):
        return flipped(value, rng)
    return value ^ 1 if isinstance(value, int) else math.nextafter(value, math.inf)
