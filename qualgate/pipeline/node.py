"""What a node of a pool does: claim a submission, run it in a process of its own, renew the lease while that lives.

The process is `qualgate run` with the store and the lease: its writes are refused once the lease is lost, and it ends
with this one, however that ends. So a node may die at any moment, stop answering and come back late.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from qualgate.errors import Exit, InfrastructureError, StoreVersionError, UsageError
from qualgate.identity import own_version
from qualgate.pipeline.child_log import ChildLog
from qualgate.pipeline.handing_over import lacking, lay_out
from qualgate.records import Claimed, Submission
from qualgate.store import leases
from qualgate.store.database import Store, check_revision
from qualgate.store.postgresql import persistently

POLL = 0.5  # s, between two looks at a child, or at an empty queue
PATIENCE = 2.5  # s, from SIGTERM to SIGKILL: cancelled work is gone within 5 s
RENEWALS = 3  # of a lease, in its time
ENDED = (Exit.APPROVE, Exit.BLOCK, Exit.REVIEW, Exit.UNDECIDED, Exit.INTEGRITY, Exit.USAGE)  # nothing to try again for
Found = TypeVar("Found")


@dataclass(slots=True)
class Node:
    """One that works for a store. seconds: of a lease; folder: for what submissions carry; say: takes a line, and by
    name what it is about."""

    name: str
    store: Store
    seconds: float
    folder: Path
    per_owner: int | None
    say: Callable[..., None]
    stop: Callable[[], signal.Signals | None]
    _program: str = field(default_factory=own_version, init=False)
    _told_skew: bool = field(default=False, init=False)

    def work(self, *, until_empty: bool = False) -> None:
        """Until it is asked to stop. until_empty: or until there is nothing for it. UsageError where its folder cannot
        be used: whatever it took would fail there."""
        _make(self.folder)
        if (other := leases.namesake(self.store, self.name)) is not None:
            self.say(
                f"a node named {self.name} was seen {other.seen:.0f} s ago and has not left. If it is still at work, "
                "end this one and give it another --name: who gave what back is known by names.",
                level="warning",
            )
        self._enter()
        seen = time.monotonic()
        try:
            while self.stop() is None:
                if time.monotonic() - seen > self.seconds / RENEWALS:
                    self._patiently(self._seen)
                    seen = time.monotonic()
                claimed = self._patiently(self._claim)
                if claimed is not None:
                    self._take(claimed)
                elif until_empty and not leases.is_pausing(self.store, *self._who):
                    return
                else:
                    time.sleep(POLL)
        finally:
            with contextlib.suppress(InfrastructureError):  # it is forgotten by itself
                leases.leave(self.store, self.name)

    def _enter(self) -> None:
        self._see(leases.enter(self.store, self.name, self._program, self.seconds, time.time()))

    def _seen(self) -> None:
        """By the others too. One that was stopped for so long that it is taken for gone begins anew, unless another
        version of qualgate is at work by now."""
        skew = leases.see(self.store, self.name, time.time())
        if skew is None:
            self._enter()
        else:
            self._see(skew)

    def _patiently(self, ask: Callable[[], Found]) -> Found | None:
        """Ask the store; where it cannot be reached, again, for as long as a lease. None where it stays so."""

        def is_passing(error: Exception) -> bool:
            return isinstance(error, InfrastructureError) and self.stop() is None

        try:
            return persistently(ask, is_passing, self.seconds)
        except InfrastructureError as error:
            self.say(f"{error}")
            return None

    def _prepared(self, claimed: Claimed, prepare: Callable[[], Found]) -> Found:
        """What it gives, the lease renewed meanwhile: a large file that is hashed or written may outlast it."""
        with ThreadPoolExecutor(1) as beside:
            made, renewed = beside.submit(prepare), time.monotonic()
            while not wait([made], POLL).done:
                if time.monotonic() - renewed > self.seconds / RENEWALS:
                    self._patiently(lambda: self._still_held(claimed, self.seconds))
                    renewed = time.monotonic()
            return made.result()

    def _claim(self) -> Claimed | None:
        if not leases.is_work(self.store, *self._who):
            return None
        self._check_program()
        return leases.claim(self.store, self.name, self._program, self.seconds, self.per_owner)

    @property
    def _who(self) -> tuple[str, str, int | None]:
        return self.name, self._program, self.per_owner

    def _check_program(self) -> None:
        """A run's process is the program that is installed by then. StoreVersionError where that is another."""
        if (now := own_version()) != self._program:
            raise StoreVersionError(
                f"node {self.name} is qualgate {self._program}, and {now} was installed since. Start the node again."
            )

    def _see(self, skew: float) -> None:
        """Leases go by the store's clock alone; what else is timed here goes by this machine's."""
        if abs(skew) > self.seconds and not self._told_skew:
            self._told_skew = True
            self.say(
                f"the clock of node {self.name} is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the "
                f"store's, beyond a lease of {self.seconds:g} s. Leases go by the store's clock, "
                "runs are dated by this one: set it right."
            )

    def _take(self, claimed: Claimed) -> None:
        lease, submission = claimed.lease, claimed.submission
        what = f"{lease.submission} ({submission.name}, {submission.owner})"
        say = partial(self.say, submission=lease.submission, run=claimed.run_id)
        reason = "" if claimed.complete else self._prepared(claimed, lambda: _lacking(submission))
        if reason:
            self._patiently(lambda: leases.refuse(self.store, lease, reason))
            say(f"gave back {what}: {reason}", event="refused")
            return
        say(f"took {what}, claim {lease.token}", event="taken")
        home = self.folder / f"{lease.submission}-{lease.token}"
        told = ChildLog(home / "log", partial(self.say, submission=lease.submission))
        try:
            code = self._run(claimed, home, told)
        except OSError as error:  # its own disk, memory or processes: others may have them
            said = f"{error}"
            self._patiently(lambda: leases.refuse(self.store, lease, said))
            shutil.rmtree(home, ignore_errors=True)
            say(f"gave back {what}: {said}", event="refused", level="error")
            return
        except UsageError as error:
            said = f"node {self.name}: {error}"
            self._patiently(lambda: leases.died(self.store, lease, said))
            say(f"{what}: {said}", event="died", level="error")
            return
        said = "" if code is None else told.last_words()
        if code is None or not self._patiently(lambda: self._tell_end(claimed, code, said)):
            say(f"left {what}{said and f': {said}'}", event="left", run=told.run or claimed.run_id)
        else:
            say(f"ended {what}: {_ended_by(code)}", event="ended", exit=code, run=told.run or claimed.run_id)
        if code is None or code in ENDED:
            shutil.rmtree(home, ignore_errors=True)

    def _tell_end(self, claimed: Claimed, code: int, said: str) -> bool:
        """False where there is nothing to tell any more: its process gave it back, or others have it."""
        if code == Exit.USAGE:
            self._check_programs(claimed)
        if code in ENDED:
            reason = said if code in (Exit.USAGE, Exit.INTEGRITY) else ""
            return leases.done(self.store, claimed.lease, code, reason)
        if code in (Exit.INTERRUPTED, Exit.TERMINATED) and self.stop() is not None:
            return leases.release(self.store, claimed.lease, f"node {self.name} stopped")
        reason = f"node {self.name}: {_ended_by(code)}" + (f": {said}" if said else "")
        return leases.died(self.store, claimed.lease, reason)

    def _check_programs(self, claimed: Claimed) -> None:
        """StoreVersionError, and the submission is left to others, where this one or the store was upgraded since the
        claim: its process may have ended for that."""
        try:
            self._check_program()
            with self.store.read() as connection:
                check_revision(connection, self.store.url)
        except StoreVersionError as error:
            leases.release(self.store, claimed.lease, f"{error}")
            raise

    def _run(self, claimed: Claimed, home: Path, told: ChildLog) -> int | None:
        """Its exit code, less than 0 for a signal; None where the work was left to others, or is not wanted."""
        home.mkdir(parents=True, exist_ok=True)
        with told.path.open("wb") as log:
            child = subprocess.Popen(
                self._command(claimed, home),
                stdin=subprocess.PIPE,  # it ends when this closes, which it does with this process
                stdout=log,
                stderr=log,
                cwd=home,
                start_new_session=True,
            )
            with child:
                try:
                    return self._watch(child, claimed, told)
                finally:
                    _end(child)
                    told.relay()

    def _command(self, claimed: Claimed, home: Path) -> list[str]:
        program = [sys.executable, "-m", "qualgate"]
        if claimed.complete and claimed.run_id:  # who ran it died before it could say so
            return [*program, "gate", "--store", self.store.url, "--run", claimed.run_id]
        gate_file = self._prepared(claimed, lambda: lay_out(claimed.submission, home / "root"))
        held = ["--store", self.store.url, "--lease", f"{claimed.lease.submission}:{claimed.lease.token}"]
        return [*program, "run", str(gate_file), *held, *claimed.submission.options]

    def _watch(self, child: subprocess.Popen[bytes], claimed: Claimed, told: ChildLog) -> int | None:
        renewed = time.monotonic()
        while True:
            told.relay()
            with contextlib.suppress(subprocess.TimeoutExpired):
                return child.wait(POLL)
            if self.stop() is not None:
                _end(child)
                self._patiently(lambda: leases.release(self.store, claimed.lease, f"node {self.name} stopped"))
                return None
            asked = time.monotonic()
            try:
                if not self._still_held(claimed, asked - renewed):
                    return None
                renewed = asked if asked - renewed > self.seconds / RENEWALS else renewed
            except InfrastructureError as error:  # the store cannot be reached: until the lease runs out it is ours
                if asked - renewed > self.seconds:
                    self.say(f"the lease on {claimed.lease.submission} ran out: {error}")
                    return None

    def _still_held(self, claimed: Claimed, since: float) -> bool:
        if since <= self.seconds / RENEWALS:
            return leases.holds(self.store, claimed.lease)
        skew = leases.renew(self.store, claimed.lease, self.name, self.seconds, time.time())
        if skew is not None:
            self._see(skew)
        return skew is not None


def _lacking(submission: Submission) -> str:
    try:
        return lacking(submission)
    except OSError as error:
        return f"{error.filename} cannot be read ({error.strerror})"


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UsageError(
            f"{folder}, where this node lays out what submissions carry: {error.strerror}. Give another: --folder."
        ) from None


def _end(child: subprocess.Popen[bytes]) -> None:
    """Asked first, as a run stops cleanly; then it and all that it started."""
    if child.poll() is None:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(PATIENCE)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _ended_by(code: int) -> str:
    return f"its process ended by signal {-code}" if code < 0 else f"exit code {code}"
