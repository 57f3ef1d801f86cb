"""Addresses of stores: a file (`sqlite:///FILE`) or a database (`postgresql://USER@HOST/DATABASE`).

They are parsed without a database library, so a gate file can be checked without one.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from qualgate.errors import UsageError

SQLITE = "sqlite:///"
ANOTHER = "another store: --store, or `store:` of the gate file"
DEFAULT = f"{SQLITE}qualgate.db"
# Shared by the loader, the JSON schema and `fault`. It allows no password: addresses are printed, stored in runs, and
# visible to everyone who may list a machine's processes.
POSTGRESQL = (
    r"postgresql(\+psycopg)?://([^:@/?#\s]+@)?([^:@/?#\s]*|\[[0-9A-Fa-f:.]+\])(:[0-9]+)?/[^:@/?#\s]+"
    r"(\?(?!.*(password|secret))[^#\s]*)?"
)
FORMS = "sqlite:///FILE, or postgresql://USER@HOST/DATABASE"
_PASSWORD = re.compile(r"://[^/?#]*:[^/?#]*@|(password|secret)[^=&]*=")


def is_postgresql(url: str) -> bool:
    """Whether the address means a PostgreSQL database, valid or not."""
    return url.lower().startswith("postgres")


def fault(url: str) -> str:
    """Return what is wrong with a database's address, without repeating any part of it; "" if it is valid."""
    if re.fullmatch(POSTGRESQL, url):
        return ""
    if _PASSWORD.search(url):
        return (
            "the store's address holds a password, which would be printed and stored with it. Write "
            "postgresql://USER@HOST/DATABASE, and give the password by PGPASSWORD, PGPASSFILE or ~/.pgpass"
        )
    if "+" in (driver := url.partition("://")[0]) and driver != "postgresql+psycopg":
        return "a PostgreSQL store is opened by psycopg 3: write postgresql:// or postgresql+psycopg://"
    return "a PostgreSQL store is written postgresql://USER@HOST:PORT/DATABASE, a server's socket " \
        "postgresql://USER@/DATABASE?host=/run/postgresql"  # fmt: skip


def shown(url: str) -> str:
    """Return `url` for a message, with a possible password masked."""
    return re.sub(r"((?:password|secret)[^=&]*=)[^&]*", r"\1…", re.sub(r":.*@", ":…@", url))


def file_of(url: str) -> Path | None:
    """Return the file of an SQLite store; None for a database. Raises UsageError for any other address."""
    if is_postgresql(url):
        if wrong := fault(url):
            raise UsageError(f"{wrong}.")
        return None
    if not url.startswith("sqlite://"):
        raise UsageError(f"{shown(url)!r} is not a store's URL. Expected for example: {DEFAULT}")
    path = url.partition("?")[0].removeprefix("sqlite://").removeprefix("/")
    if path in ("", ":memory:"):
        raise UsageError(f"{url}: a store is a file. Expected for example: {DEFAULT}")
    return Path(path)


def placed(url: str, folder: Path) -> str:
    """Return the address with an absolute path; relative SQLite paths are resolved in `folder`."""
    if (path := file_of(url)) is None:
        return url
    return f"{SQLITE}{os.path.normpath(folder.absolute() / path.expanduser())}"


def near(url: str) -> str:
    """Return the address with a path relative to the working folder, if it is inside."""
    path = file_of(url)
    return f"{SQLITE}{path.relative_to(Path.cwd())}" if path and path.is_relative_to(Path.cwd()) else url


def artifacts_folder(url: str, gate_folder: Path) -> Path:
    """Return the folder of packed checkpoints and a running run's artifacts: beside the store's file, or beside the
    gate file if the store is a database."""
    path = file_of(url)
    return gate_folder / "qualgate.artifacts" if path is None else path.with_name(f"{path.name}.artifacts")
