"""Rows that are never changed, on PostgreSQL too. Stores in a file have had their triggers since their tables."""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0014"

APPEND_ONLY = ("decisions", "judgements", "scorings", "stoppings", "verdicts")


def upgrade() -> None:
    """Refuse UPDATE, DELETE and TRUNCATE. A later migration that makes such a table adds its trigger likewise."""
    if op.get_context().dialect.name != "postgresql":
        return
    op.execute(
        "CREATE FUNCTION qualgate_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'restrict_violation'; END $$"
    )
    for table in APPEND_ONLY:
        op.execute(
            f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION qualgate_append_only()"
        )
        op.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {table}_append_only")  # whatever a session's role is


def downgrade() -> None:
    """Raises NotImplementedError: a store is copied before it is upgraded, never taken back."""
    raise NotImplementedError("going back would lose every run; delete the store's file if that is what you want")
