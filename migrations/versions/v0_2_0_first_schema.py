"""The tables of version 0.2.0, and the rows among them that the database itself keeps as they are.

A store of version 0.1 is not upgraded. Steps of later versions follow this one; what stands here stays as it is.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0.2.0"
down_revision = None

APPEND_ONLY = ("decisions", "sealed", "verdicts")

tables = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)
sa.Table(
    "cases",
    tables,
    sa.Column("case_hash", sa.String(64), primary_key=True),
    sa.Column("body_json", sa.Text(), nullable=False),
)
sa.Table(
    "digests",
    tables,
    sa.Column("digest_id", sa.Integer(), primary_key=True),
    sa.Column("nightly", sa.String(200), nullable=False),
    sa.Column("created_at", sa.String(32), nullable=False),
    sa.Column("target", sa.String(320), nullable=False),
    sa.Column("last_night", sa.Integer(), nullable=False),
    sa.Column("body_json", sa.Text(), nullable=False),
    sa.Column("attempts", sa.Integer(), nullable=False),
    sa.Column("error", sa.Text(), nullable=False),
    sa.Column("delivered_at", sa.String(32)),
    sa.Index(None, "delivered_at"),
)
sa.Table(
    "runs",
    tables,
    sa.Column("run_id", sa.String(64), primary_key=True),
    sa.Column("plan_key", sa.String(64), nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("created_at", sa.String(32), nullable=False),
    sa.Column("finished_at", sa.String(32)),
    sa.Column("gate_file", sa.Text(), nullable=False),
    sa.Column("policy_json", sa.Text(), nullable=False),
    sa.Column("expected_sha256", sa.String(64), nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.Column("gate_name", sa.Text()),
    sa.Column("made_by", sa.Text()),
    sa.Column("judging_json", sa.Text()),
    sa.Index(None, "created_at"),
    sa.Index(None, "plan_key", "status"),
)
sa.Table(
    "arms",
    tables,
    sa.Column("run_id", sa.String(64), sa.ForeignKey("runs.run_id"), primary_key=True),
    sa.Column("name", sa.String(200), primary_key=True),
    sa.Column("position", sa.Integer(), nullable=False),
    sa.Column("spec_json", sa.Text(), nullable=False),
    sa.Column("planned_json", sa.Text(), nullable=False),
    sa.Column("observed_json", sa.Text()),
    sa.Column("footprint_json", sa.Text()),
    sa.Column("sha256", sa.String(64), nullable=False),
)
sa.Table(
    "decisions",
    tables,
    sa.Column("decision_id", sa.Integer(), primary_key=True),
    sa.Column("run_id", sa.String(64), sa.ForeignKey("runs.run_id"), nullable=False),
    sa.Column("variant", sa.String(200), nullable=False),
    sa.Column("verdict_sha256", sa.String(64), nullable=False),
    sa.Column("action", sa.String(16), nullable=False),
    sa.Column("name", sa.Text(), nullable=False),
    sa.Column("reason", sa.Text(), nullable=False),
    sa.Column("overrules", sa.Text(), nullable=False),
    sa.Column("signed_in", sa.Text(), nullable=False),
    sa.Column("expires_at", sa.String(32)),
    sa.Column("needed", sa.Integer(), nullable=False),
    sa.Column("created_at", sa.String(32), nullable=False),
    sa.Column("prev_hash", sa.String(64), nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
    sa.Column("signature", sa.Text()),
    sa.UniqueConstraint("hash"),
    sa.UniqueConstraint("prev_hash"),
    sa.Index(None, "run_id", "variant"),
)
sa.Table(
    "evalsets",
    tables,
    sa.Column("run_id", sa.String(64), sa.ForeignKey("runs.run_id"), primary_key=True),
    sa.Column("name", sa.String(200), primary_key=True),
    sa.Column("position", sa.Integer(), nullable=False),
    sa.Column("version", sa.String(64), nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.Column("metrics_json", sa.Text(), nullable=False),
    sa.Column("lenient_json", sa.Text(), nullable=False),
    sa.Column("normalizers_json", sa.Text(), nullable=False),
    sa.Column("description", sa.Text(), nullable=False),
)
sa.Table(
    "sealed",
    tables,
    sa.Column("sealed_id", sa.Integer(), primary_key=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("run_id", sa.String(64), sa.ForeignKey("runs.run_id")),
    sa.Column("name", sa.String(200), nullable=False),
    sa.Column("part", sa.Text(), nullable=False),
    sa.Column("at", sa.String(32), nullable=False),
    sa.Column("body_json", sa.Text(), nullable=False),
    sa.Column("key", sa.String(64), nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.UniqueConstraint("key"),
    sa.Index(None, "run_id", "kind"),
    sa.Index(None, "kind", "name"),
)
sa.Table(
    "verdicts",
    tables,
    sa.Column("verdict_id", sa.Integer(), primary_key=True),
    sa.Column("run_id", sa.String(64), sa.ForeignKey("runs.run_id"), nullable=False),
    sa.Column("variant", sa.String(200), nullable=False),
    sa.Column("word", sa.String(16), nullable=False),
    sa.Column("created_at", sa.String(32), nullable=False),
    sa.Column("policy_json", sa.Text(), nullable=False),
    sa.Column("policy_sha256", sa.String(64), nullable=False),
    sa.Column("body_json", sa.Text(), nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.Column("signature", sa.Text()),
    sa.Index(None, "run_id", "variant"),
)
sa.Table(
    "units",
    tables,
    sa.Column("unit_id", sa.Integer(), primary_key=True),
    sa.Column("run_id", sa.String(64), nullable=False),
    sa.Column("arm", sa.String(200), nullable=False),
    sa.Column("evalset", sa.String(200), nullable=False),
    sa.Column("case_id", sa.String(400), nullable=False),
    sa.Column("repeat", sa.Integer(), nullable=False),
    sa.Column("case_hash", sa.String(64), sa.ForeignKey("cases.case_hash"), nullable=False),
    sa.Column("cluster", sa.String(400)),
    sa.Column("status", sa.String(8), nullable=False),
    sa.Column("attempts", sa.Integer(), nullable=False),
    sa.Column("error", sa.Text(), nullable=False),
    sa.Column("text", sa.Text()),
    sa.Column("finish_reason", sa.String(8)),
    sa.Column("prompt_tokens", sa.Integer()),
    sa.Column("answer_tokens", sa.Integer()),
    sa.Column("ttft", sa.Float()),
    sa.Column("e2e", sa.Float()),
    sa.Column("baseline_proposed", sa.Integer()),
    sa.Column("baseline_accepted", sa.Integer()),
    sa.Column("kernel", sa.String(200)),
    sa.Column("top1_agreement", sa.Float()),
    sa.Column("first_divergence", sa.Integer()),
    sa.Column("length_ratio", sa.Float()),
    sa.Column("token_ids", sa.LargeBinary()),
    sa.Column("logprobs", sa.LargeBinary()),
    sa.Column("margins", sa.LargeBinary()),
    sa.Column("kl", sa.LargeBinary()),
    sa.Column("kl_eta", sa.Float()),
    sa.Column("job", sa.Integer()),
    sa.Column("draft_proposed", sa.Integer()),
    sa.Column("draft_accepted", sa.Integer()),
    sa.Column("began", sa.Float()),
    sa.Column("constraint_masked", sa.Float()),
    sa.Column("max_gap", sa.Float()),
    sa.Column("thought_tokens", sa.Integer()),
    sa.Column("calls", sa.Text()),
    sa.Column("reply", sa.String(24)),
    sa.Column("kl_upper", sa.LargeBinary()),
    sa.Column("answer_sha256", sa.String(64)),
    sa.Column("sha256", sa.String(64)),
    sa.ForeignKeyConstraint(["run_id", "arm"], ["arms.run_id", "arms.name"]),
    sa.ForeignKeyConstraint(["run_id", "evalset"], ["evalsets.run_id", "evalsets.name"]),
    sa.UniqueConstraint("run_id", "arm", "evalset", "case_id", "repeat"),
    sa.Index(None, "run_id", "arm", "status", "kernel"),
)
sa.Table(
    "draft_steps",
    tables,
    sa.Column("unit_id", sa.Integer(), sa.ForeignKey("units.unit_id"), primary_key=True),
    sa.Column("step", sa.Integer(), primary_key=True),
    sa.Column("level", sa.Integer(), nullable=False),
    sa.Column("position", sa.Integer(), nullable=False),
    sa.Column("proposed", sa.Integer(), nullable=False),
    sa.Column("accepted", sa.Integer(), nullable=False),
    sa.Column("rejected", sa.Integer(), nullable=False),
    sa.Column("unverified", sa.Integer(), nullable=False),
    sa.Column("proposer", sa.String(64), nullable=False),
    sa.Column("pass_number", sa.Integer()),
    sa.Column("sequences", sa.Integer()),
    sa.Column("overlap", sa.Float()),
    sqlite_with_rowid=False,
)
sa.Table(
    "scores",
    tables,
    sa.Column("unit_id", sa.Integer(), sa.ForeignKey("units.unit_id"), primary_key=True),
    sa.Column("metric", sa.String(64), primary_key=True),
    sa.Column("scoring", sa.Integer(), primary_key=True, server_default="0"),
    sa.Column("value", sa.Float()),
    sa.Column("verdict", sa.Boolean()),
    sa.Column("error_type", sa.String(64), nullable=False),
    sa.Column("extracted", sa.Text()),
    sa.Column("reason", sa.Text(), nullable=False),
    sa.Column("scorer", sa.String(64), nullable=False),
)


def upgrade() -> None:
    """Make every table, and refuse to change or delete rows that are history."""
    tables.create_all(op.get_bind(), checkfirst=False)
    if op.get_context().dialect.name == "sqlite":
        for table in APPEND_ONLY:
            for verb in ("UPDATE", "DELETE"):
                op.execute(
                    f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
                    f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
                )
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
    """Raise NotImplementedError: a store is copied before an upgrade, and never downgraded."""
    raise NotImplementedError("going back would lose every run; delete the store's file if that is what you want")
