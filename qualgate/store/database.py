"""Open a store: schema version, transactions, and database errors in the user's terms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

from sqlalchemy import Connection, Engine, Insert, Table, inspect, text
from sqlalchemy.exc import DBAPIError

from qualgate.errors import StoreVersionError, UsageError
from qualgate.errors.extras import upgrade_advice
from qualgate.errors.misplaced import nearest_path
from qualgate.store import postgresql, sqlite, turns
from qualgate.store.address import ANOTHER, SQLITE, file_of
from qualgate.store.columns import WrongKind

# All migrations, oldest first; a test compares them with the files.
REVISIONS = ("0.2.0",)


@dataclass(frozen=True, slots=True)
class Store:
    """An open store. Close it, or use it as a context manager."""

    url: str
    engine: Engine
    patience: float = 0.0  # s to wait for a server that is away; unused for files
    claims: list[postgresql.Claim] = field(default_factory=list)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection with one consistent snapshot."""
        with plainly(self.url), self._connection() as connection:
            if connection.dialect.name == "postgresql":
                connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            with connection.begin():
                yield connection

    @contextmanager
    def write(self, run: str = "") -> Iterator[Connection]:
        """Yield a connection with one transaction: on disk when the block ends, rolled back if it raises or the process
        dies. No other process writes meanwhile; with `run`, whose rows alone may be written, other processes may write
        to other runs of a database."""
        with plainly(self.url):
            for claim in self.claims:
                claim.keep()
            with (
                self._connection().execution_options(writes=True, run=run) as connection,
                self._turn(),
                connection.begin(),
            ):
                yield connection

    @contextmanager
    def sole(self, name: str) -> Iterator[None]:
        """Lock `name` against all processes on all machines. For a file nothing is locked: its processes share one
        machine and that machine's locks. Raises InfrastructureError if another process holds the lock."""
        if self.engine.dialect.name != "postgresql":
            yield
            return
        with plainly(self.url):
            claim = postgresql.Claim(self.engine, name, self.patience)
        self.claims.append(claim)
        try:
            yield
        finally:
            self.claims.remove(claim)
            claim.release()

    @property
    def written(self) -> object:
        """A value that changes whenever somebody writes to the store."""
        if (path := file_of(self.url)) is not None:
            return sqlite.written(path)
        with self.read() as connection:
            return postgresql.written(connection)

    def _connection(self) -> Connection:
        if self.engine.dialect.name == "postgresql":
            return postgresql.connect(self.engine, self.patience)
        return self.engine.connect()

    def _turn(self) -> AbstractContextManager[None]:
        path = file_of(self.url)
        return nullcontext() if path is None else turns.turn(path)

    def shrink(self) -> str:
        """Free removed rows' space: on disk for an unused file, for reuse in a database; return a report line."""
        if (path := file_of(self.url)) is not None:
            self.close()
            return sqlite.shrink(path)
        with plainly(self.url):
            return postgresql.vacuum(self.engine)

    def close(self) -> None:
        """Close the connections. Closing twice does no harm."""
        self.engine.dispose()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self.close()


def open_store(url: str, create: bool = True) -> Store:
    """Open the store at `url`, making a new one if there is none and `create` is True.

    Raises StoreVersionError for another schema version, UsageError if there is no store or its server denies access,
    InfrastructureError if the server is away, and IntegrityError for a damaged file.
    """
    path = file_of(url)
    if path is not None and not path.parent.is_dir():
        raise UsageError(f"{url}: the folder {path.parent} does not exist. Create it, or give {ANOTHER}.")
    if path is not None and path.is_dir():
        raise UsageError(f"{url} is a folder, but a store is a file, such as {SQLITE}{path / 'qualgate.db'}")
    if path is not None and not path.exists() and not create:
        nearest = nearest_path(path, sqlite.begins_as_one) or "."
        raise UsageError(
            f"{url}: there is no store yet{nearest} `qualgate run GATE_FILE` makes one; check the path, or give "
            f"{ANOTHER}."
        )
    store = _unchecked(url)
    try:
        revision = _revision(store)
        if revision is None and create:
            _migrate(store)
        elif revision is None:
            raise UsageError(
                f"{url}: {'the database' if path is None else 'the file'} is empty. `qualgate db upgrade --store "
                f"{url}` makes a store of it, and so does `qualgate run GATE_FILE`; check the "
                f"{'address' if path is None else 'path'}."
            )
        else:
            _check(url, revision)
    except BaseException:
        store.close()
        raise
    return replace(store, patience=postgresql.RECONNECT_SECONDS)


def _check(url: str, current: str | None) -> None:
    """Raise StoreVersionError unless the store has this program's revision."""
    _check_known(url, current)
    if current != REVISIONS[-1]:
        raise StoreVersionError(
            f"{url} is at revision {current}, but this qualgate needs {REVISIONS[-1]}. Run: qualgate db upgrade "
            f"--store {url}"
        )


def _check_known(url: str, revision: str | None) -> None:
    """Raise StoreVersionError for a revision that this program does not know: one of version 0.1, or a newer one."""
    if revision is not None and re.fullmatch("00[0-9]{2}", revision):
        raise StoreVersionError(
            f"{url} was made by qualgate 0.1, whose stores this version cannot read or upgrade; it was not changed. "
            f"Give {ANOTHER}, and keep version 0.1 if you still need the old runs."
        )
    if revision not in REVISIONS:
        raise StoreVersionError(
            f"{url} is at revision {revision}, which a newer qualgate wrote; this one knows up to {REVISIONS[-1]}. "
            f"Upgrade qualgate: {upgrade_advice()}"
        )


def check_store(url: str) -> None:
    """Raise what `open_store` would raise for a run, and UsageError for a read-only store, without making one."""
    path = file_of(url)
    if path is not None and sqlite.is_read_only(path):
        raise sqlite.only_readable(url)
    if path is None:
        exists(url)
    elif not path.parent.is_dir() or (path.exists() and (not path.is_file() or path.stat().st_size)):
        open_store(url, create=False).close()


def exists(url: str) -> bool:
    """Whether there is a store, or a file that should be one. Raises as `open_store` does if it cannot be opened."""
    if (path := file_of(url)) is not None:
        return path.is_file()
    with _unchecked(url) as store:
        revision = _revision(store)
    if revision is not None:
        open_store(url, create=False).close()
    return revision is not None


def upgrade(url: str) -> str:
    """Upgrade a store to this program's revision: a file after a backup beside it, a database in one transaction.
    Returns a report line."""
    path = file_of(url)
    if path is not None and not path.is_file():
        raise UsageError(f"{url}: there is no store to upgrade. Check the path.")
    with _unchecked(url) as store:
        revision = _revision(store)
        if revision is None:
            _migrate(store)
            return f"{url}: made a new store at revision {REVISIONS[-1]}."
        _check_known(url, revision)
        if revision == REVISIONS[-1]:
            return f"{url}: already at revision {revision}, nothing to do."
        done = f"{url}: upgraded from revision {revision} to {REVISIONS[-1]}"
        if path is None:
            _migrate(store)
            return f"{done}, in one transaction."
        backup = path.with_name(f"{path.name}.{revision}-{datetime.now(UTC):%Y%m%d-%H%M%S}.backup")
        sqlite.back_up(path, backup)
        _migrate(store)
        return f"{done}. The old store is kept as {backup}."


def _unchecked(url: str) -> Store:
    """Open the address without checking that it is a store."""
    path = file_of(url)
    if path is not None:
        return Store(url, sqlite.engine(url, path))
    store = Store(url, postgresql.engine(url))
    with store.read() as connection:
        postgresql.check_server(connection)
        postgresql.check_schema(connection)
    return store


def _revision(store: Store) -> str | None:
    """Return the schema revision of the store; None for an empty file or database. Raises UsageError if it holds
    tables of something else."""
    with store.read() as connection:
        names = inspect(connection).get_table_names()
        if not names:
            return None
        if "alembic_version" in names:
            revision = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
            if revision is not None:
                return revision
    raise UsageError(
        f"{store.url} is a database, but not a qualgate store. Give another (on PostgreSQL: a database of its "
        "own, or a schema: ?options=-csearch_path=NAME)."
    )


def _migrate(store: Store) -> None:
    """Bring the store to this program's revision, in one transaction. An empty store gets all tables."""
    # Imported late: alembic takes a quarter of a second, and most commands never migrate.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    with store.write() as connection:  # of two processes the second waits, and has nothing left to do
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def migrations_folder() -> Path:
    """Return the folder of migrations: the installed `qualgate_migrations`, or `migrations/` of a checkout."""
    spec = find_spec("qualgate_migrations")
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent
    return Path(__file__).resolve().parents[2] / "migrations"


def if_absent(connection: Connection, table: Table) -> Insert:
    """Return an INSERT that keeps an existing row of the same key."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert  # a tenth of a second, and most stores are files
    else:
        from sqlalchemy.dialects.sqlite import insert
    return insert(table).on_conflict_do_nothing()


@contextmanager
def plainly(url: str) -> Iterator[None]:
    """Raise database errors as ours, with the next step."""
    try:
        yield
    except (WrongKind, DBAPIError) as error:
        path = file_of(url)
        raise (postgresql.plain(url, error) if path is None else sqlite.plain(url, path, error)) from error
