"""A store in a PostgreSQL database: the same transactions as in a file, over a connection that may be lost.

One write transaction at a time, by a lock that ends with it: what a write has read is then still so when it commits, as
in a file. Readers see one snapshot and wait for nobody.
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
from qualgate.formatting import size_text

OLDEST = 15  # what is tried; PostgreSQL's own support of 14 ended in November 2026
BUSY_SECONDS = 30.0  # how long a write waits for another's, and a reader for an upgrade
IDLE_SECONDS = 60.0  # a writer that says nothing for so long in the middle of a transaction gives way
RECONNECT_SECONDS = 30.0  # how long a lost server is waited for
LONGEST_PAUSE = 2.0  # s, between two tries
WRITERS = "SELECT pg_advisory_xact_lock(81, 71)"  # Q, G
WRITERS_OF_A_RUN = "SELECT pg_advisory_xact_lock_shared(81, 71), pg_advisory_xact_lock(82, hashtext(%s))"
SESSION = "SELECT pg_backend_pid()"
SIZE = "SELECT pg_database_size(current_database())"  # bytes
_GONE = ("57P01", "57P02", "57P03", "25P03", "53300")  # shut down, crashed, starting up, idle in a transaction, full
# The driver knows no code of what went wrong while it connected: the words are all there is.
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
    """The server went away, or cannot be reached. What was not committed is as if it had never been."""


def engine(url: str) -> Engine:
    """UsageError without its driver."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:  # not there, or there without the C library that it calls
        raise UsageError(f"{needs('a PostgreSQL store', 'postgres')} ({error})") from None
    made = create_engine(
        make_url(url).set(drivername="postgresql+psycopg"),
        isolation_level="READ COMMITTED",  # whatever the database says: a write sees what the last writer left
        pool_pre_ping=True,
        use_native_hstore=False,
        connect_args={
            "connect_timeout": 10, "application_name": "qualgate", "client_encoding": "utf8",
            "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3,
        },
    )  # fmt: skip
    made.dialect.type_compiler_instance = _kinds()(made.dialect)
    event.listen(made, "begin", _begin)
    return made


@cache
def _kinds() -> Any:
    """Text of any length that sorts by its bytes, and whole numbers to 64 bits, whatever a migration calls them: what
    SQLite does. A database's own language would order a report otherwise."""
    # Here and not above: the dialect takes a tenth of a second to import, and most stores are files.
    from sqlalchemy.dialects.postgresql.base import PGTypeCompiler

    class Kinds(PGTypeCompiler):
        def visit_TEXT(self, type_: Any, **kw: Any) -> str:
            return 'TEXT COLLATE "C"'

        visit_VARCHAR = visit_TEXT

        def visit_INTEGER(self, type_: Any, **kw: Any) -> str:
            return "BIGINT"

    return Kinds


def connect(made: Engine, patience: float) -> Connection:
    """A connection that works. patience: s, for how long a server that is away is asked again."""
    return persistently(made.connect, lambda error: isinstance(error, DBAPIError) and is_lost(error), patience)


def persistently(
    asked: Callable[[], Found],
    is_passing: Callable[[Exception], bool],
    patience: float,
    pause: Callable[[float], None] = time.sleep,
) -> Found:
    """Asked again after a pause of random length, so that many who lost the same server do not return as one."""
    until, longest = time.monotonic() + patience, 0.05
    while True:
        try:
            return asked()
        except Exception as error:
            if not is_passing(error) or time.monotonic() >= until:
                raise
        pause(min(random.uniform(0, longest), max(0.0, until - time.monotonic())))
        longest = min(2 * longest, LONGEST_PAUSE)


def lasting(asked: Callable[Given, Found]) -> Callable[Given, Found]:
    """For what may be done twice without harm: done again where the connection is lost on the way."""

    @wraps(asked)
    def again(*args: Given.args, **named: Given.kwargs) -> Found:
        lost = lambda error: isinstance(error, LostConnection)  # noqa: E731
        return persistently(lambda: asked(*args, **named), lost, RECONNECT_SECONDS)

    return again


def _begin(connection: Connection) -> None:
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
    """UsageError where the server is too old, or the database's text is not Unicode."""
    version = connection.dialect.server_version_info or (0,)
    if int(version[0]) < OLDEST:
        raise UsageError(
            f"the store's server is PostgreSQL {'.'.join(map(str, version))}; {OLDEST} or newer is needed. Upgrade it "
            "(pg_upgrade), or keep the store elsewhere."
        )
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
    if encoding != "UTF8":
        raise UsageError(
            f"the store's database holds {encoding} text, and answers are Unicode. Make one with: "
            "createdb --encoding=UTF8 --template=template0 NAME"
        )


def check_schema(connection: Connection) -> None:
    """UsageError where tables would be looked for in another schema than the address, or the role's settings, name
    first: PostgreSQL passes by one that is not there."""
    used, path = connection.exec_driver_sql("SELECT current_schema(), current_setting('search_path')").one()
    first = path.partition(",")[0].strip()
    name = first[1:-1].replace('""', '"') if first.startswith('"') else first.lower()
    if used is None or (name not in (used, "$user", "") and not name.startswith("pg_")):
        raise UsageError(
            f"the store's search_path is {path!r:.200}, and its first schema is not there, or this role may not "
            f"use it. Mend `?options=-csearch_path=NAME` in the address, or make it: CREATE SCHEMA {first or 'NAME'}"
        )


def written(connection: Connection) -> str:
    """Which transactions are over: while it stays the same, nobody wrote."""
    return connection.exec_driver_sql("SELECT pg_current_snapshot()::text").scalar_one()


def vacuum(made: Engine) -> str:
    """What was removed makes room for what comes next, while others are at work; a line on what went back to the disk.
    Tables of another owner stay as they are."""
    with made.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        size = lambda: connection.exec_driver_sql(SIZE).scalar_one()  # noqa: E731
        before = size()
        connection.exec_driver_sql("VACUUM (ANALYZE)")
        back = size_text(max(0, before - size()))
    return (
        f"{back} came back to the disk. What is written next uses the rest; VACUUM FULL, which stops all, gives it back"
    )


class Claim:
    """What one process at a time may hold, on whatever machine: it ends with the process or its connection."""

    def __init__(self, made: Engine, name: str, patience: float) -> None:
        self._engine, self._patience = made, patience
        self._key = int.from_bytes(sha256(name.encode()).digest()[:8], "big", signed=True)
        self._held = self._connected()
        mine = self._held.exec_driver_sql(SESSION).scalar_one()
        with connect(made, patience) as other:  # while nothing is under way in this one, a pooler deals its session out
            if other.exec_driver_sql(SESSION).scalar_one() == mine:
                self.release()
                raise UsageError(f"the store's server {POOLED}")
        if not self._take():
            self.release()
            raise InfrastructureError(
                "another qualgate process is working on this very run or night, perhaps on another machine; wait for "
                "it, or stop it and run again"
            )

    def keep(self) -> None:
        """Hold it again where the connection was lost. InfrastructureError where another has it by now."""
        if self._is_held():
            return
        self.release()
        self._held = self._connected()
        taken: Callable[[], bool] = lambda: self._take() or _raise(TimeoutError())  # noqa: E731
        try:  # a server that has not noticed yet keeps it for the lost connection
            persistently(taken, lambda error: isinstance(error, TimeoutError), self._patience)
        except TimeoutError:
            raise InfrastructureError(
                "the connection to the store was lost, and another qualgate process has taken this run over; what is "
                "stored stays. Run again once that one has ended; it resumes."
            ) from None

    def release(self) -> None:
        """Let others have it. Releasing twice does no harm."""
        if not self._held.closed:
            self._held.invalidate()  # its session ends, and the lock with it
            self._held.close()

    def _is_held(self) -> bool:
        """Whether its session is there; after a try to hold it again that failed, too, it is not."""
        try:
            return not self._held.closed and bool(self._held.exec_driver_sql("SELECT 1"))
        except DBAPIError as error:
            if not is_lost(error):
                raise
            return False

    def _connected(self) -> Connection:
        held = connect(self._engine, self._patience).execution_options(isolation_level="AUTOCOMMIT")
        for name, value in (("idle", 10), ("interval", 5), ("count", 3)):  # by when the server knows that we are gone
            held.exec_driver_sql(f"SELECT set_config('tcp_keepalives_{name}', '{value}', false)")
        return held

    def _take(self) -> bool:
        return self._held.exec_driver_sql(f"SELECT pg_try_advisory_lock({self._key})").scalar_one()


def _raise(error: Exception) -> Any:
    raise error


def is_lost(error: DBAPIError) -> bool:
    """The server is away or was, rather than unwilling."""
    state = getattr(error.orig, "sqlstate", None) or ""
    if state in _GONE or state.startswith("08") or error.connection_invalidated:
        return True
    return not state and any(sign in str(error.orig).lower() for sign in (*_AWAY, *_FULL))


def _cure(state: str, said: str) -> tuple[type[QualgateError], str] | None:
    """What is wrong between the address and the server's settings, and what to write; None for anything else."""
    if state in ("26000", "42P05") or "unsupported startup parameter" in said:  # a prepared statement is not known
        return UsageError, (
            f"The server {POOLED} For commands that only read, it is enough that PgBouncer keeps prepared statements "
            "(max_prepared_statements) and lets `options` pass (ignore_startup_parameters)."
        )
    if state == "57014":  # of a timeout of milliseconds it says "user request" as well
        return InfrastructureError, (
            "The statement_timeout of the role or the database is too short, or somebody ended the statement: ALTER "
            "ROLE … SET statement_timeout = 0, or add options=-cstatement_timeout=0 to the address; then run again."
        )
    if "does not support SSL" in said:
        return UsageError, "Write `?sslmode=prefer` in the address, or turn the server's TLS on."
    if "no encryption" in said:
        return (
            UsageError,
            "The server may ask for TLS: write `?sslmode=require` in the address, or see its pg_hba.conf.",
        )
    return None


def plain(url: str, error: Exception) -> QualgateError:
    """A database error as ours, with the next step."""
    if not isinstance(error, DBAPIError):  # a value of a wrong kind, which no column of the store can hold
        return IntegrityError(f"{url} is damaged ({error}). Restore it from a backup.")
    state = getattr(error.orig, "sqlstate", None) or ""
    said = re.sub(r"^connection (failed|is bad): ", "", (str(error.orig).splitlines() or [""])[0]).removesuffix(".")
    if (cure := _cure(state, said)) is not None:
        return cure[0](f"{url}: {said}. {cure[1]}")
    if is_lost(error):
        is_full = state == "53300" or any(sign in said for sign in _FULL)
        mend = "Raise max_connections or the role's limit" if is_full else "See that its server runs and can be reached"
        return LostConnection(f"{url}: {said}. {mend}, then run again; it resumes.")
    if state in ("42501", "25006"):  # no privilege; a server that is a copy of another, or a session set so
        return UsageError(
            f"{url}: {said}. `report`, `runs`, `answers` and `gate --no-write` only read it; what stores something "
            "needs a role that may (`qualgate db roles` says what each is granted), and a server that takes writes."
        )
    if state in ("42P01", "42703"):  # no such table, column
        return IntegrityError(f"{url} is damaged ({said}). Restore it from a backup; nothing can rest on it as it is.")
    if state == "55P03":
        return InfrastructureError(f"{url}: another process has been writing for {BUSY_SECONDS:.0f} s. Try again.")
    if state.startswith("23") or "append-only" in said:
        return IntegrityError(f"{url} refused the write: {said}. Stored evidence is never changed.")
    if state.startswith(("28", "3D")) or not state:  # nobody let us in
        return UsageError(
            f"{url}: {said}. Check host, user and database; a password comes from PGPASSWORD or ~/.pgpass, and "
            "`createdb NAME` makes a database."
        )
    return InfrastructureError(f"{url}: {said}. Mend the server (disk, memory, connections), then run again.")
