"""The tables. Every constraint is named, so that a later migration can drop it on any database.

Times are UTC text in ISO 8601 with microseconds, so that they sort and read the same everywhere.
A column ending in `_json` holds the plain form of a frozen record (see `plain.py`).
"""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, ForeignKeyConstraint, Index, MetaData, Table, UniqueConstraint

from qualgate.store.columns import Boolean, Float, Floats, Integer, LargeBinary, String, Text, require

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

runs = Table(
    "runs",
    metadata,
    Column("run_id", String(64), primary_key=True),
    Column("plan_key", String(64), nullable=False),
    Column("status", String(16), nullable=False),  # running, complete, incomplete
    Column("created_at", String(32), nullable=False),
    Column("finished_at", String(32)),
    Column("gate_file", Text, nullable=False),
    Column("policy_json", Text, nullable=False),
    Column("expected_sha256", String(64), nullable=False),  # seals the closed list: evalsets and units
    Column("sha256", String(64), nullable=False),  # seals what the run was asked: gate file, policy, closed list
    Column("gate_name", Text),  # of the gate file
    Column("made_by", Text),  # see `planned.maker`; NULL: not known
    Column("judging_json", Text),  # what asking its judge came to, which is no evidence; NULL where that is not known
    Index(None, "plan_key", "status"),
    Index(None, "created_at"),
)

evalsets = Table(
    "evalsets",
    metadata,
    Column("run_id", String(64), ForeignKey("runs.run_id"), primary_key=True),
    Column("name", String(200), primary_key=True),
    Column("position", Integer, nullable=False),
    Column("version", String(64), nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("metrics_json", Text, nullable=False),
    Column("lenient_json", Text, nullable=False),
    Column("normalizers_json", Text, nullable=False),
    Column("description", Text, nullable=False),
)

cases = Table(
    "cases",
    metadata,
    Column("case_hash", String(64), primary_key=True),
    Column("body_json", Text, nullable=False),
)

arms = Table(
    "arms",
    metadata,
    Column("run_id", String(64), ForeignKey("runs.run_id"), primary_key=True),
    Column("name", String(200), primary_key=True),
    Column("position", Integer, nullable=False),  # 0 = the baseline
    Column("spec_json", Text, nullable=False),
    Column("planned_json", Text, nullable=False),  # identity before the run
    Column("observed_json", Text),  # identity as a worker loaded it; NULL until a job of the arm finished
    Column("footprint_json", Text),
    Column("sha256", String(64), nullable=False),  # of this row
)

units = Table(
    "units",
    metadata,
    Column("unit_id", Integer, primary_key=True),
    Column("run_id", String(64), nullable=False),
    Column("arm", String(200), nullable=False),
    Column("evalset", String(200), nullable=False),
    Column("case_id", String(400), nullable=False),
    Column("repeat", Integer, nullable=False),
    Column("case_hash", String(64), ForeignKey("cases.case_hash"), nullable=False),
    Column("cluster", String(400)),
    Column("status", String(8), nullable=False),  # pending, done, error, settled (see `stoppings.py`)
    Column("attempts", Integer, nullable=False),
    Column("error", Text, nullable=False),
    Column("text", Text),  # from here on NULL unless done
    Column("finish_reason", String(8)),
    Column("prompt_tokens", Integer),
    Column("answer_tokens", Integer),
    Column("ttft", Float),
    Column("e2e", Float),
    Column("baseline_proposed", Integer),  # this and the next: the baseline's answer as a draft (not speculation)
    Column("baseline_accepted", Integer),
    Column("kernel", String(200)),  # what multiplied the packed weights
    Column("top1_agreement", Float),  # this and the next two: drift, variants only
    Column("first_divergence", Integer),
    Column("length_ratio", Float),
    Column("token_ids", LargeBinary),  # little-endian int32
    Column("logprobs", Floats),  # this and the next two: little-endian float64
    Column("margins", Floats),
    Column("kl", Floats),  # its signs: see `seal.pack_kl`
    Column("kl_eta", Float),  # certifies `kl`; NULL where that is exact
    Column("job", Integer),  # which of its arm's batches it ran in
    Column("draft_proposed", Integer),  # this and the next: by the arm's own speculation; NULL where nobody counted
    Column("draft_accepted", Integer),
    Column("began", Float),  # s since the epoch, when that batch began
    Column("constraint_masked", Float),  # mean share left out by the case's constraint; NULL without one
    Column("max_gap", Float),  # s, longest between two tokens; NULL of fewer
    Column("thought_tokens", Integer),  # -1: nobody counted; NULL where its case has no thought
    Column("calls", Text),  # [[name, arguments as text]] by an arm's server; NULL where it was asked for none
    Column("reply", String(24)),  # hashes that tell a server's reply from others, see Completion; NULL without an id
    Column("kl_upper", Floats),  # float64 likewise, where `kl` is a lower bound; NULL where it is the KL
    Column("answer_sha256", String(64)),  # what was said and how it was scored
    Column("sha256", String(64)),  # that and everything measured
    UniqueConstraint("run_id", "arm", "evalset", "case_id", "repeat"),
    Index(None, "run_id", "arm", "status", "kernel"),  # counts and kernels are read from the index alone
    ForeignKeyConstraint(["run_id", "arm"], ["arms.run_id", "arms.name"]),
    ForeignKeyConstraint(["run_id", "evalset"], ["evalsets.run_id", "evalsets.name"]),
)

scores = Table(
    "scores",
    metadata,
    Column("unit_id", Integer, ForeignKey("units.unit_id"), primary_key=True),
    Column("metric", String(64), primary_key=True),
    Column("scoring", Integer, primary_key=True, server_default="0"),  # 0 = as recorded; else a later scoring
    Column("value", Float),
    Column("verdict", Boolean),
    Column("error_type", String(64), nullable=False),
    Column("extracted", Text),
    Column("reason", Text, nullable=False),
    Column("scorer", String(64), nullable=False),
)

draft_steps = Table(  # of units whose arm speculates: what one pass made of one draft, at one level
    "draft_steps",
    metadata,
    Column("unit_id", Integer, ForeignKey("units.unit_id"), primary_key=True),
    Column("step", Integer, primary_key=True),  # from 0, as the engine told them
    Column("level", Integer, nullable=False),  # 1: verified by the target; 2: by level 1's draft, ...
    Column("position", Integer, nullable=False),  # in the answer, of the first token proposed
    Column("proposed", Integer, nullable=False),  # accepted + rejected + discarded
    Column("accepted", Integer, nullable=False),
    Column("rejected", Integer, nullable=False),  # 0 or 1: the first that the verifier says otherwise
    Column("unverified", Integer, nullable=False),  # beside `proposed`: never offered
    Column("proposer", String(64), nullable=False),
    Column("pass_number", Integer),  # these three: NULL where nothing is to be told
    Column("sequences", Integer),  # that shared the pass
    Column("overlap", Float),  # Σ min(p, q) over the tokens tested
    sqlite_with_rowid=False,  # the key is the table: no index beside it
)

sealed = Table(  # append-only: records of the kinds of `sealed.py`
    "sealed",
    metadata,
    Column("sealed_id", Integer, primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("run_id", String(64), ForeignKey("runs.run_id")),  # NULL of loads, and of nights without a run
    Column("name", String(200), nullable=False),  # a load's gate file, a nightly file, judge, case_hash or reviewer
    Column("part", Text, nullable=False),  # which of that name, as its kind writes it
    Column("at", String(32), nullable=False),  # when it was made; of a night, when it was due
    Column("body_json", Text, nullable=False),  # the record
    Column("key", String(64), nullable=False),  # hash of what no second row of the kind may share
    Column("sha256", String(64), nullable=False),  # of this row
    UniqueConstraint("key"),
    Index(None, "run_id", "kind"),
    Index(None, "kind", "name"),
)

verdicts = Table(  # append-only
    "verdicts",
    metadata,
    Column("verdict_id", Integer, primary_key=True),
    Column("run_id", String(64), ForeignKey("runs.run_id"), nullable=False),
    Column("variant", String(200), nullable=False),
    Column("word", String(16), nullable=False),
    Column("created_at", String(32), nullable=False),
    Column("policy_json", Text, nullable=False),
    Column("policy_sha256", String(64), nullable=False),
    Column("body_json", Text, nullable=False),
    Column("sha256", String(64), nullable=False),  # of run, policy and body
    Column("signature", Text),  # see `signatures.py`; NULL: nobody's key signed it
    Index(None, "run_id", "variant"),
)

decisions = Table(  # append-only, a hash chain
    "decisions",
    metadata,
    Column("decision_id", Integer, primary_key=True),
    Column("run_id", String(64), ForeignKey("runs.run_id"), nullable=False),
    Column("variant", String(200), nullable=False),
    Column("verdict_sha256", String(64), nullable=False),
    Column("action", String(16), nullable=False),  # approve, block, revoke
    Column("name", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("overrules", Text, nullable=False),  # the rule that an approval overrules; "": none
    Column("signed_in", Text, nullable=False),  # who, as the login provider names them; "": unauthenticated
    Column("expires_at", String(32)),  # of an approval; NULL: it does not expire
    Column("needed", Integer, nullable=False),  # approvals by other people that are still needed; 0: it counts
    Column("created_at", String(32), nullable=False),
    Column("prev_hash", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    Column("signature", Text),  # as of a verdict
    UniqueConstraint("prev_hash"),
    UniqueConstraint("hash"),
    Index(None, "run_id", "variant"),
)

digests = Table(  # of nights, one row for each target: it changes until it is delivered
    "digests",
    metadata,
    Column("digest_id", Integer, primary_key=True),
    Column("nightly", String(200), nullable=False),
    Column("created_at", String(32), nullable=False),
    Column("target", String(320), nullable=False),  # slack, webhook, mail:ADDRESS, no secret; "" nobody
    Column("last_night", Integer, nullable=False),  # the digest covers the nights up to this one; 0: none
    Column("body_json", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("error", Text, nullable=False),  # why the last attempt failed
    Column("delivered_at", String(32)),  # NULL: still to be sent
    Index(None, "delivered_at"),
)

require(metadata)
