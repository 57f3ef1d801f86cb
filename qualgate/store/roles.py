"""Roles of a PostgreSQL store, with grants that make history append-only in the database itself.

The store's owner, who upgrades it, can do everything; nobody else can delete a row or change sealed data.

An approver also labels cases, claims verdicts and compares answers. These are rows of `sealed`, beside scorings and
early stops, which verdicts rest on. So a row policy lets an approver add only a reviewer's kinds, and only the owner
gives people roles.
"""

from __future__ import annotations

import re

from qualgate.errors import UsageError
from qualgate.store.address import FORMS, is_postgresql
from qualgate.store.database import open_store
from qualgate.store.schema import APPEND_ONLY, WRITTEN_ONCE, metadata
from qualgate.store.tables import decisions, sealed

ROLES = {
    "reader": "sees every run, verdict and decision, and writes nothing: reports and the dashboard",
    "writer": "makes runs and verdicts too, and decides nothing: CI, jobs on a cluster",
    "approver": "sees everything, records decisions, labels and claims, and nothing else: a person's dashboard",
}


def needed() -> dict[str, list[str]]:
    """Return privilege → tables: the grants of a writer, which a run needs."""
    tables = sorted(metadata.tables)
    return {
        "SELECT": [*tables, "alembic_version"],
        "INSERT": [name for name in tables if name != decisions.name],
        "UPDATE": [name for name in tables if name not in APPEND_ONLY | WRITTEN_ONCE],
    }


def roles_sql(prefix: str = "qualgate", schema: str = "public") -> list[str]:
    """Return statements, one line each, that create missing roles and grant their privileges. Run them again after an
    upgrade. Raises UsageError for a prefix that is no plain name."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,40}", prefix):
        raise UsageError(f"--prefix {prefix!r:.60}: give lower-case letters, digits and _, such as qualgate")
    of_writer = needed()
    sequence_of = {table.name: f"{table.name}_{column.name}_seq" for table in metadata.sorted_tables
                   if (column := table.autoincrement_column) is not None}  # fmt: skip
    quoted_schema = '"{}"'.format(schema.replace('"', '""'))

    def listed(names: list[str]) -> str:
        return ", ".join(f"{quoted_schema}.{name}" for name in names)

    reader, writer, approver = (f"{prefix}_{role}" for role in ROLES)
    everyone = f"{reader}, {writer}, {approver}"
    sequences = listed([sequence for name, sequence in sorted(sequence_of.items()) if name != decisions.name])
    signed = [decisions.name, sealed.name]  # tables with rows of people
    return [
        *(
            f"DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}') THEN "
            f"CREATE ROLE {role} NOLOGIN; END IF; END $$;"
            for role in (reader, writer, approver)
        ),
        f"REVOKE ALL ON ALL TABLES IN SCHEMA {quoted_schema} FROM PUBLIC, {everyone};",
        f"REVOKE ALL ON ALL SEQUENCES IN SCHEMA {quoted_schema} FROM PUBLIC, {everyone};",
        f"REVOKE CREATE ON SCHEMA {quoted_schema} FROM PUBLIC, {everyone};",
        f"GRANT USAGE ON SCHEMA {quoted_schema} TO {everyone};",
        f"GRANT SELECT ON {listed(of_writer['SELECT'])} TO {everyone};",
        *(f"GRANT {verb} ON {listed(of_writer[verb])} TO {writer};" for verb in ("INSERT", "UPDATE")),
        f"GRANT USAGE ON SEQUENCE {sequences} TO {writer};",
        f"GRANT INSERT ON {listed(signed)} TO {approver};",
        f"GRANT USAGE ON SEQUENCE {listed([sequence_of[name] for name in signed])} TO {approver};",
        *_row_policies(f"{quoted_schema}.{sealed.name}", writer, approver),
        f"-- then, for each person or machine: GRANT {writer} TO ci;",
    ]


def _row_policies(table: str, writer: str, approver: str) -> list[str]:
    """Return statements that limit which rows of `sealed` a role adds. Whoever may read the table reads every row."""
    policies = (
        ("sealed_read", "SELECT TO PUBLIC USING (true)"),
        (f"{writer}_adds", f"INSERT TO {writer} WITH CHECK (kind <> 'person')"),
        (
            f"{approver}_reviews",
            f"INSERT TO {approver} WITH CHECK (kind IN ('claim', 'label', 'opening', 'preference'))",
        ),
    )
    return [
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;",
        *(f"DROP POLICY IF EXISTS {name} ON {table};" for name, _ in policies),
        *(f"CREATE POLICY {name} ON {table} FOR {what};" for name, what in policies),
    ]


def apply_roles(url: str, prefix: str = "qualgate") -> list[tuple[str, str]]:
    """Run `roles_sql` in one transaction; return each role and its purpose. Raises UsageError for a file, and if the
    current role may not create roles."""
    if not is_postgresql(url):
        raise UsageError(f"roles are a database's: give --store with one ({FORMS.partition(', or ')[2]}); a file's "
                         "readers and writers are its system's users")  # fmt: skip
    with open_store(url, create=False) as store, store.write() as connection:
        schema = connection.exec_driver_sql("SELECT current_schema()").scalar_one()
        for statement in roles_sql(prefix, schema):
            connection.exec_driver_sql(statement.replace("%", "%%"))
    return [(f"{prefix}_{role}", what) for role, what in ROLES.items()]
