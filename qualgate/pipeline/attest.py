"""Make an attestation of a stored verdict, and the list of approvals that were revoked."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from qualgate.config import GateFile
from qualgate.engine.identity import weights_hash
from qualgate.errors import IntegrityError, UsageError
from qualgate.quant.model_folder import ModelFolder, read_model_folder
from qualgate.records import ArmIdentity, ArmSpec, Policy
from qualgate.records.identity import content_hash
from qualgate.store import plain, queries
from qualgate.store.audit import check_signed, head
from qualgate.store.database import open_store
from qualgate.store.decisions import Decision, chain, overruled
from qualgate.store.evidence import check_evidence
from qualgate.store.evidence_seal import evidence_seal
from qualgate.store.queries import ArmLine, RunSummary, StoredVerdict
from qualgate.store.signing.check import REVOKED
from qualgate.store.signing.envelope import sign
from qualgate.store.signing.keys import KEY, own_key
from qualgate.store.signing.manifest import manifest_of
from qualgate.store.signing.statement import PAYLOAD, Attested, Result, statement


def attest(store_url: str, run_id: str | None, variant: str, folder: Path | None, days: float) -> tuple[str, Attested]:
    """Return the signed attestation of a variant's newest verdict, and what it says.

    Args:
        store_url: The store.
        run_id: The run; None: the newest.
        variant: The variant.
        folder: Where its files are now; None: where the run read them.
        days: How long the attestation holds.

    Raises:
        UsageError: There is no key, no verdict, or no folder of which the verdict speaks.
        IntegrityError: The stored evidence, or the folder, is not what was judged.
    """
    key = _key()
    with open_store(store_url, create=False) as store:
        run = queries.run_summary(store, run_id or queries.latest_run(store))
        stored, arm = _verdict(run, variant), next((arm for arm in run.arms if arm.name == variant), None)
        if stored is None or arm is None:
            raise UsageError(f"run {run.run_id} has no verdict on {variant!r}; there is nothing to attest.")
        if why := run.policy.decides_nothing:
            raise UsageError(f"run {run.run_id} is a {why}. It cannot be attested: make a run of all cases.")
        check_evidence(store, run.run_id)
        check_signed(store, run.run_id)
        model = _judged_folder(run.run_id, arm, folder)
        with store.read() as connection:
            seal = evidence_seal(connection, run.run_id)
        said = _attested(run, stored, arm, model, seal, days)
        said = replace(said, audit=head(store).decisions_sha256)
    return sign(statement(said), PAYLOAD, key), said


def revoked(store_url: str, days: float) -> tuple[str, int]:
    """Return the signed list of variants whose newest decision is a block or a revocation, and their number. days: how
    long the list holds."""
    key, now = _key(), plain.now()
    with open_store(store_url, create=False) as store, store.read() as connection:
        newest = {(one.run_id, one.variant): one for one in chain(connection)}
    listed = [
        {"run": one.run_id, "variant": one.variant, "at": one.created_at, "why": _words(one)}
        for one in newest.values()
        if one.action != "approve"
    ]
    return sign({"made": now, "until": _after(now, days), "revoked": listed}, REVOKED, key), len(listed)


def policy_digest(policy: Policy) -> str:
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


def policy_of(gate: GateFile) -> str:
    """Return `policy_digest` of a gate file's rules."""
    return policy_digest(replace(gate.policy, four_arm=gate.four_arm))


def _key() -> Any:
    if (key := own_key()) is None:
        raise UsageError(
            f"there is no key to sign with: set {KEY} to the file of one. `qualgate key new FILE` makes one."
        )
    return key


def _verdict(run: RunSummary, variant: str) -> StoredVerdict | None:
    return None if run.pruned else run.verdict(variant)


def _judged_folder(run_id: str, arm: ArmLine, folder: Path | None) -> ModelFolder:
    """Return the variant's folder, after comparing it with what the run loaded. UsageError for a variant that is no
    folder by itself."""
    if why := _not_a_folder(arm.spec):
        raise UsageError(
            f"{arm.name!r} of run {run_id} cannot be attested: {why}. Make it a folder of its own, for example by "
            "`qualgate quantize`, and judge that."
        )
    if arm.identity is None:
        raise UsageError(f"{arm.name!r} of run {run_id} was never loaded; there is nothing to attest.")
    spec = arm.spec
    model = read_model_folder(folder or Path(spec.model), read_as=spec.read_as)
    found: dict[str, str] = {
        "weights": weights_hash(spec, model),
        "config": model.config_sha256,
        "tokenizer": model.tokenizer_sha256,
        "template": model.template_sha256,
    }
    other = [name for name, digest in found.items() if getattr(arm.identity, name) != digest]
    if other:
        raise IntegrityError(
            f"{model.path}: its {', '.join(other)} {'is' if len(other) == 1 else 'are'} not what run {run_id} judged. "
            "Judge this folder, or give the one that was judged: --folder"
        )
    return model


def _not_a_folder(spec: ArmSpec) -> str:
    """Return why an arm is no folder by itself; "" if it is one."""
    if spec.served is not None:
        return "only its server knows its files"
    if spec.quantize is not None:
        return "its weights were quantized on the spot"
    return "it is a folder and an adapter" if spec.adapter is not None else ""


def _attested(
    run: RunSummary, stored: StoredVerdict, arm: ArmLine, model: ModelFolder, seal: str, days: float
) -> Attested:
    """Return what is to be signed, without the head of the store."""
    verdict, now, decision = stored.verdict, plain.now(), stored.decision
    until = min(filter(None, (_after(now, days), decision.expires_at if decision else None)))
    baseline = run.arms[0].identity
    return Attested(
        folder=model.path.name,
        files=manifest_of(model.path),
        result=_result(stored),
        run=run.run_id,
        variant=verdict.variant,
        word=verdict.word,
        weights=arm.weights,
        verdict=stored.sha256,
        evidence=seal,
        policy=policy_digest(stored.policy),
        baseline=content_hash(baseline.content) if isinstance(baseline, ArmIdentity) else "",
        engine=arm.identity.engine if arm.identity else "",
        evalsets={f"{line.name} {line.version}": line.content for line in run.evalsets},
        rules={one.rule if one.slice == "pooled" else f"{one.rule}: {one.slice}": one.status
               for one in verdict.comparisons},
        decided=_words(decision) if decision else "",
        made=now,
        until=until,
        audit="",
    )  # fmt: skip


def _result(stored: StoredVerdict) -> Result:
    """Return the test result: what a person decided counts, else the gate's word."""
    if (decision := stored.decision) is None:
        return "PASSED" if stored.verdict.word == "approve" else "FAILED"
    if decision.action != "approve":
        return "FAILED"
    return "WARNED" if overruled(stored.verdict) else "PASSED"


def _words(decision: Decision) -> str:
    """Return who decided what, about which rule, and why, in one line."""
    rule = f", overruling {decision.overrules}" if decision.overrules else ""
    return f"{decision.by}: {decision.action}{rule}, {decision.reason}"


def _after(now: str, days: float) -> str:
    return plain.stamp(datetime.fromisoformat(now) + timedelta(days=days))
