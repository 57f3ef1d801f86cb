"""An attestation: an in-toto statement, version 1, with a test result, version 0.1 (in-toto/attestation).

A proposed predicate for results of evaluations is not settled (issue 565 there). What a test result has no field for
stands in annotations of its configuration, so that any in-toto reader takes the statement.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from qualgate.errors import IntegrityError
from qualgate.records.identity import canonical_json
from qualgate.store.signing.manifest import digest_of

PAYLOAD = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://in-toto.io/attestation/test-result/v0.1"
Result = Literal["PASSED", "WARNED", "FAILED"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attested:
    """What an attestation says of a variant's folder."""

    folder: str  # its name
    files: Mapping[str, str]  # path inside it → sha256
    result: Result  # PASSED: approved; WARNED: approved by a person against the gate; FAILED: not approved
    run: str
    variant: str
    word: str  # the gate's verdict
    weights: str  # the variant's weights and cache, for people
    verdict: str  # sha256 of the stored verdict
    evidence: str  # `evidence_seal` of the run
    policy: str  # sha256 of the rules that decided
    generation: str  # sha256 of the settings by which answers were drawn
    baseline: str  # sha256 of the baseline's identity, and of those of further arms that it was held against
    engine: str
    evalsets: Mapping[str, str]  # name and version → sha256
    rules: Mapping[str, str]  # "metric [slice]" → proven, undecided or broken
    decided: str  # who decided and why, for people; "": nobody
    made: str  # UTC text
    until: str  # UTC text: afterwards it proves nothing
    store: str  # hash of the store's first verdict


def statement(attested: Attested) -> dict[str, Any]:
    """Return the statement as JSON."""
    by_status = {status: [rule for rule, found in attested.rules.items() if found == status]
                 for status in ("proven", "undecided", "broken")}  # fmt: skip
    of_verdict = {name: getattr(attested, name) for name in _OF_VERDICT}
    return {
        "_type": STATEMENT,
        "subject": [{"name": attested.folder, "digest": {"sha256": digest_of(attested.files)}}],
        "predicateType": PREDICATE,
        "predicate": {
            "result": attested.result,
            "configuration": [
                {"name": "verdict", "digest": {"sha256": attested.verdict}, "annotations": of_verdict},
                {"name": "policy", "digest": {"sha256": attested.policy}},
                {"name": "generation", "digest": {"sha256": attested.generation}},
                {"name": "baseline", "digest": {"sha256": attested.baseline}},
                {"name": "engine", "content": _text(attested.engine)},
                {
                    "name": "files",
                    "mediaType": "application/json",
                    "content": _text(canonical_json(dict(attested.files))),
                },
                *({"name": f"evalset {name}", "digest": {"sha256": sha}} for name, sha in attested.evalsets.items()),
            ],
            "passedTests": by_status["proven"],
            "warnedTests": by_status["undecided"],
            "failedTests": by_status["broken"],
        },
    }


_OF_VERDICT = ("run", "variant", "word", "weights", "evidence", "decided", "made", "until", "store")


def read(body: Mapping[str, Any]) -> Attested:
    """Return what a signed statement says. IntegrityError for a statement that `statement` did not make."""
    try:
        predicate = body["predicate"]
        parts = {one["name"]: one for one in predicate["configuration"]}
        of_verdict = {name: parts["verdict"]["annotations"][name] for name in _OF_VERDICT}
        attested = Attested(
            **of_verdict,
            folder=body["subject"][0]["name"],
            files=json.loads(b64decode(parts["files"]["content"])),
            result=predicate["result"],
            verdict=parts["verdict"]["digest"]["sha256"],
            policy=parts["policy"]["digest"]["sha256"],
            generation=parts["generation"]["digest"]["sha256"],
            baseline=parts["baseline"]["digest"]["sha256"],
            engine=b64decode(parts["engine"]["content"]).decode(),
            evalsets={name.removeprefix("evalset "): one["digest"]["sha256"]
                      for name, one in parts.items() if name.startswith("evalset ")},
            rules={rule: status for status, name in _TESTS.items() for rule in predicate[name]},
        )  # fmt: skip
        if statement(attested) != body:
            raise ValueError
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise IntegrityError("what is signed is no attestation of this version of qualgate") from None
    return attested


_TESTS = {"proven": "passedTests", "undecided": "warnedTests", "broken": "failedTests"}


def _text(text: str) -> str:
    return b64encode(text.encode("utf-8")).decode("ascii")
