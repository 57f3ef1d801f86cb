"""The first schema: runs with their closed list of units, scores, append-only verdicts, the chain of decisions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

APPEND_ONLY = ("decisions", "verdicts")


def upgrade() -> None:
    """Create the tables of the first version."""
    op.create_table(
        "cases",
        sa.Column("case_hash", sa.String(length=64), nullable=False),
        sa.Column("body_json", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("case_hash", name="pk_cases"),
    )
    op.create_table(
        "runs",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("plan_key", sa.String(length=64), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("finished_at", sa.String(length=32)),
        sa.Column("gate_file", sa.Text(), nullable=False),
        sa.Column("policy_json", sa.Text(), nullable=False),
        sa.Column("expected_sha256", sa.String(length=64), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_runs"),
    )
    op.create_index("ix_runs_created_at", "runs", ["created_at"])
    op.create_index("ix_runs_plan_key_status", "runs", ["plan_key", "status"])
    op.create_table(
        "arms",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("spec_json", sa.Text(), nullable=False),
        sa.Column("planned_json", sa.Text(), nullable=False),
        sa.Column("observed_json", sa.Text()),
        sa.Column("footprint_json", sa.Text()),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_arms_run_id_runs"),
        sa.PrimaryKeyConstraint("run_id", "name", name="pk_arms"),
    )
    op.create_table(
        "decisions",
        sa.Column("decision_id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("variant", sa.String(length=200), nullable=False),
        sa.Column("verdict_sha256", sa.String(length=64), nullable=False),
        sa.Column("action", sa.String(length=16), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("prev_hash", sa.String(length=64), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_decisions_run_id_runs"),
        sa.PrimaryKeyConstraint("decision_id", name="pk_decisions"),
        sa.UniqueConstraint("hash", name="uq_decisions_hash"),
        sa.UniqueConstraint("prev_hash", name="uq_decisions_prev_hash"),
    )
    op.create_index("ix_decisions_run_id_variant", "decisions", ["run_id", "variant"])
    op.create_table(
        "evalsets",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("version", sa.String(length=64), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("metrics_json", sa.Text(), nullable=False),
        sa.Column("lenient_json", sa.Text(), nullable=False),
        sa.Column("normalizers_json", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_evalsets_run_id_runs"),
        sa.PrimaryKeyConstraint("run_id", "name", name="pk_evalsets"),
    )
    op.create_table(
        "verdicts",
        sa.Column("verdict_id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("variant", sa.String(length=200), nullable=False),
        sa.Column("word", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("policy_json", sa.Text(), nullable=False),
        sa.Column("policy_sha256", sa.String(length=64), nullable=False),
        sa.Column("body_json", sa.Text(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_verdicts_run_id_runs"),
        sa.PrimaryKeyConstraint("verdict_id", name="pk_verdicts"),
    )
    op.create_index("ix_verdicts_run_id_variant", "verdicts", ["run_id", "variant"])
    op.create_table(
        "units",
        sa.Column("unit_id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("arm", sa.String(length=200), nullable=False),
        sa.Column("evalset", sa.String(length=200), nullable=False),
        sa.Column("case_id", sa.String(length=400), nullable=False),
        sa.Column("repeat", sa.Integer(), nullable=False),
        sa.Column("case_hash", sa.String(length=64), nullable=False),
        sa.Column("cluster", sa.String(length=400)),
        sa.Column("status", sa.String(length=8), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("text", sa.Text()),
        sa.Column("finish_reason", sa.String(length=8)),
        sa.Column("prompt_tokens", sa.Integer()),
        sa.Column("answer_tokens", sa.Integer()),
        sa.Column("ttft", sa.Float()),
        sa.Column("e2e", sa.Float()),
        sa.Column("draft_proposed", sa.Integer()),
        sa.Column("draft_accepted", sa.Integer()),
        sa.Column("top1_agreement", sa.Float()),
        sa.Column("first_divergence", sa.Integer()),
        sa.Column("length_ratio", sa.Float()),
        sa.Column("token_ids", sa.LargeBinary()),
        sa.Column("logprobs", sa.LargeBinary()),
        sa.Column("margins", sa.LargeBinary()),
        sa.Column("kl", sa.LargeBinary()),
        sa.Column("answer_sha256", sa.String(length=64)),
        sa.Column("sha256", sa.String(length=64)),
        sa.ForeignKeyConstraint(["case_hash"], ["cases.case_hash"], name="fk_units_case_hash_cases"),
        sa.ForeignKeyConstraint(["run_id", "arm"], ["arms.run_id", "arms.name"], name="fk_units_run_id_arm_arms"),
        sa.ForeignKeyConstraint(
            ["run_id", "evalset"], ["evalsets.run_id", "evalsets.name"], name="fk_units_run_id_evalset_evalsets"
        ),
        sa.PrimaryKeyConstraint("unit_id", name="pk_units"),
        sa.UniqueConstraint(
            "run_id", "arm", "evalset", "case_id", "repeat", name="uq_units_run_id_arm_evalset_case_id_repeat"
        ),
    )
    op.create_index("ix_units_run_id_arm_status", "units", ["run_id", "arm", "status"])
    op.create_table(
        "scores",
        sa.Column("unit_id", sa.Integer(), nullable=False),
        sa.Column("metric", sa.String(length=64), nullable=False),
        sa.Column("value", sa.Float()),
        sa.Column("verdict", sa.Boolean()),
        sa.Column("error_type", sa.String(length=64), nullable=False),
        sa.Column("extracted", sa.Text()),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("scorer", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["unit_id"], ["units.unit_id"], name="fk_scores_unit_id_units"),
        sa.PrimaryKeyConstraint("unit_id", "metric", name="pk_scores"),
    )
    if op.get_context().dialect.name == "sqlite":
        for table in APPEND_ONLY:
            for verb in ("UPDATE", "DELETE"):
                op.execute(
                    f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
                    f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
                )


def downgrade() -> None:
    """Raises NotImplementedError: a store is copied before it is upgraded, never taken back."""
    raise NotImplementedError("going back would lose every run; delete the store's file if that is what you want")
