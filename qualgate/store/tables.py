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
    Column("scoring", Integer, primary_key=True, server_default="0"),  # 0 = as recorded; else a row of `scorings`
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

scorings = Table(  # append-only: a whole run scored again; the newest counts, in every arm
    "scorings",
    metadata,
    Column("run_id", String(64), ForeignKey("runs.run_id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),  # from 1
    Column("created_at", String(32), nullable=False),
    Column("scorers_json", Text, nullable=False),  # metric → name and version
    Column("evalsets_json", Text),  # sets that it read otherwise, see `rescored_sets`; NULL: as they were recorded
    Column("sha256", String(64), nullable=False),  # of this row, the run's units and their scores in this scoring
)

stoppings = Table(  # append-only: a variant whose verdict was settled before its list was done
    "stoppings",
    metadata,
    Column("run_id", String(64), primary_key=True),
    Column("variant", String(200), primary_key=True),
    Column("look", Integer, nullable=False),  # from 1
    Column("seen", Integer, nullable=False),  # units of the variant's that the look rests on, the first of the order
    Column("word", String(16), nullable=False),
    Column("order_sha256", String(64), nullable=False),  # of the order of cases, which the policy's seed gives
    Column("policy_sha256", String(64), nullable=False),  # of the run's
    Column("created_at", String(32), nullable=False),
    Column("sha256", String(64), nullable=False),  # of this row
    ForeignKeyConstraint(["run_id", "variant"], ["arms.run_id", "arms.name"]),
)

judgements = Table(  # append-only: what a judge replied to two answers in one order, as it came
    "judgements",
    metadata,
    Column("run_id", String(64), ForeignKey("runs.run_id"), primary_key=True),
    Column("judge", String(64), primary_key=True),  # its version
    Column("variant", String(200), primary_key=True),  # "" of its labelled sample
    Column("evalset", String(200), primary_key=True),
    Column("case_id", String(400), primary_key=True),
    Column("repeat", Integer, primary_key=True, autoincrement=False),
    Column("swapped", Integer, primary_key=True, autoincrement=False),  # 1: the variant's answer was shown first
    Column("asked", String(64), nullable=False),  # sha256 of the request
    Column("reply", Text),  # NULL where none came, and `error` says why
    Column("error", Text, nullable=False),
    Column("served", Text, nullable=False),  # what its server said of itself
    Column("label", Text, nullable=False),  # JSON of the label; "" of a run's pair
    Column("sha256", String(64), nullable=False),  # of this row
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
    Index(None, "run_id", "variant"),
)

decisions = Table(  # append-only, a hash chain
    "decisions",
    metadata,
    Column("decision_id", Integer, primary_key=True),
    Column("run_id", String(64), ForeignKey("runs.run_id"), nullable=False),
    Column("variant", String(200), nullable=False),
    Column("verdict_sha256", String(64), nullable=False),
    Column("action", String(16), nullable=False),  # approve, block
    Column("name", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("created_at", String(32), nullable=False),
    Column("prev_hash", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    UniqueConstraint("prev_hash"),
    UniqueConstraint("hash"),
    Index(None, "run_id", "variant"),
)

prunings = Table(  # append-only: a run whose answers and scores were taken out for good
    "prunings",
    metadata,
    Column("run_id", String(64), ForeignKey("runs.run_id"), primary_key=True),
    Column("created_at", String(32), nullable=False),
    Column("rest_sha256", String(64), nullable=False),  # of every row of the run that stayed
    Column("sha256", String(64), nullable=False),  # of this row
)

loads = Table(  # append-only: what `qualgate load` measured and its rules said. No run, and no verdict on one
    "loads",
    metadata,
    Column("load_id", String(64), primary_key=True),
    Column("created_at", String(32), nullable=False),
    Column("gate_name", Text, nullable=False),
    Column("gate_file", Text, nullable=False),
    Column("policy_sha256", String(64), nullable=False),  # of its rules, limits, levels and definitions
    Column("exit", Integer, nullable=False),
    Column("body_json", Text, nullable=False),  # as load.json has it
    Column("sha256", String(64), nullable=False),  # of this row
    Index(None, "created_at"),
)

require(metadata)
