"""Whether an attestation lets a model folder be deployed: by the folder, the policy, the keys and the clock alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qualgate.errors import Exit
from qualgate.store.signing import statement
from qualgate.store.signing.envelope import NotSigned, opened
from qualgate.store.signing.manifest import NAMED, differences, digest_of, manifest_of
from qualgate.store.signing.model_signing import Bundle
from qualgate.store.signing.statement import Attested

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey

REVOKED = "application/vnd.qualgate.revoked+json"
SKEW = timedelta(minutes=5)  # between the clocks of two machines


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a deployer's own gate file says, see `pipeline.attest.expected_of`."""

    policy: str  # this and the next: as in `Attested`
    generation: str
    evalsets: Mapping[str, str]  # name and version → sha256; of lm-eval tasks name → ""
    rules: Sequence[str] = ()  # by their ids
    baseline: str = ""  # the baseline's digest; "": any


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The outcome of a check."""

    attested: Attested
    key: str  # id of the key that signed
    exit: Exit
    reasons: tuple[str, ...]  # why it is refused; () if it is not


def check(
    folder: Path,
    attestation: Path,
    expected: Expected,
    keys: Sequence[SSlibKey],
    now: datetime,
    *,
    revoked: str = "",
    overruled: bool = False,
    bundle: Bundle | None = None,
) -> Checked:
    """Check a folder against its attestation.

    Args:
        folder: The model folder to be deployed.
        attestation: The file.
        expected: What the deployer's own gate file says.
        keys: The trusted public keys.
        now: The time, with its zone.
        revoked: The text of a signed list of revoked approvals; "": none.
        overruled: Accept what a person approved against the gate.
        bundle: A bundle of model-signing that must list the same files; None: not asked for.

    Raises:
        IntegrityError: The attestation, the list or the bundle is not what a trusted key signed.
    """
    text = attestation.read_text(encoding="utf-8", errors="replace")
    body, key = _opened(text, statement.PAYLOAD, keys, str(attestation))
    attested = statement.read(body)
    refused: list[tuple[Exit, str]] = []
    found = manifest_of(folder, attestation)
    if bundle is not None:  # it may lie in the folder since
        own = bundle.file.resolve()
        found = {name: sha for name, sha in found.items() if name in attested.files or (folder / name).resolve() != own}
    if bundle is not None and (fault := bundle.fault(folder, found)):
        refused.append((Exit.INTEGRITY, fault))
    if digest_of(found) != digest_of(attested.files):
        refused.append(
            (Exit.INTEGRITY, f"these are not the files that were judged: {differences(attested.files, found)}")
        )
    refused += [(Exit.INTEGRITY, fault) for fault in _other_terms(attested, expected)]
    refused += _times(attested, now)
    if revoked:
        refused += _revocations(attested, _opened(revoked, REVOKED, keys, "the list of revoked approvals")[0], now)
    refused += _result(attested, overruled)
    code = refused[0][0] if refused else Exit.APPROVE
    return Checked(attested=attested, key=key, exit=code, reasons=tuple(reason for _, reason in refused))


def _opened(text: str, payload_type: str, keys: Sequence[SSlibKey], file: str) -> tuple[dict[str, Any], str]:
    """Open an envelope as `opened` does; the message names the file."""
    try:
        return opened(text, payload_type, keys)
    except NotSigned as error:
        raise NotSigned(f"{file}: {error}") from None


def _other_terms(attested: Attested, expected: Expected) -> Iterator[str]:
    """Yield how the judged run differs from what the deployer's gate file says."""
    if attested.policy != expected.policy:
        yield f"other rules decided than those of this policy: {_other_rules(attested.rules, expected.rules)}"
    if attested.generation != expected.generation:
        yield "the answers were generated with other settings than the section `generation` of this policy"
    tasks = {name for name, digest in expected.evalsets.items() if not digest}  # known by name alone
    judged = {name.rpartition(" ")[0] if name.rpartition(" ")[0] in tasks else name: digest
              for name, digest in attested.evalsets.items()}  # fmt: skip
    wanted = {name: digest or judged.get(name, "") for name, digest in expected.evalsets.items()}
    if others := sorted(name for name in judged.keys() | wanted.keys() if judged.get(name) != wanted.get(name)):
        yield f"the evalsets of this policy or their cases are others than those that were judged: {', '.join(others)}"
    if expected.baseline and attested.baseline != expected.baseline:
        yield f"it was compared with another baseline: {attested.baseline}"


def _other_rules(judged: Mapping[str, str], wanted: Sequence[str]) -> str:
    """Return which rules differ. judged: "rule" or "rule: slice"."""
    absent = [rule for rule in wanted if not any(one == rule or one.startswith(f"{rule}: ") for one in judged)]
    known = [one for one in judged if any(one == rule or one.startswith(f"{rule}: ") for rule in wanted)]
    others = [f"it lacks {rule}" for rule in absent[:NAMED]] + [
        f"it was judged by {one}" for one in [one for one in judged if one not in known][:NAMED]
    ]
    return ", ".join(others) or "the same bounds, and another alpha, tier, `approvals` or setting of the section `gate`"


def _times(attested: Attested, now: datetime) -> list[tuple[Exit, str]]:
    made, until = datetime.fromisoformat(attested.made), datetime.fromisoformat(attested.until)
    if now + SKEW < made:
        return [(Exit.UNDECIDED, f"it was made at {attested.made}, which is in the future: one of the clocks is wrong")]
    return [(Exit.UNDECIDED, f"it expired at {attested.until}")] if now >= until else []


def _revocations(attested: Attested, body: Mapping[str, Any], now: datetime) -> list[tuple[Exit, str]]:
    """Refuse by the list of revoked approvals, and by a list that is out of date."""
    if now >= datetime.fromisoformat(str(body.get("until"))):
        return [(Exit.UNDECIDED, f"the list of revoked approvals expired at {body['until']}: get a newer one")]
    if body["store"] != attested.store or body["made"] < attested.made:
        return [(Exit.UNDECIDED, "the list of revoked approvals is of another store, or older than the attestation")]
    mine = [one for one in body["revoked"] if (one["run"], one["variant"]) == (attested.run, attested.variant)]
    return [(Exit.BLOCK, f"the approval is revoked: {one['why']}") for one in mine if one["at"] >= attested.made]


def _result(attested: Attested, overruled: bool) -> list[tuple[Exit, str]]:
    if attested.result == "PASSED" or (attested.result == "WARNED" and overruled):
        return []
    if attested.result == "WARNED":
        return [(Exit.REVIEW, f"a person approved it against the gate, which said {attested.word}: {attested.decided}")]
    decided = f", and {attested.decided}" if attested.decided else ""
    return [(Exit.BLOCK, f"it is not approved: the gate said {attested.word}{decided}")]
