"""A PostgreSQL server of the tests' own: in a temporary folder, on a socket alone, started once a process.

It is found where Debian, Red Hat and macOS put it, or on the PATH; where there is none, its tests are skipped.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from functools import cache
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from qualgate.store.database import open_store

HEAD = "head"  # a database with the newest schema, copied for every test
_numbers = count()


def _programs() -> Path | None:
    on_path = shutil.which("initdb")
    found = [Path(on_path).parent] if on_path else []
    for places in ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin", "opt/homebrew/opt/postgresql*/bin"):
        found += [folder for folder in sorted(Path("/").glob(places)) if (folder / "initdb").exists()]
    return found[-1] if found else None


class Server:
    """A running one. `stop` and `start` as an administrator would."""

    def __init__(self, programs: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="qualgate-pg-"))
        self._programs = programs
        self._as = ("runuser", "-u", "postgres", "--") if os.getuid() == 0 else ()  # the server refuses root
        if self._as:
            shutil.chown(self.folder, "postgres")
        self.folder.chmod(0o755)
        initial = ("-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8", "--locale=C.UTF-8")
        self._run("initdb", "-D", str(self.folder / "data"), *initial)
        self.start()
        atexit.register(self._end)

    def start(self) -> None:
        settings = f"-k {self.folder} -c listen_addresses='' -c fsync=off -c max_connections=40 -c shared_buffers=16MB"
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-o", settings, "-w", "-l", f"{self.folder}/log", "start")

    def stop(self, how: str = "fast") -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", how, "-w", "stop")

    def url(self, database: str, user: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def new_database(self, like: str | None = HEAD, options: str = "") -> str:
        """The address of a database of its own. like: the one it is a copy of; None: empty."""
        name = f"t{next(_numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {like or 'template0'} {options}")
        return self.url(name)

    def execute(self, statement: str, database: str = "postgres", **values: object) -> list[tuple[object, ...]]:
        """As the administrator, outside a transaction."""
        engine = create_engine(self.url(database).replace("postgresql", "postgresql+psycopg", 1))
        try:
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                found = connection.execute(text(statement), values)
                return [tuple(row) for row in found] if found.returns_rows else []
        finally:
            engine.dispose()

    def end_sessions(self, url: str) -> int:
        """Cut every connection to a store's database, as a restart or a firewall does; how many there were."""
        name = url.partition("?")[0].rpartition("/")[2]
        ended = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = :name"
        return len(self.execute(ended, name=name))

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as, str(self._programs / program), *arguments]
        done = subprocess.run(command, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=None)
        assert done.returncode == 0, f"{program}: see {self.folder}/log"

    def _end(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)


@cache
def _server() -> Server | None:
    programs = _programs()
    if programs is None:
        return None
    made = Server(programs)
    made.execute(f"CREATE DATABASE {HEAD} TEMPLATE template0")
    open_store(made.url(HEAD)).close()
    return made


def server() -> Server:
    """The one of this process. Skips the test where none can be started."""
    pytest.importorskip("psycopg", reason="no psycopg: install the extra postgres")
    found = _server()
    if found is None:
        pytest.skip("no PostgreSQL server's programs (apt-get install postgresql)")
    return found
