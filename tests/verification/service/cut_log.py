"""A machine that loses power, as a file sees it: what was not flushed may be missing from some byte on, or be zeros.

People decide on a run, one decision after the other; how long the log was when each was acknowledged is noted. Then the
file is opened beside its log cut anywhere: each decision that was acknowledged before the cut must be there.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

from sqlalchemy import text

from qualgate.store import decisions
from qualgate.store.database import Store, open_store
from tests.store.made import make_plan, make_run

DECISIONS, SECTOR = 30, 512  # bytes


def cut_log(seed: int, cuts: int) -> dict[str, int]:
    """lost: acknowledged decisions that are missing; doubled: those that are there twice; otherwise: files that are not
    whole, or whose chain of decisions does not hold."""
    rng, found = random.Random(f"R11 {seed}"), {"lost": 0, "doubled": 0, "otherwise": 0}
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "q.db"
        log = file.with_name("q.db-wal")
        with open_store(f"sqlite:///{file}") as store:
            run_id = make_run(store, make_plan(cases=4, wrong={"int8": 0.0}))
        kept = file.read_bytes()  # closing took the log over
        acknowledged = list[tuple[int, str]]()
        with open_store(f"sqlite:///{file}") as store:
            [verdict], last = _verdicts(store), None
            for number in range(DECISIONS):
                last = decisions.append(
                    store,
                    run_id,
                    "int8",
                    decisions.Said(action="block", name="Ada", reason=f"look {number}"),
                    decisions.Seen(verdict, last),
                ).hash
                acknowledged.append((log.stat().st_size, last))
            body = log.read_bytes()
            assert file.read_bytes() == kept, "the log was taken over in between: its length says nothing"
        for _ in range(cuts):
            end = rng.randrange(len(body) + 1)
            zeros = rng.choice((0, min(SECTOR, end)))
            (cut := Path(name) / "cut").mkdir()
            (cut / "q.db").write_bytes(kept)
            (cut / "q.db-wal").write_bytes(body[: end - zeros] + bytes(zeros))
            _look(cut, [one for size, one in acknowledged if size <= end - zeros], found)
            shutil.rmtree(cut)
    return found


def _verdicts(store: Store) -> list[str]:
    with store.read() as connection:
        return list(connection.execute(text("SELECT sha256 FROM verdicts")).scalars())


def _look(cut: Path, wanted: list[str], found: dict[str, int]) -> None:
    with open_store(f"sqlite:///{cut / 'q.db'}", create=False) as store, store.read() as connection:
        whole = connection.execute(text("PRAGMA integrity_check")).scalars().all() == ["ok"]
        there = [one.hash for one in decisions.chain(connection)]
    found["otherwise"] += not whole
    found["lost"] += len(set(wanted) - set(there))
    found["doubled"] += len(there) - len(set(there))
