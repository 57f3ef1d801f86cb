"""A validating webhook of Kubernetes: a pod starts only if `qualgate verify` accepts its model.

    python admission.py MODELS POLICY KEY CERTIFICATE TLS_KEY [PORT]

The pod names its model in the annotation `qualgate/model`. MODELS/NAME is the folder, MODELS/NAME.att.json its
attestation. Register it for pods (CREATE) with `failurePolicy: Fail` and `timeoutSeconds: 30`, and mount the same
MODELS, read-only, into the pods: what is checked here must be what they load.
"""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MOST = 4 << 20  # bytes of a request: a pod has at most 1.5 MiB
SECONDS = 25  # below the webhook's own timeout


def refusal(pod: dict, models: Path, policy: str, key: str) -> str:
    """Return why the pod may not start; "" if it may."""
    name = (pod.get("metadata", {}).get("annotations") or {}).get("qualgate/model", "")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        return "the annotation qualgate/model must name a model"
    command = ["qualgate", "verify", str(models / name), "--attestation", str(models / f"{name}.att.json")]
    try:
        checked = subprocess.run([*command, "--policy", policy, "--key", key],
                                 capture_output=True, text=True, timeout=SECONDS, check=False)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{name} could not be verified: {type(error).__name__}"
    said = " ".join((checked.stdout + checked.stderr).split())
    return "" if checked.returncode == 0 else f"qualgate verify ended with {checked.returncode}: {said[:500]}"


class Webhook(BaseHTTPRequestHandler):
    """Answers each AdmissionReview (v1) with one of the same uid."""

    def do_POST(self) -> None:
        """Answer one review; whatever cannot be read is refused."""
        try:
            size = int(self.headers["Content-Length"])
            review = json.loads(self.rfile.read(size)) if 0 < size <= MOST else {}
            uid, why = review["request"]["uid"], refusal(review["request"]["object"], *self.server.settings)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            self.send_error(400, "this is no AdmissionReview of a pod")
            return
        status = {"status": {"code": 403, "message": why}} if why else {}
        answer = {"uid": uid, "allowed": not why, **status}
        body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    models, policy, key, certificate, tls_key, *port = sys.argv[1:]
    server = ThreadingHTTPServer(("", int(port[0]) if port else 8443), Webhook)
    server.settings = (Path(models), policy, key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, tls_key)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.serve_forever()
