"""Opening a store, wherever it is: its schema's version, its transactions, and database errors in the user's words."""

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

# The migrations there are, oldest first; a test compares them with the files.
REVISIONS = ("0.2.0",)


@dataclass(frozen=True, slots=True)
class Store:
    """An open store. Close it, or use it as a context manager."""

    url: str
    engine: Engine
    patience: float = 0.0  # s, for how long a server that goes away is waited for; of no file
    claims: list[postgresql.Claim] = field(default_factory=list)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One consistent snapshot."""
        with plainly(self.url), self._connection() as connection:
            if connection.dialect.name == "postgresql":
                connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            with connection.begin():
                yield connection

    @contextmanager
    def write(self, run: str = "") -> Iterator[Connection]:
        """One transaction, on disk when the block ends, gone without a trace when it raises or the process dies. No
        other process writes meanwhile; run: to this one, whose rows alone are written: in a database others may then
        write to theirs."""
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
        """Hold `name` alone among all processes on all machines. Of a store in a file nothing is held: its processes
        are on one machine, and have that machine's locks. InfrastructureError where another process holds it."""
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
        """While it stays the same, nobody wrote to the store."""
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
        """Give the room of what was removed back to the disk where nobody is at work on a file; in a database make it
        free for what comes next. A line on what came of it."""
        if (path := file_of(self.url)) is not None:
            self.close()
            return sqlite.shrink(path)
        with plainly(self.url):
            return postgresql.vacuum(self.engine)

    def close(self) -> None:
        """Give the connections back. Closing twice does no harm."""
        self.engine.dispose()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self.close()


def open_store(url: str, create: bool = True) -> Store:
    """Open the store at `url`, making a new one where there is none (unless `create` is False).

    Raises StoreVersionError when its schema is not this program's, UsageError when there is no store to open or its
    server lets nobody in, InfrastructureError where it is away, IntegrityError when its file is damaged.
    """
    path = file_of(url)
    if path is not None and not path.parent.is_dir():
        raise UsageError(f"{url}: the folder {path.parent} does not exist. Create it, or give {ANOTHER}.")
    if path is not None and path.is_dir():
        raise UsageError(f"{url} is a folder, and a store is a file: {SQLITE}{path / 'qualgate.db'} is one in it.")
    if path is not None and not path.exists() and not create:
        near = nearest_path(path, sqlite.begins_as_one) or "."
        raise UsageError(f"{url}: there is no store yet{near} `qualgate run GATE_FILE` makes one; check the path.")
    store = _unchecked(url)
    try:
        found = _revision(store)
        if found is None and create:
            _migrate(store)
        elif found is None:
            raise UsageError(
                f"{url}: {'the database' if path is None else 'the file'} is empty. "
                f"`qualgate db upgrade --store {url}` makes a store of it, and so does `qualgate run GATE_FILE`; "
                f"check the {'address' if path is None else 'path'}."
            )
        else:
            _check(url, found)
    except BaseException:
        store.close()
        raise
    return replace(store, patience=postgresql.RECONNECT_SECONDS)


def _check(url: str, found: str | None) -> None:
    _check_known(url, found)
    if found != REVISIONS[-1]:
        raise StoreVersionError(
            f"{url} is at revision {found}, this qualgate needs {REVISIONS[-1]}. Run: qualgate db upgrade --store {url}"
        )


def _check_known(url: str, found: str | None) -> None:
    if found is not None and re.fullmatch("00[0-9]{2}", found):
        raise StoreVersionError(
            f"{url} was made by qualgate 0.1, whose stores this version neither reads nor upgrades; nothing in it was "
            f"changed. Give {ANOTHER}, and keep version 0.1 where you still need the old runs."
        )
    if found not in REVISIONS:
        raise StoreVersionError(
            f"{url} is at revision {found}, which a newer qualgate wrote; this one knows up to {REVISIONS[-1]}. "
            f"Upgrade qualgate: {upgrade_advice()}"
        )


def check_store(url: str) -> None:
    """Raise what `open_store` would raise where a run begins, and UsageError where it can only be read. Where there is
    no store yet, none is made."""
    path = file_of(url)
    if path is not None and sqlite.is_read_only(path):
        raise sqlite.only_readable(url)
    if path is None:
        exists(url)
    elif not path.parent.is_dir() or (path.exists() and (not path.is_file() or path.stat().st_size)):
        open_store(url, create=False).close()


def exists(url: str) -> bool:
    """Whether there is a store, or a file that should be one. Raises as `open_store` where it cannot be opened."""
    if (path := file_of(url)) is not None:
        return path.is_file()
    with _unchecked(url) as store:
        found = _revision(store)
    if found is not None:
        open_store(url, create=False).close()
    return found is not None


def upgrade(url: str) -> str:
    """Bring a store to this program's revision: of a file after a backup copy beside it, of a database in one
    transaction. Returns what was done."""
    path = file_of(url)
    if path is not None and not path.is_file():
        raise UsageError(f"{url}: there is no store to upgrade. Check the path.")
    with _unchecked(url) as store:
        found = _revision(store)
        if found is None:
            _migrate(store)
            return f"{url}: made a new store at revision {REVISIONS[-1]}."
        _check_known(url, found)
        if found == REVISIONS[-1]:
            return f"{url}: already at revision {found}, nothing to do."
        done = f"{url}: upgraded from revision {found} to {REVISIONS[-1]}"
        if path is None:
            _migrate(store)
            return f"{done}, in one transaction."
        backup = path.with_name(f"{path.name}.{found}-{datetime.now(UTC):%Y%m%d-%H%M%S}.backup")
        sqlite.back_up(path, backup)
        _migrate(store)
        return f"{done}. The old store is kept as {backup}."


def _unchecked(url: str) -> Store:
    """Whatever is there, as long as a store could be."""
    path = file_of(url)
    if path is not None:
        return Store(url, sqlite.engine(url, path))
    store = Store(url, postgresql.engine(url))
    with store.read() as connection:
        postgresql.check_server(connection)
        postgresql.check_schema(connection)
    return store


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
    raise UsageError(
        f"{store.url} is a database, but not a qualgate store. Give another (on PostgreSQL: a database of its "
        "own, or a schema: ?options=-csearch_path=NAME)."
    )


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


def if_absent(connection: Connection, table: Table) -> Insert:
    """An INSERT that leaves a row of the same key as it is."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert  # a tenth of a second, and most stores are files
    else:
        from sqlalchemy.dialects.sqlite import insert
    return insert(table).on_conflict_do_nothing()


@contextmanager
def plainly(url: str) -> Iterator[None]:
    """Database errors as ours, with the next step."""
    try:
        yield
    except (WrongKind, DBAPIError) as error:
        path = file_of(url)
        raise (postgresql.plain(url, error) if path is None else sqlite.plain(url, path, error)) from error
