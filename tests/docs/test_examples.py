"""The examples of the documentation: a webhook of Kubernetes and an alias of MLflow behind `qualgate verify`, and runs
logged to MLflow and Weights & Biases.

With QUALGATE_MLFLOW=PYTHON, an interpreter that has mlflow and wandb, `pytest -m interop` runs the last two.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.app.server import free_port
from tests.command_line import qualgate
from tests.store.signing.conftest import _finished, signed  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
MLFLOW = os.environ.get("QUALGATE_MLFLOW")

# The file is a log of LevelDB: blocks of 32 KiB, in them pieces of records behind checksum, length and kind.
READ_WANDB = """
import json, pathlib, struct
from wandb.proto.wandb_internal_pb2 import Record
runs = []
for path in pathlib.Path("wandb").glob("offline-run-*/*.wandb"):
    data, at, whole, config, summary = path.read_bytes(), 7, b"", {}, {}
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        size, kind = struct.unpack_from("<HB", data, at + 4)
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            record, whole = Record.FromString(whole), b""
            config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
            for item in record.summary.update:
                summary["/".join(item.nested_key) or item.key] = json.loads(item.value_json)
    runs.append([config, summary])
print(json.dumps(runs))"""


@pytest.fixture
def attested(signed):  # noqa: F811
    """A folder with the models `copy`, which is approved, and `noisy`, which is not, and their attestations."""
    for variant, model in (("same", "copy"), ("noisy", "noisy")):
        out = ("--folder", model, "--out", f"{model}.att.json")
        assert qualgate("attest", variant, *out, cwd=signed, QUALGATE_KEY="ci").returncode == 0
    (signed / "bin").mkdir()
    command = signed / "bin" / "qualgate"
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m qualgate "$@"\n')
    command.chmod(0o755)
    return signed


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": "", **more}


@pytest.fixture
def webhook(attested):
    """The port of the running webhook."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.now(UTC)
    certificate = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1)).sign(
        key, SHA256()
    )
    (attested / "tls.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
    (attested / "tls.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    port = free_port()
    words = (".", "gate.yaml", "ci.pub", "tls.crt", "tls.key", str(port))
    running = subprocess.Popen([sys.executable, str(EXAMPLES / "admission.py"), *words], cwd=attested,
                               env=environment(attested), stderr=subprocess.DEVNULL)  # fmt: skip
    yield port
    running.kill()
    running.wait()


def post(port: int, body: bytes) -> tuple[int, bytes]:
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    deadline = time.monotonic() + 30
    while True:
        asked = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=unchecked)
        try:
            asked.request("POST", "/", body, {"Content-Type": "application/json"})
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            continue
        got = asked.getresponse()
        return got.status, got.read()


def review(annotations: dict[str, str]) -> bytes:
    """As the API server sends it."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "server", "annotations": annotations},
           "spec": {"containers": [{"name": "server", "image": "registry.example/server:1"}]}}  # fmt: skip
    request = {"uid": "705ab4f5", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "operation": "CREATE",
               "resource": {"group": "", "version": "v1", "resource": "pods"}, "namespace": "default",
               "userInfo": {"username": "ada"}, "object": pod, "oldObject": None, "dryRun": False}  # fmt: skip
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def test_a_pod_starts_only_with_a_verified_model(webhook, attested):
    def answer(annotations):
        status, body = post(webhook, review(annotations))
        found = json.loads(body)
        assert (status, found["kind"], found["response"]["uid"]) == (200, "AdmissionReview", "705ab4f5")
        return found["response"]["allowed"], found["response"].get("status", {}).get("message", "")

    assert answer({"qualgate/model": "copy"}) == (True, "")
    allowed, why = answer({"qualgate/model": "noisy"})
    assert (allowed, "ended with 10" in why, "it is not approved" in why) == (False, True, True)
    for name in ("", "../copy", "--help", "a/b"):
        assert answer({"qualgate/model": name}) == (False, "the annotation qualgate/model must name a model"), name
    assert answer({"qualgate/model": "absent"})[0] is False
    (attested / "copy" / "more.txt").write_text("x")
    allowed, why = answer({"qualgate/model": "copy"})
    assert (allowed, "more.txt was added" in why) == (False, True)
    for body in (b"{}", b"[" * 10_000, b"\xff", json.dumps({"request": {"uid": "1", "object": 3}}).encode()):
        assert post(webhook, body)[0] == 400


@pytest.mark.interop
@pytest.mark.skipif(not MLFLOW, reason="QUALGATE_MLFLOW names no interpreter")
def test_a_model_version_is_approved_only_while_its_folder_is_verified(attested):
    inside = environment(attested, MLFLOW_TRACKING_URI=f"sqlite:///{attested / 'mlflow.db'}")

    def in_mlflow(program: str) -> str:
        program = f"from mlflow import MlflowClient\nclient = MlflowClient()\n{program}"
        ran = subprocess.run(
            [str(MLFLOW), "-c", program], cwd=attested, env=inside, capture_output=True, text=True, check=True
        )
        return ran.stdout.strip()

    def run(version: str, model: str) -> int:
        options = ("--attestation", f"{model}.att.json", "--policy", "gate.yaml", "--key", "ci.pub")
        command = [str(MLFLOW), str(EXAMPLES / "mlflow_alias.py"), "support", version, model, *options]
        return subprocess.run(command, cwd=attested, env=inside, capture_output=True, check=False).returncode

    in_mlflow("client.create_registered_model('support')\n"
              "for name in ('copy', 'noisy'): client.create_model_version('support', name, run_id=None)")  # fmt: skip
    aliases = "print(client.get_registered_model('support').aliases)"
    tags = "print(client.get_model_version('support', '{}').tags['qualgate.{}'])"
    assert run("2", "noisy") == 10
    assert in_mlflow(aliases) == "{}"
    assert "it is not approved" in in_mlflow(tags.format(2, "refused"))
    assert run("1", "copy") == 0
    assert (in_mlflow(aliases), in_mlflow(tags.format(1, "result"))) == ("{'approved': 1}", "PASSED")
    (attested / "copy" / "more.txt").write_text("x")
    assert run("1", "copy") == 14
    assert in_mlflow(aliases) == "{}"


@pytest.mark.interop
@pytest.mark.skipif(not MLFLOW, reason="QUALGATE_MLFLOW names no interpreter")
def test_the_verdicts_of_a_run_are_logged_with_their_numbers(signed):  # noqa: F811
    report = qualgate("report", "gate.yaml", "--json", cwd=signed)
    (signed / "report.json").write_text(report.stdout)
    verdicts = {verdict["variant"]: verdict for verdict in json.loads(report.stdout)["verdicts"]}
    lost = verdicts["noisy"]["comparisons"][0]
    numbers = {f"{lost['slice']}/{name}": lost[name] for name in ("difference", "upper", "n")}
    inside = environment(signed, MLFLOW_TRACKING_URI=f"sqlite:///{signed / 'mlflow.db'}", WANDB_SILENT="true")

    def run(*words: str) -> str:
        ran = subprocess.run([str(MLFLOW), *words], cwd=signed, env=inside, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.splitlines()[-1] if ran.stdout else ""

    def same(tags: dict[str, str], metrics: dict[str, float], variant: str) -> None:
        assert tags["qualgate.verdict"] == verdicts[variant]["word"]
        assert tags["qualgate.exit"] == str(verdicts[variant]["exit"])
        assert tags["qualgate.reason"] == verdicts[variant]["reasons"][0]
        if variant == "noisy":
            for name, number in numbers.items():
                assert next(value for key, value in metrics.items() if key.endswith(name)) == pytest.approx(number)

    run(str(EXAMPLES / "tracked_run.py"), "mlflow", "report.json")
    logged = json.loads(run("-c", """
import json; from mlflow import MlflowClient; client = MlflowClient()
runs = client.search_runs([client.get_experiment_by_name("qualgate").experiment_id])
print(json.dumps([[run.data.tags, run.data.metrics, [file.path for file in client.list_artifacts(run.info.run_id)]]
                  for run in runs]))"""))  # fmt: skip
    assert {tags["qualgate.variant"] for tags, _, _ in logged} == set(verdicts)
    for tags, metrics, artifacts in logged:
        same(tags, metrics, tags["qualgate.variant"])
        assert artifacts == ["report.json"]

    run(str(EXAMPLES / "tracked_run.py"), "wandb", "report.json")
    logged = json.loads(run("-c", READ_WANDB))
    assert {tags["qualgate.variant"] for tags, _ in logged} == set(verdicts)
    for tags, metrics in logged:
        same(tags, metrics, tags["qualgate.variant"])
