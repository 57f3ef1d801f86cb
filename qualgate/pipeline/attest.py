"""Make an attestation of a stored verdict, and the list of approvals that were revoked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from qualgate.config import GateFile
from qualgate.config.stored import stored_gate_file
from qualgate.errors import IntegrityError, UsageError
from qualgate.evalsets import name_of
from qualgate.pipeline.judged_folder import judged_files
from qualgate.pipeline.named_sets import load_set, set_refs
from qualgate.records import ArmIdentity, LmEvalTask, Policy
from qualgate.records.identity import content_hash
from qualgate.store import plain, queries
from qualgate.store.audit import check_signed
from qualgate.store.database import open_store
from qualgate.store.decisions import Decision, chain, overruled
from qualgate.store.evidence import check_evidence
from qualgate.store.evidence_seal import evidence_seal
from qualgate.store.queries import ArmLine, RunSummary, StoredVerdict
from qualgate.store.signatures import verdict_chain_at
from qualgate.store.signing.check import REVOKED, Expected
from qualgate.store.signing.envelope import sign
from qualgate.store.signing.keys import signing_key
from qualgate.store.signing.model_signing import Bundle, write_bundle
from qualgate.store.signing.statement import PAYLOAD, Attested, Result, statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundles:
    """Bundles of model-signing that `attest` reads and writes."""

    publisher: Bundle | None = None  # must list the folder's files
    out: Path | None = None  # where the new one will be written, perhaps into the folder
    key: Path | None = None  # private, of the new one; None: none is made


def attest(
    store_url: str,
    run_id: str | None,
    variant: str,
    folder: Path | None,
    days: float,
    out: Path | None = None,
    bundles: Bundles = Bundles(),
) -> tuple[str, Attested, str]:
    """Return the signed attestation of a variant's newest verdict, what it says, and the new bundle; "": none.

    Args:
        store_url: The store.
        run_id: The run; None: the newest.
        variant: The variant.
        folder: Where its files are now; None: where the run read them.
        days: How long the attestation holds.
        out: Where it will be written, perhaps into the folder.
        bundles: Bundles of model-signing.

    Raises:
        UsageError: There is no key, no verdict, no folder of which the verdict speaks, or nobody approved what a new
            bundle would list.
        IntegrityError: The stored evidence, or the folder, is not what was judged, or not what its publisher signed.
    """
    key = signing_key()
    with open_store(store_url, create=False) as store:
        run = queries.run_summary(store, run_id or queries.latest_run(store))
        stored, arm = _verdict(run, variant), next((arm for arm in run.arms if arm.name == variant), None)
        if stored is None or arm is None:
            raise UsageError(f"run {run.run_id} has no verdict on {variant!r}; there is nothing to attest.")
        if why := run.policy.decides_nothing:
            raise UsageError(f"run {run.run_id} is a {why}. It cannot be attested: make a run of all cases.")
        if stored.stale:
            raise UsageError(f"run {run.run_id} cannot be attested: {stored.stale}.")
        check_evidence(store, run.run_id)
        check_signed(store, run.run_id, all_decisions=True)
        path, files = judged_files(run.run_id, arm, folder, out, bundles.out)
        if bundles.publisher is not None and (fault := bundles.publisher.fault(path, files)):
            raise IntegrityError(f"{path}: {fault}")
        with store.read() as connection:
            seal, first = evidence_seal(connection, run.run_id), verdict_chain_at(connection, 1) or ""
        attested = _attested(run, stored, arm, path.resolve().name, files, days)
    text = sign(statement(replace(attested, evidence=seal, store=first)), PAYLOAD, key)
    return text, attested, _bundle(attested, path, bundles, out) if bundles.key is not None else ""


def _bundle(attested: Attested, path: Path, bundles: Bundles, out: Path | None) -> str:
    """Return the new bundle of a folder at `path`."""
    if bundles.key is None or attested.result != "PASSED":
        raise UsageError(
            f"{attested.variant} is {attested.result}. A bundle of model-signing lists files and says nothing of a "
            "verdict, so none is made of what was not approved by the gate or its policy."
        )
    beside = [file.resolve() for file in (out, bundles.out) if file is not None]
    inside = [file.relative_to(path.resolve()).as_posix() for file in beside if file.is_relative_to(path.resolve())]
    return write_bundle(attested.folder, attested.files, inside, bundles.key)


def revoked(store_url: str, days: float) -> tuple[str, int]:
    """Return the signed list of blocks and revocations, the newest of each variant, and their number. days: how long
    the list holds."""
    key, now = signing_key(), plain.now()
    with open_store(store_url, create=False) as store, store.read() as connection:
        newest = {(one.run_id, one.variant): one for one in chain(connection) if one.action != "approve"}
        first = verdict_chain_at(connection, 1) or ""
    listed = [
        {"run": one.run_id, "variant": one.variant, "at": one.created_at, "why": _words(one)} for one in newest.values()
    ]
    body = {"made": now, "until": _after(now, days), "store": first, "revoked": listed}
    return sign(body, REVOKED, key), len(listed)


def expected_of(gate: GateFile) -> Expected:
    """Return what an attestation must say to fit a gate file: its rules, how answers are drawn, and its evalsets, which
    are read. UsageError for an evalset that is not there."""
    sets = dict[str, str]()
    for ref in set_refs(gate):
        if isinstance(ref, LmEvalTask):
            sets[name_of(ref)] = ""  # its questions come from elsewhere
        else:
            loaded = load_set(ref, gate.path.parent)
            sets[f"{loaded.name} {loaded.version}"] = loaded.content
    policy = replace(gate.policy, four_arm=gate.four_arm)
    return Expected(
        policy=_policy_digest(policy),
        generation=_generation_digest(gate),
        evalsets=sets,
        rules=[rule.id for rule in policy.rules],
    )


def _policy_digest(policy: Policy) -> str:
    """Return the sha256 of what a gate file says about deciding, without what each run adds to it."""
    judge, arms = policy.judge, policy.four_arm
    own = replace(
        policy,
        feedback="",
        stop=None,
        trial=None,
        judge=judge and replace(judge, labels=""),
        four_arm=arms and replace(arms, seed=0, blocks=()),
    )
    return content_hash(plain.policy_to_json(own))


def _generation_digest(gate: GateFile) -> str:
    """Return the sha256 of the settings by which answers are drawn."""
    return content_hash([plain.to_json(gate.sampling), gate.repeats, gate.seed])


def _verdict(run: RunSummary, variant: str) -> StoredVerdict | None:
    return None if run.pruned else run.verdict(variant)


def _attested(
    run: RunSummary, stored: StoredVerdict, arm: ArmLine, folder: str, files: dict[str, str], days: float
) -> Attested:
    """Return what is to be signed, but for the evidence and the store."""
    verdict, now, decision = stored.verdict, plain.now(), stored.decision
    until = min(filter(None, (_after(now, days), decision.expires_at if decision else None)))
    specs, bases = [line.spec for line in run.arms], [run.arms[0].name, *stored.policy.references]
    against = [
        line.identity.content for line in run.arms if line.name in bases and isinstance(line.identity, ArmIdentity)
    ]
    gate = stored_gate_file(Path(run.gate_name or "gate.yaml"), run.gate_file, specs, (), run.policy, "")
    last = stored.decisions[-1] if stored.decisions else None
    return Attested(
        folder=folder,
        files=files,
        result=_result(stored),
        run=run.run_id,
        variant=verdict.variant,
        word=verdict.word,
        weights=arm.weights,
        verdict=stored.sha256,
        evidence="",
        policy=_policy_digest(stored.policy),
        generation=_generation_digest(gate),
        baseline=content_hash(against if bases[1:] else against[0]) if len(against) == len(bases) else "",
        engine=arm.identity.engine if arm.identity else "",
        evalsets={f"{line.name} {line.version}": line.content for line in run.evalsets},
        rules={one.rule if one.slice == "pooled" else f"{one.rule}: {one.slice}": one.status
               for one in verdict.comparisons},
        decided=_words(last) if last else "",
        made=now,
        until=until,
        store="",
    )  # fmt: skip


def _result(stored: StoredVerdict) -> Result:
    """Return the test result. The newest decision of a person counts, also one about an earlier verdict that is against
    the variant; without one, the gate's word, if one person's or nobody's approval is asked for."""
    last = stored.decisions[-1] if stored.decisions else None
    if last is not None and last.action != "approve":
        return "FAILED"
    if stored.decision is None:
        return "PASSED" if stored.verdict.word == "approve" and stored.policy.approvals == 1 else "FAILED"
    return "WARNED" if overruled(stored.verdict) else "PASSED"


def _words(decision: Decision) -> str:
    """Return who decided what, about which rule, and why, in one line."""
    rule = f", overruling {decision.overrules}" if decision.overrules else ""
    return f"{decision.by}: {decision.action}{rule}, {decision.reason}"


def _after(now: str, days: float) -> str:
    return plain.stamp(datetime.fromisoformat(now) + timedelta(days=days))
