"""What a run says of servers as they are at 2 AM: the cause by name, and what to write."""

from __future__ import annotations

import http.server
import json
import shutil
import ssl
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from qualgate.errors import Exit
from tests.command_line import in_a_process, qualgate
from tests.served.scripted import Reply, as_json, scripted, sound, text_piece

CASES = [{"id": f"c{n}", "prompt": f"Say {n}.", "max_new_tokens": 4, "answer": f"{n}"} for n in range(40)]
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    for name in (*PROXIES, "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    (tmp_path / "ours.yaml").write_text('name: ours\nversion: "1"\nmetrics: [exact_match]\n')
    (tmp_path / "ours.jsonl").write_text("".join(json.dumps(case) + "\n" for case in CASES))
    return tmp_path


def run(
    folder: Path, address: str, more: str = "stream: false, ", below: str = "", **variables: str
) -> tuple[int, str]:
    """more: of both arms; below: of the gate file. variables: of a process of its own, with its workers."""
    (folder / "gate.yaml").write_text(
        f"version: 1\nbaseline: {{endpoint: '{address}', model: m, {more}}}\n"
        f"variants: {{new: {{endpoint: '{address}', model: m, {more}extra_body: {{new: 1}}}}}}\n"
        "evalsets: [./ours.yaml]\ngate: {noise_floor: false, rules: [{metric: exact_match, max_drop: 0.1}]}\n"
        f"workers: {{count: 1}}\nstore: sqlite:///qualgate.db\n{below}"
    )
    command = in_a_process if variables else qualgate
    done = command("run", "gate.yaml", cwd=folder, COLUMNS="300", **variables)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def right(body: dict) -> Reply:
    return as_json(text_piece(body["prompt"].removeprefix("Say ").rstrip("."), "stop", logprobs=None))


@pytest.fixture
def certified(tmp_path) -> ssl.SSLContext:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "own.pem"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "own.pem", tmp_path / "key.pem")
    return context


def test_tls_and_plain_ports_that_are_taken_for_each_other_are_named(folder, certified):
    with scripted() as plain, scripted(secured=certified) as secure:
        code, told = run(folder, plain.address.replace("http:", "https:"))
        assert code == Exit.USAGE
        assert "speaks no TLS at this port: write `endpoint: http://…`" in told
        assert "SSL_CERT_FILE" not in told
        code, told = run(folder, secure.address.replace("https:", "http:"))
        assert code == Exit.USAGE
        assert "speaks TLS at this port, and `endpoint` says http: write `endpoint: https://…`" in told


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("SSL_CERT_FILE", "no/such.pem", "SSL_CERT_FILE names no/such.pem, which cannot be read (No such file"),
        ("SSL_CERT_FILE", "key.pem", "SSL_CERT_FILE names key.pem, which holds no certificate"),
        ("SSL_CERT_FILE", ".", "SSL_CERT_FILE names ., which cannot be read"),
        ("SSL_CERT_DIR", "no/such", "SSL_CERT_DIR names no/such, which is no folder"),
    ],
)
def test_authorities_that_cannot_be_read_are_named(variable, value, said, folder, certified, monkeypatch):
    monkeypatch.setenv(variable, value)
    with scripted(secured=certified) as secure:
        code, told = run(folder, secure.address)
    assert (code, said in told) == (Exit.USAGE, True), told


class _Forwarding(http.server.BaseHTTPRequestHandler):
    def _forward(self) -> None:
        self.server.forwarded.append(self.path)  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))) or None
        asked = urllib.request.Request(self.path.replace("models.example", "127.0.0.1"), data=body, method=self.command)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked) as got:
            text = got.read()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = _forward

    def log_message(self, format: str, *args: object) -> None: ...


@contextmanager
def proxy() -> Iterator[tuple[str, list[str]]]:
    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Forwarding)
    httpd.forwarded = []  # type: ignore[attr-defined]
    threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{httpd.server_address[1]}", httpd.forwarded  # type: ignore[attr-defined]
    httpd.shutdown()
    httpd.server_close()


def test_a_proxy_that_is_set_and_not_used_is_named_and_used_where_the_arm_says_so(folder, monkeypatch):
    trusting = "stream: false, trust_env: true, "
    with scripted(otherwise=right) as server, proxy() as (address, forwarded):
        behind = server.address.replace("127.0.0.1", "models.example")  # a name that the proxy alone can find
        monkeypatch.setenv("HTTP_PROXY", address)
        code, told = run(folder, behind)
        assert code == Exit.INFRASTRUCTURE
        assert "HTTP_PROXY is set and not used: `trust_env: true` beside `endpoint`" in told
        assert forwarded == []
        code, told = run(folder, behind, trusting, HTTP_PROXY=address)
        assert code == Exit.APPROVE, told
        assert sum(path.endswith("/v1/completions") for path in forwarded) >= 2 * len(CASES)
        monkeypatch.setenv("NO_PROXY", "models.example")
        assert "HTTP_PROXY" not in run(folder, behind, trusting)[1]
    monkeypatch.delenv("NO_PROXY")
    code, told = run(folder, behind, trusting)
    assert code == Exit.INFRASTRUCTURE, told
    assert "asked through the proxy that HTTP_PROXY names" in told


def in_thought(body: dict) -> Reply:
    message = {"content": None, "reasoning_content": "It is " + body["messages"][-1]["content"]}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return as_json({"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 12}})


def empty(body: dict) -> Reply:
    choice = {"index": 0, "message": {"content": ""}, "finish_reason": "stop"}
    return as_json({"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 1}})


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (in_thought, "all 40 answers of a batch are told as thought (`reasoning_content`), and none has a text"),
        (empty, "baseline 40 of 40 (100.0%: 40 empty), new 40 of 40 (100.0%: 40 empty)"),
    ],
)
def test_answers_that_are_all_empty_or_all_thought_are_told_as_that(answers, said, folder):
    cases = [{**case, "messages": [{"role": "user", "content": case["prompt"]}]} for case in CASES]
    for case in cases:
        del case["prompt"]
    (folder / "ours.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    with scripted(otherwise=answers) as server:
        code, told = run(folder, server.address)
    assert (code, said in told, "easier cases" in told) == (Exit.UNDECIDED, True, False), told


def test_a_query_is_sent_with_every_request_and_another_one_is_another_arm(folder):
    runs = set()
    with scripted(otherwise=right) as server:
        for version, quoted in (("2024-10-21", '"2024-10-21"'), ('"2025-01-01"', '"2025-01-01"')):
            code, told = run(
                folder, server.address, f"stream: false, extra_query: {{api-version: {version}, x: 'a b&c'}}, "
            )
            assert code == Exit.APPROVE, told
            shown = qualgate("report", "--json", "--store", f"sqlite:///{folder / 'qualgate.db'}")
            runs.add(json.loads(shown.stdout)["run"])
            [path] = {path for path, _, _ in server.asked}
            assert path == f"/v1/completions?api-version={json.loads(quoted)}&x=a%20b%26c"
            server.asked.clear()
    assert len(runs) == 2
    code, told = run(folder, f"{server.address}?api-version=1")
    assert (code, "`extra_query: {api-version: …}`" in told) == (Exit.USAGE, True)
    code, told = run(folder, server.address, "extra_query: {api_key: abcd}, ")
    assert (code, "api_key_env" in told) == (Exit.USAGE, True)


@pytest.mark.parametrize(
    "models",
    [
        as_json({"detail": "Not Found"}, 404), as_json({"detail": "no"}, 405),
        Reply(body=b"<html>hi</html>", kind="text/html"),
        as_json({"object": "list", "data": [{"id": "*"}, {"id": "openai/*"}]}),
    ],
)  # fmt: skip
def test_a_server_that_lists_no_models_is_asked_where_the_arm_says_so(models, folder):
    with scripted(otherwise=right, models=models) as server:
        code, told = run(folder, server.address)
        assert (code, "`list_models: false`" in told) == (Exit.USAGE, True), told
        assert server.asked == server.probed == []
        assert run(folder, server.address, "stream: false, list_models: false, ")[0] == Exit.APPROVE


REFUSALS = {
    "max_tokens: max_completion_tokens": "Unsupported parameter: 'max_tokens' is not supported with this model.",
    "temperature: omit": "invalid temperature: only 1 is allowed for this model",
    "stream_options: omit": "Additional properties are not allowed ('stream_options' was unexpected); allowed: seed",
    "seed: omit": "property 'seed' is unsupported",
}


@pytest.mark.parametrize("cure", REFUSALS)
def test_a_parameter_that_a_server_refuses_is_named_with_its_cure_before_the_first_case(cure, folder):
    name = cure.partition(":")[0]

    def answers(body: dict) -> Reply:
        if name in body:
            return as_json({"error": {"message": REFUSALS[cure]}}, 400)
        said = {**body, "max_tokens": body.get("max_tokens", 4), "temperature": body.get("temperature", 0.0)}
        return sound({"seed": 0, **said}) if "Say " not in str(body) else right(body)

    more = "" if name == "stream_options" else "stream: false, "
    below = "generation: {temperature: 0.7}\n" if name == "seed" else ""
    with scripted(otherwise=answers, probes=answers) as server:
        code, told = run(folder, server.address, more, below)
        assert (code, f"`parameters: {{{cure}}}`" in told) == (Exit.USAGE, True), told
        assert server.asked == [], "no case was asked"
        code, told = run(folder, server.address, f"{more}parameters: {{{cure}}}, ", below)
        assert code in (Exit.APPROVE, Exit.UNDECIDED), told
        assert len(server.asked) >= 2 * len(CASES)
