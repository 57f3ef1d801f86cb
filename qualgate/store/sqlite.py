"""Stores in one file: durable, one writer at a time, readable by everyone meanwhile.

A read-only file is opened for reading. SQLite cannot share memory with a writer there, so a file without a log is read
as immutable; a change is detected, and the read is refused.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from shutil import disk_usage
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from qualgate.errors import InfrastructureError, IntegrityError, QualgateError, UsageError
from qualgate.store.address import ANOTHER
from qualgate.store.columns import WrongKind, wrong_value
from qualgate.store.schema import metadata
from qualgate.text.numbers import size_text

OLDEST = (3, 35)  # SQLite version of Python or the system
BUSY_SECONDS = 30.0  # how long a write waits for another process's transaction
_HEADER = b"SQLite format 3\0"
AGAIN = "What is written next uses the room that is free in it."
# Take the write lock at the start: a read that becomes a write later could fail instead of waiting.
TO_WRITE = "BEGIN IMMEDIATE"
_FUSE = ("sshfs", "glusterfs", "ceph", "ceph-fuse", "s3fs", "gcsfuse", "rclone", "juicefs")
# Folders that a virtual machine shares with its host, which sees neither its locks nor its memory. virtiofs is not
# listed: it is often the whole disk of one machine or container, and supports locks.
_OF_A_HOST = {"9p", "vboxsf"}
# Write-ahead logging shares memory between the processes of one machine: https://sqlite.org/wal.html, section 1.
NETWORK = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "glusterfs", "lustre", "gpfs", "beegfs", "ocfs2", "gfs2",
    "wekafs", *_OF_A_HOST, *(f"fuse.{name}" for name in _FUSE),
})  # fmt: skip


def engine(url: str, path: Path) -> Engine:
    """Return an engine for the file. Raises UsageError if SQLite is too old, or the file on a network file system."""
    if sqlite3.sqlite_version_info < OLDEST:
        raise UsageError(
            f"{url}: this Python has SQLite {sqlite3.sqlite_version}, but {'.'.join(map(str, OLDEST))} or newer is "
            "needed. Use another Python, or a database: postgresql://USER@HOST/DATABASE"
        )
    if (kind := file_system(path)) in NETWORK:
        raise UsageError(
            f"{url}: {path.resolve().parent} is on a network file system ({kind}), where SQLite loses data once two "
            "machines write. Keep the file on a disk of this machine, or use a database: postgresql://USER@HOST/DATABASE"
        )
    if is_read_only(path):
        return _for_reading(url, path.resolve())
    new_engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS})
    event.listen(new_engine, "connect", _configure)
    event.listen(new_engine, "begin", _begin)
    return new_engine


def is_read_only(path: Path) -> bool:
    """Whether this process may not write the file or its folder, which holds the log."""
    target, effective = path.resolve(), os.access in os.supports_effective_ids
    writable = (os.access(location, os.W_OK, effective_ids=effective) for location in (target, target.parent))
    return target.is_file() and not all(writable)


def _for_reading(url: str, path: Path) -> Engine:
    """Return an engine with a connection per transaction, since SQLite caches pages of an immutable file."""

    def opened() -> sqlite3.Connection:
        unshared = "&immutable=1" if len(written(path)) < 2 else ""
        address = f"{path.as_uri()}?mode=ro{unshared}"
        return sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)

    def remember(connection: sqlite3.Connection, record: Any) -> None:
        record.info["seen"] = written(path)

    def check(connection: Connection) -> None:
        state = connection.info["seen"]
        if len(state) < 2 and written(path) != state:  # with a log SQLite itself separates readers and writers
            raise InfrastructureError(f"{url}: another process wrote to it while it was read. Try again.")

    new_engine = create_engine("sqlite://", creator=opened, poolclass=NullPool)
    event.listen(new_engine, "connect", remember)
    event.listen(new_engine, "begin", _begin)
    event.listen(new_engine, "commit", check)
    return new_engine


def begins_as_one(path: Path) -> bool:
    """Whether the file is SQLite's, by its first bytes."""
    try:
        with path.open("rb") as file:
            return file.read(len(_HEADER)) == _HEADER
    except OSError:
        return False


def file_system(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """Return the type of the file system that holds `path`, after following links; "" if unknown."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:  # no Linux
        return ""
    folder, kind_by_length = path.resolve().parent, {}  # SQLite puts its log beside the link's target
    for line in lines:
        _, mount, kind, how, *_ = line.split(" ")
        if kind == "9p" and not any(sign in how for sign in ("trans=virtio", "aname=drvfs")):
            kind = "9p of a sandbox"  # such as gVisor's own disk
        mount = mount.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        if folder.is_relative_to(mount):
            kind_by_length[len(mount)] = kind  # a later mount hides an earlier one at the same place
    return kind_by_length[max(kind_by_length)] if kind_by_length else ""


def _configure(connection: sqlite3.Connection, record: object) -> None:
    """Set up a new connection: the transactions, durability and constraints that the store relies on."""
    connection.isolation_level = None  # the driver would start transactions of its own; `_begin` does
    _write_ahead(connection)
    connection.execute("PRAGMA synchronous = FULL")  # an acknowledged job or decision survives a power cut
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA recursive_triggers = ON")  # without it REPLACE slips past the append-only triggers


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switch the file to write-ahead logging, waiting up to BUSY_SECONDS for other processes."""
    # The first switch to WAL needs exclusive access. If two processes open a new store at once, SQLite reports "locked"
    # without waiting (both hold a read lock, so its busy handler is skipped), so the waiting is done here.
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.005)


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql(TO_WRITE if writes else "BEGIN")


def written(path: Path) -> tuple[tuple[int, int], ...]:
    """Return times and sizes of the store's files, which change whenever somebody writes."""
    states = [file.stat() for file in (path, path.with_name(f"{path.name}-wal")) if file.is_file()]
    return tuple((state.st_mtime_ns, state.st_size) for state in states if state.st_size)


def back_up(path: Path, backup: Path) -> None:
    """Copy the file by SQLite's backup, which is consistent even while another process writes."""
    source, target = sqlite3.connect(path), sqlite3.connect(backup)
    try:
        source.backup(target)
    finally:
        source.close()
        target.close()


def shrink(path: Path) -> str:
    """Return removed rows' space to the disk, and return a report line. The file keeps its size if others use it, or
    the disk has no space for SQLite's copy."""
    before, free = _size(path), disk_usage(path.parent).free
    if free < before:
        return f"{path}: {size_text(before)} of free disk are needed to make it smaller, {size_text(free)} are. {AGAIN}"
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS)
    try:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.OperationalError as error:
        return f"{path}: it was not made smaller ({error}). {AGAIN}"
    finally:
        connection.close()
    return f"{path}: {size_text(max(0, before - _size(path)))} came back to the disk"


def _size(path: Path) -> int:
    return sum(size for _, size in written(path))


def plain(url: str, path: Path, error: WrongKind | DBAPIError) -> QualgateError:
    """Return a database error as ours, with the next step."""
    text = str(error.orig) if isinstance(error, DBAPIError) else str(error)
    if isinstance(error, WrongKind) or "decode to UTF-8" in text:
        text = f"malformed: {_wrong_value(path) or text}"
    if "not a database" in text:
        return UsageError(f"{url} is not a qualgate store: the file is not a database. Give {ANOTHER}.")
    if "malformed" in text or "corrupt" in text or "no such" in text:  # table or column
        return IntegrityError(f"{url} is damaged ({text}). Restore it from a backup; until then, trust nothing in it.")
    if "readonly" in text:
        return only_readable(url)
    if "unable to open" in text and is_read_only(path) and len(written(path.resolve())) > 1:
        return UsageError(
            f"{url}: its newest rows are in {path.name}-wal, which you can read only if you may write the file: run "
            "`qualgate runs` as its owner, or copy both files to a folder of your own."
        )
    if "unable to open" in text:
        return UsageError(f"{url}: {text}. qualgate needs to read and write the file and its folder.")
    if "locked" in text:
        return InfrastructureError(f"{url}: another process has been writing for {BUSY_SECONDS:.0f} s. Try again.")
    if "append-only" in text or "constraint" in text.lower():
        return IntegrityError(f"{url} refused the write: {text}. Stored evidence is never changed.")
    return InfrastructureError(f"{url}: {text}. Free space or fix the disk, then run again; it resumes.")


def only_readable(url: str) -> UsageError:
    """Return the error for a store that this process may only read."""
    return UsageError(
        f"{url} is read-only for you: the file or its folder may not be written to. `report`, `runs`, `answers` and "
        f"`gate --no-write` read it; to write, give {ANOTHER}."
    )


def _wrong_value(path: Path) -> str:
    """Describe the first stored value of a wrong type, see `wrong_value`; "" if there is none or the file cannot be
    read."""
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS)
    connection.text_factory = bytes
    try:
        return wrong_value(metadata, connection.execute)
    except sqlite3.Error:  # the file is damaged beyond that
        return ""
    finally:
        connection.close()
