"""Who is told of a night, in which shape; what cannot be delivered waits and is sent with the next."""

from __future__ import annotations

import json
import socket
import threading
from dataclasses import replace
from datetime import UTC, datetime
from email import message_from_bytes
from email.utils import parsedate_to_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from qualgate.config.nightly import load_nightly
from qualgate.errors import Exit
from qualgate.pipeline.nights import delivery, digest
from qualgate.pipeline.nights.digest import Told
from qualgate.pipeline.nights.trends import ArmTrend
from qualgate.pipeline.nights.whole import tell
from qualgate.records import Verdict
from qualgate.stats.trend import Fall, Trend
from qualgate.store.database import open_store
from qualgate.store.nights import Night, add_night, undelivered
from qualgate.store.queries import Watched

NOW = datetime(2026, 11, 26, 3, tzinfo=UTC)
SECRET = "T0-s3cr3t"


class Server:
    """Answers POSTs on the loopback with these codes in turn, the last one for good, and keeps what came."""

    def __init__(self, *codes: int):
        came, left = self.came, self.left = [], list(codes)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                came.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
                code = left.pop(0) if len(left) > 1 else left[0]
                self.send_response(code)
                if code == 302:
                    self.send_header("Location", f"http://127.0.0.1:{self.server.server_address[1]}/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook/{SECRET}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def serve():
    made = []

    def serving(*codes):
        made.append(Server(*codes))
        return made[-1]

    yield serving
    for server in made:
        server.close()


class MailServer:
    """A few words of SMTP on the loopback: takes mail for all but those it is told to refuse."""

    def __init__(self, refuses=()):
        self.socket, self.mails, self.refuses = socket.create_server(("127.0.0.1", 0)), [], refuses
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def named(self, more: str) -> str:
        return f"mail: {{server: 127.0.0.1, port: {self.port}, sender: gate@example.com, {more}}}"

    def _serve(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection, connection.makefile("rwb") as file:
                self._talk(file)

    def _talk(self, file):
        def answer(text):
            file.write(f"{text}\r\n".encode())
            file.flush()

        answer("220 here")
        for line in file:
            verb = line[:4].upper()
            if verb == b"DATA":
                answer("354 go on")
                lines = []
                while (part := file.readline()) not in (b".\r\n", b""):
                    lines.append(part)
                self.mails.append(message_from_bytes(b"".join(lines)))
                answer("250 taken")
            elif verb == b"RCPT" and any(one.encode() in line for one in self.refuses):
                answer("550 not here")
            elif verb == b"QUIT":
                answer("221 bye")
                return
            else:
                answer("250 fine")


@pytest.fixture
def mail_server():
    made = []

    def serving(**how):
        made.append(MailServer(**how))
        return made[-1]

    yield serving
    for server in made:
        server.socket.close()


@pytest.fixture
def nightly(tmp_path):
    (tmp_path / "gate.yaml").write_text("version: 1\n")

    def of(targets: str, owners: str = ""):
        head = 'version: 1\nschedule: {at: "02:00"}\ngates: {support: {gate: gate.yaml}}\n'
        (tmp_path / "nightly.yaml").write_text(f"{head}{owners}digest: {targets}\n")
        return load_nightly(tmp_path / "nightly.yaml")

    return of


def night(code=10, before=0, **more):
    made = Night(nightly="nightly.yaml", gate="support", model="", due_at="", began_at="", finished_at="", run_id="r1",
                 repeated=False, exit=code)  # fmt: skip
    verdict = Verdict(variant="int4", word="block", exit=Exit(code), reasons=("lost <3> & more",))
    return Told(night=made, before=before, verdicts=(verdict,), **more)


def told(nightly, code=Exit.BLOCK, nights=None, waits=None):
    """What a night ends with: what it said, and what waits still."""
    nights = (night(int(code)),) if nights is None else nights
    with open_store(nightly.store_url) as store:
        said = tell(store, nightly, nights, 1, code, NOW)
        return said, delivery.deliver(store, nightly, (waits if waits is not None else []).append)


def test_owners_of_one_gate_are_told_of_it_alone_and_of_its_word(tmp_path):
    for gate in ("support", "search"):
        (tmp_path / f"{gate}.yaml").write_text("version: 1\n")
    (tmp_path / "nightly.yaml").write_text(
        'version: 1\nschedule: {at: "02:00"}\nowners: [team@x.org]\n'
        "gates: {support: {gate: support.yaml}, search: {gate: search.yaml, owners: [ana@x.org, team@x.org]}}\n"
        "digest: {mail: {server: s, sender: q@x.org}, slack: {url_env: SLACK}}\n"
    )
    nightly = load_nightly(tmp_path / "nightly.yaml")
    both = [replace(night(code), night=replace(night(code).night, gate=gate, run_id=None))
            for gate, code in (("support", 10), ("search", 11))]  # fmt: skip
    with open_store(nightly.store_url) as store:
        for one in both:
            add_night(store, one.night)
        said = tell(store, nightly, both, 2, Exit.BLOCK, NOW)
        waiting = {one.target: one.body for one in undelivered(store, nightly.name)}
        assert waiting["mail:team@x.org"] == waiting["slack"] == said
        mine = waiting["mail:ana@x.org"]
        assert [one["gate"] for one in mine["nights"]] == ["search"]
        assert (mine["exit"], mine["word"], said["word"]) == (11, "review", "block")
        tell(store, nightly, both[:1], 3, Exit.BLOCK, NOW)
        assert len([one for one in undelivered(store, nightly.name) if one.target == "mail:ana@x.org"]) == 1


def test_a_night_is_told_as_plain_json_and_as_slack_takes_it(nightly, serve, monkeypatch):
    plain, slack = serve(200), serve(200)
    monkeypatch.setenv("HOOK", plain.url)
    monkeypatch.setenv("SLACK", slack.url)
    said, waiting = told(nightly("{webhook: {url_env: HOOK}, slack: {url_env: SLACK}}"))
    assert waiting == ()
    [(path, body)] = plain.came
    assert path.endswith(SECRET)
    assert body == said
    assert body["kind"] == "qualgate.nightly"
    assert (body["exit"], body["word"], body["nights"][0]["exit_before"]) == (10, "block", 0)
    [(_, shape)] = slack.came
    assert shape["text"].startswith("nightly.yaml: block (10)")
    [block] = shape["blocks"]
    assert block["type"] == "section"
    assert "support: block, was approve" in block["text"]["text"]
    assert "lost &lt;3&gt; &amp; more" in block["text"]["text"]


def test_what_fails_is_tried_again_with_growing_pauses_and_no_address_is_kept(nightly, serve, monkeypatch):
    server, waits = serve(500, 429, 200), []
    monkeypatch.setenv("HOOK", server.url)
    assert told(nightly("{webhook: {url_env: HOOK}}"), waits=waits)[1] == ()
    assert len(server.came) == 3
    assert [1 <= pause / least <= 2 for pause, least in zip(waits, (0.5, 1.0), strict=True)] == [True, True]


@pytest.mark.parametrize(
    ("codes", "tries", "said"),
    [((503,), 4, "answered 503"), ((404,), 1, "answered 404"), ((302,), 1, "answered 302"), (None, 0, "is not set"),
     ((), 0, "cannot be reached")],
)  # fmt: skip
def test_what_cannot_be_delivered_waits_with_the_reason_and_goes_out_first_the_next_night(
    nightly, serve, monkeypatch, codes, tries, said
):
    file = nightly("{webhook: {url_env: HOOK, when: changed}}")
    if codes:
        server = serve(*codes)
        monkeypatch.setenv("HOOK", server.url)
    elif codes is not None:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            monkeypatch.setenv("HOOK", f"http://127.0.0.1:{closed.getsockname()[1]}/{SECRET}")
    [waits] = told(file)[1]
    assert waits.target == "webhook"
    assert said in waits.error
    if codes:
        assert len(server.came) == tries
        assert all(path.startswith("/hook") for path, _ in server.came), "a redirect is not followed"
    store = file.path.with_name("nightly.db")
    assert SECRET.encode() not in b"".join(one.read_bytes() for one in file.path.parent.glob(f"{store.name}*"))
    works = serve(200)
    monkeypatch.setenv("HOOK", works.url)
    assert told(file, Exit.APPROVE, (night(0, before=0),))[1] == ()
    assert [body["exit"] for _, body in works.came] == [10, 0], "the older first; one that waited is told to all"
    assert works.came[1][1]["undelivered"] == 1


def test_a_message_that_is_not_taken_keeps_no_later_one_from_its_target(nightly, serve, monkeypatch):
    file, server = nightly("{webhook: {url_env: HOOK}}"), serve(413, 413, 200)
    monkeypatch.setenv("HOOK", server.url)
    [waits] = told(file)[1]
    assert waits.error == "the server answered 413"
    assert told(file, Exit.APPROVE, (night(0),))[1] == (replace(waits, attempts=2),)
    assert [body["exit"] for _, body in server.came] == [10, 10, 0]


@pytest.mark.parametrize("address", [f"https://[{SECRET}]/hook", f"https://hooks.example.com:{SECRET}/"])
def test_an_address_that_cannot_be_one_keeps_nobody_else_from_being_told(nightly, serve, monkeypatch, address):
    monkeypatch.setenv("BAD", address)
    server = serve(200)
    monkeypatch.setenv("HOOK", server.url)
    [waits] = told(nightly("{slack: {url_env: BAD}, webhook: {url_env: HOOK}}"), waits=[])[1]
    assert waits.target == "slack"
    assert waits.error
    assert SECRET not in waits.error
    assert len(server.came) == 1


def test_a_password_that_the_mail_server_s_form_cannot_hold_keeps_nobody_else_from_being_told(
    nightly, serve, mail_server, monkeypatch
):
    monkeypatch.setattr(delivery.smtplib.SMTP, "starttls", lambda *given, **named: None)
    monkeypatch.setattr(delivery.smtplib.SMTP, "login", lambda self, user, word: word.encode("ascii"))
    hook = serve(200)
    for name, value in (("HOOK", hook.url), ("WHO", "ana"), ("WORD", f"{SECRET}-ü")):
        monkeypatch.setenv(name, value)
    mail = mail_server().named("user_env: WHO, password_env: WORD")
    [waits] = told(nightly(f"{{{mail}, webhook: {{url_env: HOOK}}}}", "owners: [ana@example.com]\n"))[1]
    assert waits.target == "mail:ana@example.com"
    assert waits.error
    assert SECRET not in waits.error
    assert len(hook.came) == 1


def test_a_night_on_which_nothing_was_due_sends_only_what_waits(nightly, serve, monkeypatch):
    file = nightly("{webhook: {url_env: HOOK}}")
    told(file)
    server = serve(200)
    monkeypatch.setenv("HOOK", server.url)
    assert told(file, nights=())[1] == ()
    assert len(server.came) == 1


def test_a_target_that_the_file_no_longer_names_keeps_its_digest(nightly):
    told(nightly("{webhook: {url_env: HOOK}}"))
    file = nightly("{slack: {url_env: HOOK}}")
    found = told(file, nights=())[1]
    assert [(one.target, one.error) for one in found] == [("webhook", "the nightly file no longer names it")]


@pytest.mark.parametrize(
    ("when", "code", "before", "fell", "is_told"),
    [
        ("always", 0, 0, False, True),
        ("changed", 10, 10, False, False),
        ("changed", 0, 10, False, True),
        ("changed", 10, 10, True, True),
        ("not_approved", 0, 10, False, False),
        ("not_approved", 0, 0, True, True),
        ("not_approved", 12, 12, False, True),
    ],
)
def test_each_target_says_of_which_nights_it_is_told_and_all_are_told_of_a_fall(when, code, before, fell, is_told):
    trends = (fallen(),) if fell else ()
    assert digest.wanted(when, (night(code, before, trends=trends),), Exit(code), 0) is is_told


def fallen() -> ArmTrend:
    seen = Watched(
        arm="int4", metric="exact_match", run_ids=("a", "b", "c"), began=("2026-11-24T", "2026-11-25T", "2026-11-26T"),
        means=(0.9, 0.85, 0.85), values=((9,), (8,), (8,)), weight=10, approved_by="Ana", other_cases=False,
    )  # fmt: skip
    fall = Fall(detected=2, began=1, size=0.05, p_cases=0.001)
    return ArmTrend(watched=seen, trend=Trend(p=(0.1, 0.1), log_evidence=(1.0, 9.0), threshold=8.9, falls=(fall,)))


def test_a_fall_is_told_by_its_size_and_its_nights():
    said = digest.body("n.yaml", (night(trends=(fallen(),)),), Exit.BLOCK, NOW, 0)
    assert "  NEW FALL: int4 exact_match by 5.0 points since 2026-11-25 (told 2026-11-26)" in digest.lines(said)


def test_a_slack_text_is_cut_where_slack_would_refuse_it():
    said = digest.body("n.yaml", tuple(night() for _ in range(400)), Exit.BLOCK, NOW, 0)
    assert len(digest.as_slack(said)["blocks"][0]["text"]["text"]) <= 3_000


def test_owners_are_mailed_one_by_one_and_one_that_is_refused_keeps_none_from_the_others(nightly, mail_server):
    server = mail_server(refuses=("bob@",))
    file = nightly(f"{{{server.named('security: none')}}}", "owners: [ana@example.com, bob@example.com]\n")
    [waits] = told(file)[1]
    assert (waits.target, waits.error) == ("mail:bob@example.com", "the mail server takes no mail for this address")
    [mail] = server.mails
    assert mail["To"] == "ana@example.com"
    assert mail["Subject"] == "qualgate: block, nightly.yaml"
    assert parsedate_to_datetime(mail["Date"]).year > 2000
    assert mail["Message-ID"].endswith("@example.com>"), "of the sender, and not this machine's name"
    assert "support: block, was approve" in mail.get_payload(decode=True).decode()


def test_a_server_without_protection_gets_no_mail_where_it_is_asked_for(nightly, mail_server):
    server = mail_server()
    [waits] = told(nightly(f"{{{server.named('security: starttls')}}}", "owners: [ana@example.com]\n"))[1]
    assert "the mail server cannot be used" in waits.error
    assert server.mails == []


def test_what_the_environment_lacks_is_told_beforehand(nightly, monkeypatch):
    file = nightly("{webhook: {url_env: HOOK_THAT_IS_NOT}, slack: {url_env: HOOK_THAT_IS}}")
    monkeypatch.setenv("HOOK_THAT_IS", "http://127.0.0.1/")
    assert delivery.check_targets(file) == ["the environment variable HOOK_THAT_IS_NOT is not set"]


def test_nothing_is_lost_where_the_process_dies_while_it_sends(nightly, monkeypatch):
    file = nightly("{webhook: {url_env: HOOK}}")
    monkeypatch.setattr(delivery, "_sent", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        told(file)
    with open_store(file.store_url) as store:
        assert [one.attempts for one in undelivered(store, file.name)] == [0]
