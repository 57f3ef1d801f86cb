"""Opening a store: its schema's version, its transactions, and database errors in the user's words."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DatabaseError

from qualgate.errors import (
    InfrastructureError,
    IntegrityError,
    NotInThisVersion,
    QualgateError,
    StoreVersionError,
    UsageError,
)
from qualgate.errors.misplaced import nearest_path
from qualgate.records import Lease
from qualgate.store import lease_guard
from qualgate.store.columns import WrongKind, wrong_value
from qualgate.store.tables import metadata

# The migrations there are, oldest first; a test compares them with the files.
REVISIONS = (
    "0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010", "0011", "0012", "0013", "0014",
    "0016",
)  # fmt: skip
BUSY_SECONDS = 30.0  # how long a write waits for another process's transaction


@dataclass(frozen=True, slots=True)
class Store:
    """An open store. Close it, or use it as a context manager."""

    url: str
    engine: Engine
    lease: Lease | None = None  # under which it is written to: not a row once that is lost

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One consistent snapshot."""
        with _plainly(self.url), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction, on disk when the block ends, gone without a trace when it raises or the process dies."""
        with (
            _plainly(self.url),
            self.engine.connect().execution_options(writes=True) as connection,
            connection.begin(),
        ):
            if self.lease is not None:
                lease_guard.check(connection, self.lease)
            yield connection

    @property
    def written(self) -> tuple[tuple[int, int], ...]:
        """Times and sizes of its files: while they stay the same, nobody wrote to it."""
        path = _path(self.url)
        states = [part.stat() for part in (path, path.with_name(f"{path.name}-wal")) if part.is_file()]
        return tuple((state.st_mtime_ns, state.st_size) for state in states if state.st_size)

    def close(self) -> None:
        """Give the connections back. Closing twice does no harm."""
        self.engine.dispose()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self.close()


def open_store(url: str, create: bool = True, lease: Lease | None = None) -> Store:
    """Open the store at `url`, making a new one where there is none (unless `create` is False).
    lease: every write is refused once it is lost.

    Raises StoreVersionError when its schema is not this program's, UsageError when there is no store to open,
    IntegrityError when its file is damaged.
    """
    path = _path(url)
    if not path.parent.is_dir():
        raise UsageError(f"{url}: the folder {path.parent} does not exist. Create it, or give another --store.")
    if not path.exists() and not create:
        near = nearest_path(path)
        raise UsageError(f"{url}: there is no store yet{near}. `qualgate run GATE_FILE` makes one; check the path.")
    store = Store(url, _engine(url))
    try:
        found = _revision(store)
        if found is None and create:
            _migrate(store)
        elif found is None:
            raise UsageError(f"{url}: the file is empty. `qualgate run GATE_FILE` makes a store; check the path.")
        elif found not in REVISIONS:
            raise StoreVersionError(
                f"{url} is at revision {found}, which a newer qualgate wrote; this one knows up to {REVISIONS[-1]}. "
                "Upgrade qualgate: pip install --upgrade qualgate"
            )
        elif found != REVISIONS[-1]:
            raise StoreVersionError(
                f"{url} is at revision {found}, this qualgate needs {REVISIONS[-1]}. "
                f"Run: qualgate db upgrade --store {url}"
            )
    except BaseException:
        store.close()
        raise
    return store if lease is None else replace(store, lease=lease)


def check_store(url: str) -> None:
    """Raise what `open_store` would raise where a run begins. Where there is no store yet, none is made."""
    path = _path(url)
    if not path.parent.is_dir() or (path.exists() and (not path.is_file() or path.stat().st_size)):
        open_store(url, create=False).close()


def upgrade(url: str) -> str:
    """Bring a store to this program's revision, after a backup copy beside it. Returns what was done."""
    path = _path(url)
    if not path.is_file():
        raise UsageError(f"{url}: there is no store to upgrade. Check the path.")
    with Store(url, _engine(url)) as store:
        found = _revision(store)
        if found is None:
            _migrate(store)
            return f"{url}: made a new store at revision {REVISIONS[-1]}."
        if found == REVISIONS[-1]:
            return f"{url}: already at revision {found}, nothing to do."
        if found not in REVISIONS:
            raise StoreVersionError(
                f"{url} is at revision {found}, newer than this qualgate's {REVISIONS[-1]}; going back would lose "
                "data. Upgrade qualgate: pip install --upgrade qualgate"
            )
        backup = path.with_name(f"{path.name}.{found}-{datetime.now(UTC):%Y%m%d-%H%M%S}.backup")
        _copy(path, backup)
        _migrate(store)
        return f"{url}: upgraded from revision {found} to {REVISIONS[-1]}. The old store is kept as {backup}."


def _copy(path: Path, backup: Path) -> None:
    """SQLite's own copy, which is whole even while another process writes."""
    source, target = sqlite3.connect(path), sqlite3.connect(backup)
    try:
        source.backup(target)
    finally:
        source.close()
        target.close()


def _path(url: str) -> Path:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise UsageError(f"{url!r} is not a store's URL. Expected for example: sqlite:///qualgate.db") from None
    if parsed.get_backend_name() != "sqlite":
        raise NotInThisVersion(
            f"{parsed.get_backend_name()} stores are not in this version; use sqlite:///path/to/qualgate.db"
        )
    if parsed.database in (None, "", ":memory:"):
        raise UsageError(f"{url}: a store is a file. Expected for example: sqlite:///qualgate.db")
    return Path(parsed.database)


def _engine(url: str) -> Engine:
    engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS})
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    return engine


def _configure(connection: sqlite3.Connection, record: object) -> None:
    connection.isolation_level = None  # the driver would start transactions of its own; `_begin` does
    _write_ahead(connection)
    connection.execute("PRAGMA synchronous = FULL")  # an acknowledged job or decision survives a power cut
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA recursive_triggers = ON")  # without it REPLACE slips past the append-only triggers


def _write_ahead(connection: sqlite3.Connection) -> None:
    # A file's first WAL needs it alone. Where two open a new store at once SQLite tells one of them "locked" without
    # waiting (its busy handler is not asked: both hold a read lock), so the waiting is done here.
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
    # Taking the write lock at the start: a read that turns into a write later could fail instead of waiting.
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _revision(store: Store) -> str | None:
    """The schema's revision; None for an empty database."""
    with store.read() as connection:
        names = inspect(connection).get_table_names()
        if not names:
            return None
        if "alembic_version" in names:
            found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
            if found is not None:
                return found
    raise UsageError(f"{store.url} is a database, but not a qualgate store. Give another --store.")


def _migrate(store: Store) -> None:
    # Here and not above: alembic takes a quarter of a second to import, and most commands never migrate.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    with store.write() as connection:  # two processes at once: the second waits, and finds nothing left to do
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def migrations_folder() -> Path:
    """Where the migrations are: installed as `qualgate_migrations`, or `migrations/` of a checkout."""
    spec = find_spec("qualgate_migrations")
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent
    return Path(__file__).resolve().parents[2] / "migrations"


@contextmanager
def _plainly(url: str) -> Iterator[None]:
    """Database errors as ours, with the next step."""
    try:
        yield
    except (WrongKind, DatabaseError) as error:
        said = str(error.orig) if isinstance(error, DatabaseError) else str(error)
        if isinstance(error, WrongKind) or "decode to UTF-8" in said:
            said = f"malformed: {_wrong_value(url) or said}"
        raise _plain(url, said) from error


def _wrong_value(url: str) -> str:
    connection = sqlite3.connect(_path(url), timeout=BUSY_SECONDS)
    connection.text_factory = bytes
    try:
        return wrong_value(metadata, connection.execute)
    except sqlite3.Error:  # the file is worse than that
        return ""
    finally:
        connection.close()


def _plain(url: str, said: str) -> QualgateError:
    if "not a database" in said:
        return UsageError(f"{url} is not a qualgate store: the file is not a database. Give another --store.")
    if "malformed" in said or "corrupt" in said or "no such" in said:  # table or column
        return IntegrityError(f"{url} is damaged ({said}). Restore it from a backup; nothing can rest on it as it is.")
    if "unable to open" in said or "readonly" in said:
        return UsageError(f"{url}: {said}. qualgate needs to read and write the file and its folder.")
    if "locked" in said:
        return InfrastructureError(f"{url}: another process has been writing for {BUSY_SECONDS:.0f} s. Try again.")
    if "append-only" in said or "constraint" in said.lower():
        return IntegrityError(f"{url} refused the write: {said}. Stored evidence is never changed.")
    return InfrastructureError(f"{url}: {said}. Free space or fix the disk, then run again; it resumes.")
