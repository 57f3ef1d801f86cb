"""A store as an earlier revision held it: what later ones made is taken out."""

from __future__ import annotations

import sqlite3


def drop_columns_of_0020(connection: sqlite3.Connection) -> None:
    narrow_index_of_0021(connection)
    for column in ("pass_number", "sequences", "overlap"):
        connection.execute(f"alter table draft_steps drop column {column}")


def take_out_0022(connection: sqlite3.Connection) -> None:
    connection.execute("drop table if exists loads")
    if any(row[1] == "judging_json" for row in connection.execute("pragma table_info(runs)")):
        connection.execute("alter table runs drop column judging_json")


def narrow_index_of_0021(connection: sqlite3.Connection) -> None:
    take_out_0022(connection)
    connection.execute("drop index if exists ix_units_run_id_arm_status_kernel")
    connection.execute("create index if not exists ix_units_run_id_arm_status on units (run_id, arm, status)")


def drop_later_tables(connection: sqlite3.Connection) -> None:
    """Those that 0014 and what comes after it made, and the columns that 0018 and 0020 did; the index is 0020's."""
    narrow_index_of_0021(connection)
    connection.execute("alter table units drop column thought_tokens")
    if connection.execute("select 1 from sqlite_master where name = 'draft_steps'").fetchone():
        drop_columns_of_0020(connection)
    later = (
        "archives",
        "digests",
        "nights",
        "judgements",
        "refusals",
        "submission_files",
        "submissions",
        "nodes",
        "queue",
    )
    for table in later:
        connection.execute(f"drop table {table}")
