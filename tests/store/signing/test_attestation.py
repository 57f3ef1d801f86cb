"""From a signed run to a deploy step that knows nothing but the folder, the attestation, the policy and a key."""

from __future__ import annotations

import json
import random
import re
import shlex
import shutil
from base64 import b64decode
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from qualgate.config import load_gate_file
from qualgate.pipeline.attest import expected_of, revoked
from qualgate.store import decisions, queries
from qualgate.store.database import open_store
from qualgate.store.plain import stamp
from qualgate.store.signing.check import check
from qualgate.store.signing.keys import public_keys
from tests.command_line import qualgate
from tests.run.commands import changed
from tests.store.made import said


@pytest.fixture
def attested(signed):
    made = qualgate("attest", "same", "--folder", "copy", "--out", "att.json", cwd=signed, QUALGATE_KEY="ci")
    assert made.returncode == 0, made.stderr
    assert "PASSED: same, the gate says approve" in made.stderr
    return signed


def verified(folder, model="copy", *more, policy="gate.yaml", key="ci.pub", attestation="att.json"):
    words = ("--attestation", attestation, "--policy", policy, "--key", key, *more)
    return qualgate("verify", model, *words, cwd=folder)


def decide(folder, variant, action, **more):
    with open_store(f"sqlite:///{folder / 'qualgate.db'}") as store:
        run = queries.latest_run(store)
        stored = queries.run_summary(store, run).verdict(variant)
        last = stored.decisions[-1].hash if stored.decisions else None
        decision = replace(said(stored, action), **more)
        return decisions.append(store, run, variant, decision, decisions.Seen(stored.sha256, last))


def test_an_approved_folder_is_verified_without_the_store(attested):
    (attested / "qualgate.db").unlink()
    shutil.move(attested / "copy", attested / "elsewhere")
    shutil.rmtree(attested / "model")
    found = verified(attested, "elsewhere")
    assert (found.returncode, found.stdout.startswith("elsewhere: approved. same (float32) of run ")) == (0, True)


def test_the_deploy_step_of_the_documentation_lets_this_folder_pass_and_no_other(attested):
    page = (Path(__file__).resolve().parents[3] / "docs" / "signing.md").read_text()
    [step] = re.findall(r"- run: (qualgate verify .*)", page)
    for name in ("models", "keys"):
        (attested / name).mkdir()
    shutil.move(attested / "copy", attested / "models" / "int4")
    shutil.move(attested / "att.json", attested / "int4.att.json")
    shutil.move(attested / "ci.pub", attested / "keys" / "ci.key.pub")
    assert qualgate(*shlex.split(step)[1:], cwd=attested).returncode == 0
    (attested / "models" / "int4" / "more.bin").write_bytes(b"")
    assert qualgate(*shlex.split(step)[1:], cwd=attested).returncode == 14


def test_an_independent_in_toto_library_takes_the_statement(attested):
    from google.protobuf import json_format
    from in_toto_attestation.predicates.test_result.v0 import test_result_pb2
    from in_toto_attestation.v1 import statement_pb2
    from in_toto_attestation.v1.statement import Statement

    body = json.loads(b64decode(json.loads((attested / "att.json").read_text())["payload"]))
    Statement.copy_from_pb(json_format.ParseDict(body, statement_pb2.Statement())).validate()
    result = json_format.ParseDict(body["predicate"], test_result_pb2.TestResult())
    assert result.result == "PASSED"
    assert list(result.passed_tests) == ["exact_match [pooled] max_drop 0.1"]
    assert {one.name for one in result.configuration} >= {"verdict", "policy", "baseline", "engine", "files"}


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json", "config.json", "tokenizer_config.json"])
def test_a_bit_of_any_file_is_a_file_that_was_not_judged(attested, file):
    path, rng = attested / "copy" / file, random.Random(2)
    whole = path.read_bytes()
    for _ in range(3):
        bad = bytearray(whole)
        bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        path.write_bytes(bad)
        found = verified(attested)
        assert (found.returncode, f"{file} was changed" in found.stdout) == (14, True)


def test_a_file_more_or_less_or_elsewhere_is_named(attested):
    (attested / "copy" / "modeling_evil.py").write_text("import os")
    assert "modeling_evil.py was added" in verified(attested).stdout
    (attested / "copy" / "modeling_evil.py").unlink()
    (attested / "copy" / "config.json").rename(attested / "copy" / "config.bak")
    found = verified(attested)
    assert "config.bak was added, config.json is missing" in found.stdout
    assert found.returncode == 14


@pytest.mark.parametrize("name", ["att.json", "gate.yaml"])
def test_a_bit_of_attestation_or_policy_never_verifies_as_another(attested, name):
    """A policy may change in a comment or a name; what counts is what it says."""
    path, rng = attested / name, random.Random(3)
    whole, before = path.read_bytes(), verified(attested).stdout
    for _ in range(60 if name == "att.json" else 25):
        bad = bytearray(whole)
        bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        path.write_bytes(bad)
        found = verified(attested)
        if name == "att.json":
            assert found.returncode == 14, found.stdout
        else:
            assert found.returncode in (14, 64) or found.stdout == before


def test_other_rules_another_key_and_no_key_are_refused(attested):
    changed(attested, ("max_drop: 0.10", "max_drop: 0.12"), file="loose.yaml")
    found = verified(attested, policy="loose.yaml")
    assert found.returncode == 14
    lacks, judged = "it lacks exact_match [pooled] max_drop 0.12", "it was judged by exact_match [pooled] max_drop 0.1"
    assert f"other rules decided than those of this policy: {lacks}, {judged}" in found.stdout.replace("\n", " ")
    changed(attested, ("gate:", "gate:\n  alpha: 0.01"), file="alpha.yaml")
    assert "the same bounds, and another alpha" in verified(attested, policy="alpha.yaml").stdout
    found = verified(attested, key="eve.pub")
    assert (found.returncode, "att.json: it is signed by" in found.stderr) == (14, True)
    bare = qualgate("verify", "copy", "--attestation", "att.json", "--policy", "gate.yaml", cwd=attested)
    assert (bare.returncode, "without a trusted key" in bare.stderr) == (64, True)
    found = verified(attested, attestation="absent.json")
    assert (found.returncode, "absent.json is not there" in found.stderr) == (64, True)
    found = verified(attested, "nowhere")
    assert (found.returncode, "nowhere: cannot be read" in found.stderr) == (64, True)


def test_an_expired_one_and_clocks_that_disagree_are_refused(attested):
    keys = public_keys([attested / "ci.pub"])
    expected = expected_of(load_gate_file(attested / "gate.yaml", files=False))
    for days, code, why in ((0, 0, ""), (89, 0, ""), (91, 12, "it expired at"), (-1, 12, "one of the clocks is wrong")):
        now = datetime.now(UTC) + timedelta(days=days)
        found = check(attested / "copy", attested / "att.json", expected, keys, now)
        assert (found.exit, why in "".join(found.reasons)) == (code, True)


def test_a_verdict_on_other_cases_other_draws_or_another_baseline_is_refused(attested):
    shown = json.loads(verified(attested, "copy", "--json").stdout)
    assert verified(attested, "copy", "--baseline", shown["baseline"]).returncode == 0
    found = verified(attested, "copy", "--baseline", "0" * 64)
    assert (found.returncode, "another baseline" in found.stdout) == (14, True)
    changed(attested, ("store: ", "generation: {seed: 7}\nstore: "), file="seed.yaml")
    found = verified(attested, policy="seed.yaml")
    assert (found.returncode, "generated with other settings" in found.stdout) == (14, True)
    rows = (attested / "echo.jsonl").read_text().splitlines(keepends=True)
    (attested / "echo.jsonl").write_text("".join(rows[1:]))
    found = verified(attested)
    assert (found.returncode, "than those that were judged: echo 1" in found.stdout) == (14, True)
    (attested / "echo.jsonl").unlink()
    assert verified(attested).returncode == 64


@pytest.mark.parametrize("file", ["modeling_llama.py", "pytorch_model.bin", "sub/adapter_model.safetensors",
                                  "adapter_config.json", "model-2.SAFETENSORS"])  # fmt: skip
def test_a_file_that_a_server_might_load_and_the_run_did_not_is_not_attested(signed, file):
    (signed / "copy" / "sub").mkdir()
    (signed / "copy" / file).write_bytes(b"{}")
    made = qualgate("attest", "same", "--folder", "copy", cwd=signed, QUALGATE_KEY="ci")
    assert made.returncode == 64, made.stderr


def test_an_attestation_may_lie_in_the_folder_and_be_renewed(signed):
    for _ in range(2):
        words = ("attest", "same", "--folder", "copy", "--out", "copy/att.json")
        assert qualgate(*words, cwd=signed, QUALGATE_KEY="ci").returncode == 0
        assert verified(signed, "copy", attestation="copy/../copy/att.json").returncode == 0


def test_a_decision_that_nobody_signed_is_not_attested(signed):
    decide(signed, "same", "block")
    made = qualgate("attest", "same", "--folder", "copy", cwd=signed, QUALGATE_KEY="ci")
    assert (made.returncode, "the decision block 'same'" in made.stderr) == (14, True)
    assert "is not signed" in made.stderr


def test_a_blocked_folder_is_attested_as_that_and_not_verified(signed):
    made = qualgate("attest", "noisy", "--folder", "noisy", "--out", "att.json", cwd=signed, QUALGATE_KEY="ci")
    assert "FAILED: noisy, the gate says block" in made.stderr
    found = verified(signed, "noisy", "--accept-overruled")
    assert (found.returncode, "it is not approved: the gate said block" in found.stdout) == (10, True)


def test_a_person_who_blocks_or_revokes_is_heard_by_attestation_and_list(attested, monkeypatch):
    monkeypatch.setenv("QUALGATE_KEY", str(attested / "ci"))
    old = (attested / "att.json").read_text()
    decide(attested, "same", "block")
    made = qualgate("attest", "same", "--folder", "copy", "--out", "att.json", cwd=attested)
    assert "FAILED: same, the gate says approve; Ada (unauthenticated): block" in made.stderr
    found = verified(attested)
    assert (found.returncode, "it is not approved" in found.stdout) == (10, True)
    decide(attested, "same", "approve")
    (attested / "att.json").write_text(old)
    assert verified(attested).returncode == 0, "an older attestation is known to be revoked by the list alone"
    assert qualgate("audit", "revoked", "--out", "revoked.json", cwd=attested).returncode == 0
    found = verified(attested, "copy", "--revoked", "revoked.json")
    assert (found.returncode, "the approval is revoked: Ada (unauthenticated): block" in found.stdout) == (10, True)


def test_a_list_of_revocations_that_is_out_of_date_or_unsigned_is_refused(attested, monkeypatch):
    monkeypatch.setenv("QUALGATE_KEY", str(attested / "ci"))
    text, count = revoked(f"sqlite:///{attested / 'qualgate.db'}", -1)
    (attested / "old.json").write_text(text)
    found = verified(attested, "copy", "--revoked", "old.json")
    assert (count, found.returncode, "expired at" in found.stdout) == (0, 12, True)
    with open_store(f"sqlite:///{attested / 'other.db'}"):
        pass
    (attested / "of_another.json").write_text(revoked(f"sqlite:///{attested / 'other.db'}", 1)[0])
    found = verified(attested, "copy", "--revoked", "of_another.json")
    assert (found.returncode, "of another store" in found.stdout) == (12, True)
    (attested / "forged.json").write_text((attested / "att.json").read_text())
    assert verified(attested, "copy", "--revoked", "forged.json").returncode == 14


def test_what_a_person_approved_against_the_gate_is_accepted_only_where_that_is_said(signed, monkeypatch):
    monkeypatch.setenv("QUALGATE_KEY", str(signed / "ci"))
    decide(signed, "noisy", "approve", expires_at=stamp(datetime.now(UTC) + timedelta(days=2)))
    made = qualgate("attest", "noisy", "--folder", "noisy", "--out", "att.json", cwd=signed)
    assert "WARNED: noisy, the gate says block; Ada (unauthenticated): approve, overruling exact_match [" in made.stderr
    found = verified(signed, "noisy")
    assert (found.returncode, "a person approved it against the gate, which said block" in found.stdout) == (11, True)
    assert verified(signed, "noisy", "--accept-overruled").returncode == 0
    body = json.loads(b64decode(json.loads((signed / "att.json").read_text())["payload"]))
    until = body["predicate"]["configuration"][0]["annotations"]["until"]
    assert datetime.fromisoformat(until) < datetime.now(UTC) + timedelta(days=3), "not longer than the approval"


def test_weights_made_on_the_spot_are_no_folder_to_attest(signed):
    made = qualgate("attest", "int2", cwd=signed, QUALGATE_KEY="ci")
    assert (made.returncode, "quantized on the spot" in made.stderr) == (64, True)


def test_a_folder_that_is_no_longer_what_was_judged_is_not_attested(signed):
    config = signed / "copy" / "config.json"
    config.write_text(config.read_text() + "\n")
    made = qualgate("attest", "same", "--folder", "copy", cwd=signed, QUALGATE_KEY="ci")
    assert (made.returncode, "its config is not what run" in made.stderr) == (14, True)


def test_nothing_is_attested_without_a_key_a_verdict_or_signed_evidence(signed):
    assert "there is no key to sign with" in qualgate("attest", "same", cwd=signed, QUALGATE_KEY="").stderr
    assert "no verdict on 'absent'" in qualgate("attest", "absent", cwd=signed, QUALGATE_KEY="ci").stderr
    made = qualgate("attest", "same", cwd=signed, QUALGATE_KEY="eve")
    assert (made.returncode, "is no trusted key" in made.stderr) == (14, True)


@pytest.mark.parametrize("command", [("run", "gate.yaml"), ("dashboard", "gate.yaml"), ("gate", "gate.yaml")])
def test_a_key_that_cannot_be_read_is_named_before_anything_is_made(signed, command):
    done = qualgate(*command, cwd=signed, QUALGATE_KEY="absent")
    assert (done.returncode, "absent: the key cannot be read" in done.stderr) == (64, True)
