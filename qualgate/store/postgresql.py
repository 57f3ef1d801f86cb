"""Stores in a PostgreSQL database: the same transactions as in a file, over a connection that may be lost.

A transaction-level lock allows one write transaction at a time: as in a file, rows that it read cannot change before it
commits. Readers see one snapshot and wait for nobody.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from functools import cache, wraps
from hashlib import sha256
from typing import Any, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from qualgate.errors import InfrastructureError, IntegrityError, QualgateError, UsageError
from qualgate.errors.extras import needs
from qualgate.text.numbers import size_text

OLDEST = 15  # oldest tested version; PostgreSQL's own support of 14 ended in November 2026
BUSY_SECONDS = 30.0  # how long a write waits for another write, and a reader for an upgrade
IDLE_SECONDS = 60.0  # a writer that is idle in a transaction for this long is ended
RECONNECT_SECONDS = 30.0  # how long a lost server is waited for
LONGEST_PAUSE = 2.0  # s, between two tries
WRITERS = "SELECT pg_advisory_xact_lock(81, 71)"  # Q, G
WRITERS_OF_A_RUN = "SELECT pg_advisory_xact_lock_shared(81, 71), pg_advisory_xact_lock(82, hashtext(%s))"
SESSION = "SELECT pg_backend_pid()"
SIZE = "SELECT pg_database_size(current_database())"  # bytes
_GONE = ("57P01", "57P02", "57P03", "25P03", "53300")  # shut down, crashed, starting up, idle in a transaction, full
# Errors while connecting have no code, only these words.
_AWAY = (
    "refused", "is the server running", "starting up", "shutting down", "in recovery", "not yet accepting",
    "timeout expired", "timed out", "closed the conn", "closed unexpectedly", "reset by peer", "unreachable",
    "no route to host", "failed to resolve host", "could not translate host",
)  # fmt: skip
POOLED = (
    "is reached through a pooler that gives each transaction another session (PgBouncer: pool_mode = transaction), and "
    "a run is held by a lock of its session. Use pool_mode = session for this database, or the server's own address."
)
_FULL = ("too many connections", "too many clients", "connection slots are reserved")

Given = ParamSpec("Given")
Found = TypeVar("Found")


class LostConnection(InfrastructureError):
    """The server went away or cannot be reached. Uncommitted changes are rolled back."""


def engine(url: str) -> Engine:
    """Return an engine for the database. Raises UsageError without its driver."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:  # missing, or without its C library
        raise UsageError(f"{needs('a PostgreSQL store', 'postgres')} ({error})") from None
    new_engine = create_engine(
        make_url(url).set(drivername="postgresql+psycopg"),
        isolation_level="READ COMMITTED",  # regardless of the database's default: a write sees the last writer's rows
        pool_pre_ping=True,
        use_native_hstore=False,
        connect_args={
            "connect_timeout": 10, "application_name": "qualgate", "client_encoding": "utf8",
            "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3,
        },
    )  # fmt: skip
    new_engine.dialect.type_compiler_instance = _kinds()(new_engine.dialect)
    event.listen(new_engine, "begin", _begin)
    return new_engine


@cache
def _kinds() -> Any:
    """Return a type compiler with byte-sorted text of any length and 64-bit integers, as in SQLite. The database's own
    collation would order reports differently."""
    # Imported late: the dialect takes a tenth of a second, and most stores are files.
    from sqlalchemy.dialects.postgresql.base import PGTypeCompiler

    class Kinds(PGTypeCompiler):
        def visit_TEXT(self, type_: Any, **kw: Any) -> str:
            return 'TEXT COLLATE "C"'

        visit_VARCHAR = visit_TEXT

        def visit_INTEGER(self, type_: Any, **kw: Any) -> str:
            return "BIGINT"

    return Kinds


def connect(database: Engine, patience: float) -> Connection:
    """Return a working connection. patience: s to keep trying while the server is away."""
    return persistently(database.connect, lambda error: isinstance(error, DBAPIError) and is_lost(error), patience)


def persistently(
    attempt: Callable[[], Found],
    is_passing: Callable[[Exception], bool],
    patience: float,
    pause: Callable[[float], None] = time.sleep,
) -> Found:
    """Call `attempt` again after passing errors, with random pauses so that clients do not retry together."""
    until, longest = time.monotonic() + patience, 0.05
    while True:
        try:
            return attempt()
        except Exception as error:
            if not is_passing(error) or time.monotonic() >= until:
                raise
        pause(min(random.uniform(0, longest), max(0.0, until - time.monotonic())))
        longest = min(2 * longest, LONGEST_PAUSE)


def lasting(operation: Callable[Given, Found]) -> Callable[Given, Found]:
    """Decorate an idempotent operation: it is repeated if the connection is lost."""

    @wraps(operation)
    def repeated(*args: Given.args, **keywords: Given.kwargs) -> Found:
        lost = lambda error: isinstance(error, LostConnection)  # noqa: E731
        return persistently(lambda: operation(*args, **keywords), lost, RECONNECT_SECONDS)

    return repeated


def _begin(connection: Connection) -> None:
    """Set the transaction's timeouts and take the writers' lock that its options ask for: of one run, or of the whole
    store. Reads take none, and AUTOCOMMIT has no transaction."""
    if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
        return
    connection.exec_driver_sql(
        f"SELECT set_config('lock_timeout', '{BUSY_SECONDS:.3f}s', true), "
        f"set_config('idle_in_transaction_session_timeout', '{IDLE_SECONDS:.3f}s', true)"
    )
    options = connection.get_execution_options()
    if run := options.get("run"):
        connection.exec_driver_sql(WRITERS_OF_A_RUN, (run,))
    elif options.get("writes"):
        connection.exec_driver_sql(WRITERS)


def check_server(connection: Connection) -> None:
    """Raise UsageError if the server is too old, or the database's text is not Unicode."""
    version = connection.dialect.server_version_info or (0,)
    if int(version[0]) < OLDEST:
        raise UsageError(
            f"the store's server is PostgreSQL {'.'.join(map(str, version))}, but {OLDEST} or newer is needed. Upgrade "
            "it (pg_upgrade), or keep the store elsewhere."
        )
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
    if encoding != "UTF8":
        raise UsageError(
            f"the store's database has the encoding {encoding}, but answers are Unicode. Create one with: createdb "
            "--encoding=UTF8 --template=template0 NAME"
        )


def check_schema(connection: Connection) -> None:
    """Raise UsageError if the first schema of the search path is missing: PostgreSQL would silently use the next."""
    used, path = connection.exec_driver_sql("SELECT current_schema(), current_setting('search_path')").one()
    schema = path.partition(",")[0].strip()
    name = schema[1:-1].replace('""', '"') if schema.startswith('"') else schema.lower()
    if used is None or (name not in (used, "$user", "") and not name.startswith("pg_")):
        raise UsageError(
            f"the first schema of the store's search_path ({path!r:.200}) does not exist, or this role may not use it. "
            f"Correct `?options=-csearch_path=NAME` in the address, or create it: CREATE SCHEMA {schema or 'NAME'}"
        )


def written(connection: Connection) -> str:
    """Return the snapshot of finished transactions, which changes whenever somebody writes."""
    return connection.exec_driver_sql("SELECT pg_current_snapshot()::text").scalar_one()


def vacuum(database: Engine) -> str:
    """Make the space of removed rows reusable while others work, and return a report line. Tables of another owner are
    skipped."""
    with database.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        size = lambda: connection.exec_driver_sql(SIZE).scalar_one()  # noqa: E731
        before = size()
        connection.exec_driver_sql("VACUUM (ANALYZE)")
        back = size_text(max(0, before - size()))
    return (
        f"{back} came back to the disk. What is written next uses the rest; VACUUM FULL, which stops all, gives it back"
    )


class Claim:
    """A lock that one process on any machine can hold; it ends with the process or its connection."""

    def __init__(self, database: Engine, name: str, patience: float) -> None:
        """Take the lock, or raise InfrastructureError if another process holds it. name: what is locked; patience: s
        to wait for a server that is away. Raises UsageError if a connection pooler shares the session, which the lock
        belongs to."""
        self._engine, self._patience = database, patience
        self._key = int.from_bytes(sha256(name.encode()).digest()[:8], "big", signed=True)
        self._held = self._connected()
        session = self._held.exec_driver_sql(SESSION).scalar_one()
        with connect(database, patience) as second:  # a pooler would give this session to another connection
            if second.exec_driver_sql(SESSION).scalar_one() == session:
                self.release()
                raise UsageError(f"the store's server {POOLED}")
        if not self._take():
            self.release()
            raise InfrastructureError(
                "another qualgate process is working on this run or night, perhaps on another machine; wait for it, "
                "or stop it and run again"
            )

    def keep(self) -> None:
        """Take the lock again if the connection was lost. Raises InfrastructureError if another process has it."""
        if self._is_held():
            return
        self.release()
        self._held = self._connected()
        # `persistently` repeats after an error, so a lock that is not free raises one.
        take: Callable[[], bool] = lambda: self._take() or _raise(TimeoutError())  # noqa: E731
        try:  # the server may hold it for the lost connection for a while
            persistently(take, lambda error: isinstance(error, TimeoutError), self._patience)
        except TimeoutError:
            raise InfrastructureError(
                "the connection to the store was lost, and another qualgate process has taken over this run; stored "
                "answers are kept. Run again when that one has ended; it resumes."
            ) from None

    def release(self) -> None:
        """Release the lock. Releasing twice does no harm."""
        if not self._held.closed:
            self._held.invalidate()  # its session ends, and the lock with it
            self._held.close()

    def _is_held(self) -> bool:
        """Whether the lock's session is still open."""
        try:
            return not self._held.closed and bool(self._held.exec_driver_sql("SELECT 1"))
        except DBAPIError as error:
            if not is_lost(error):
                raise
            return False

    def _connected(self) -> Connection:
        connection = connect(self._engine, self._patience).execution_options(isolation_level="AUTOCOMMIT")
        for name, value in (("idle", 10), ("interval", 5), ("count", 3)):  # to notice a lost client soon
            connection.exec_driver_sql(f"SELECT set_config('tcp_keepalives_{name}', '{value}', false)")
        return connection

    def _take(self) -> bool:
        return self._held.exec_driver_sql(f"SELECT pg_try_advisory_lock({self._key})").scalar_one()


def _raise(error: Exception) -> Any:
    raise error


def is_lost(error: DBAPIError) -> bool:
    """Whether the error means that the server is or was away."""
    state = getattr(error.orig, "sqlstate", None) or ""
    if state in _GONE or state.startswith("08") or error.connection_invalidated:
        return True
    return not state and any(sign in str(error.orig).lower() for sign in (*_AWAY, *_FULL))


def _cure(state: str, text: str) -> tuple[type[QualgateError], str] | None:
    """Return the error type and remedy for a conflict of address and server settings; None for other errors."""
    if state in ("26000", "42P05") or "unsupported startup parameter" in text:  # unknown prepared statement
        return UsageError, (
            f"The server {POOLED} For commands that only read, it is enough that PgBouncer keeps prepared statements "
            "(max_prepared_statements) and lets `options` pass (ignore_startup_parameters)."
        )
    if state == "57014":  # also reported as "user request" for a timeout of milliseconds
        return InfrastructureError, (
            "The statement_timeout of the role or the database is too short, or somebody ended the statement: ALTER "
            "ROLE … SET statement_timeout = 0, or add options=-cstatement_timeout=0 to the address; then run again."
        )
    if "does not support SSL" in text:
        return UsageError, "Write `?sslmode=prefer` in the address, or turn the server's TLS on."
    if "no encryption" in text:
        return (
            UsageError,
            "The server may ask for TLS: write `?sslmode=require` in the address, or see its pg_hba.conf.",
        )
    return None


def plain(url: str, error: Exception) -> QualgateError:
    """Return a database error as ours, with the next step."""
    if not isinstance(error, DBAPIError):  # a value of another type than its column's
        return IntegrityError(f"{url} is damaged ({error}). Restore it from a backup.")
    state = getattr(error.orig, "sqlstate", None) or ""
    text = re.sub(r"^connection (failed|is bad): ", "", (str(error.orig).splitlines() or [""])[0]).removesuffix(".")
    if (cure := _cure(state, text)) is not None:
        return cure[0](f"{url}: {text}. {cure[1]}")
    if is_lost(error):
        is_full = state == "53300" or any(sign in text for sign in _FULL)
        mend = "Raise max_connections or the role's limit" if is_full else "See that its server runs and can be reached"
        return LostConnection(f"{url}: {text}. {mend}, then run again; it resumes.")
    if state in ("42501", "25006"):  # no privilege; a read-only replica or session
        return UsageError(
            f"{url}: {text}. `report`, `runs`, `answers` and `gate --no-write` only read it; to write, use a role that "
            "may (`qualgate db roles` lists what each is granted) and a server that accepts writes."
        )
    if state in ("42P01", "42703"):  # no such table, column
        return IntegrityError(f"{url} is damaged ({text}). Restore it from a backup; until then, trust nothing in it.")
    if state == "55P03":
        return InfrastructureError(f"{url}: another process has been writing for {BUSY_SECONDS:.0f} s. Try again.")
    if state.startswith("23") or "append-only" in text:
        return IntegrityError(f"{url} refused the write: {text}. Stored evidence is never changed.")
    if state.startswith(("28", "3D")) or not state:  # access denied
        return UsageError(
            f"{url}: {text}. Check host, user and database; a password comes from PGPASSWORD or ~/.pgpass, and "
            "`createdb NAME` makes a database."
        )
    return InfrastructureError(f"{url}: {text}. Fix the server (disk, memory, connections), then run again.")
