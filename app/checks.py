"""Check runs' stored evidence in the background, and keep what came of it with its time.

A check reads the whole run: a tenth of a millisecond an answer, and 6 KB of memory. A large run is checked by a process
of its own, so that the pages of others stay fast and the memory is given back. After somebody wrote to the store, the
run's seal is computed again, and the evidence is read again if the seal is another one. `python -m qualgate_app.checks`
is that process; the store's address is in the environment, since it may hold a password.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import RLock, Thread

from qualgate.errors import Exit, InfrastructureError, IntegrityError, QualgateError
from qualgate.store import plain, runs, signatures
from qualgate.store.database import open_store
from qualgate.store.evidence_seal import evidence_seal
from qualgate.store.signing.keys import trusted_keys

STORE = "QUALGATE_STORE"  # in the environment: the store's URL
LOOKED_THROUGH = timedelta(minutes=10)  # after it a run is read again although its seal is the same
WAITED = 1.0  # s that a page waits for the check of a run that is not large
LARGE = 50_000  # answers of a run
MOST = 64  # runs whose last check is kept


@dataclass(frozen=True, slots=True)
class Check:
    """What came of a check."""

    seal: str  # of the evidence, computed before it was read
    faults: tuple[str, ...]
    at: str  # UTC text: when reading the evidence began
    written: object  # `Store.written` before the seal was computed: as long as it is this, nothing has changed


_LOCK = RLock()  # a check that ends at once is kept by the thread that began it
_KNOWN = dict[tuple[str, str], Check]()  # the last finished check of each run, the oldest first
_RUNNING = dict[tuple[str, str], Future[Check]]()
_CHECKS = ThreadPoolExecutor(2)


def look(url: str, run_id: str, written: object, opened: str, answers: int) -> tuple[Check | None, bool]:
    """Return the last finished check of a run (None if there is none), and whether it still holds: nobody wrote to the
    store since. If it does not, another one is begun.

    written: the store's `written` now. opened: UTC text, when this session first asked; an older check that others
    asked for is repeated in whole once somebody wrote. answers: number of the run's answers.
    """
    key = url, run_id
    with _LOCK:
        known = _KNOWN.get(key)
        fresh = known is not None and known.at > plain.stamp(datetime.now(UTC) - LOOKED_THROUGH)
        if known is not None and fresh and known.written == written:
            return known, True
        running = _RUNNING.get(key)
        if running is None:
            before = known if known is not None and fresh and not known.faults and known.at > opened else None
            running = _RUNNING[key] = _CHECKS.submit(_checked, url, run_id, written, before, answers > LARGE)
            running.add_done_callback(lambda done: _keep(key, done))
    if not wait([running], timeout=0 if answers > LARGE else WAITED).done:
        return known, False
    check = running.result()
    return check, check.written == written


def _keep(key: tuple[str, str], done: Future[Check]) -> None:
    with _LOCK:
        _RUNNING.pop(key, None)
        _KNOWN.pop(key, None)  # after a failed check nothing is known
        if not done.exception():
            _KNOWN[key] = done.result()
        while len(_KNOWN) > MOST:
            del _KNOWN[next(iter(_KNOWN))]


def _checked(url: str, run_id: str, written: object, before: Check | None, large: bool) -> Check:
    """Check a run. before: an earlier check, which holds if the seal is still the same."""
    at, known = plain.now(), before.seal if before else ""
    seal, faults = _by_process(url, run_id, known) if large else examined(url, run_id, known)
    return Check(seal, tuple(faults), before.at if before and before.seal == seal else at, written)


def examined(url: str, run_id: str, known: str) -> tuple[str, Sequence[str]]:
    """Return a run's seal and each fault of its evidence and signatures. known: the seal of evidence that was read and
    found whole, and is not read again if it still has it."""
    with open_store(url, create=False) as store:
        with store.read() as connection:
            seal = evidence_seal(connection, run_id)
        damage = () if seal == known else runs.evidence(store, run_id).integrity
        keys = trusted_keys()
        if damage or not keys:
            return seal, damage
        with store.read() as connection:
            return seal, [fault for _, fault in signatures.faults(connection, keys, run_id)]


def _by_process(url: str, run_id: str, known: str) -> tuple[str, Sequence[str]]:
    """Return what `examined` does, by a process of its own."""
    with subprocess.Popen(
        [sys.executable, "-m", "qualgate_app.checks", run_id, known],
        env={**os.environ, STORE: url},
        stdin=subprocess.PIPE,  # which ends with this process, and the other one with it
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        said = process.stdout.read()
    if process.returncode:
        kind = IntegrityError if process.returncode == Exit.INTEGRITY else InfrastructureError
        why = said.decode(errors="replace") or f"the process ended with {process.returncode}"
        raise kind(f"run {run_id} could not be checked: {why}")
    return tuple(json.loads(said))


def _main() -> int:
    Thread(target=end_with_input, daemon=True).start()
    if hasattr(os, "nice"):
        os.nice(5)  # who looks at a page comes first
    try:
        print(json.dumps(examined(os.environ[STORE], *sys.argv[1:3])), flush=True)
    except QualgateError as error:
        print(error, flush=True)
        return error.exit
    return 0


def end_with_input() -> None:
    """End this process with its standard input, which closes however the process that started it ends."""
    while os.read(0, 4096):
        pass
    os._exit(0)  # a thread cannot end the others; the store's transactions are whole or not at all


if __name__ == "__main__":
    sys.exit(_main())
