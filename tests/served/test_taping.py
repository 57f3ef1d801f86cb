"""Conversations with a server, recorded at the transport and told again from there without it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from qualgate.errors import EvidenceMissing, InfrastructureError, IntegrityError, UsageError
from qualgate.records import ArmSpec, Served, Wire
from qualgate.served.client import Client
from qualgate.served.faults import NotRecorded, NotServed
from qualgate.served.launch import running
from qualgate.served.replies import Models, Version
from qualgate.served.tape import begin_recording, check_recorded, of_run, session_of, without
from tests.served.scripted import Reply, as_json, as_stream, scripted, text_piece

KEY = "sk-canary-4711"
BODY = {"model": "m", "prompt": "p", "max_tokens": 4}
USAGE = {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}


def said(text: str) -> Reply:
    return as_json({**text_piece(text, "stop"), "usage": USAGE["usage"]})


async def _no_wait(seconds: float) -> None: ...


def talk(folder: Path, served: Served, talking, *, replayed: bool = False, session: str = "job-00000", arm: str = "v"):
    """What `talking` makes of a client of this session; an error is what it came to."""

    async def open_and_talk():
        wire = Wire(recording=str(folder), replayed=replayed)
        tape = session_of(wire, arm, "m", served, session)
        async with Client(arm, served, 4, tries=3, sleep=_no_wait, session=tape) as client:
            return await talking(client)

    return asyncio.run(open_and_talk())


def ask(body=BODY, of: str = ""):
    return lambda client: client.ask("/completions", body, of)


def lines(folder: Path, arm: str = "v", session: str = "job-00000") -> list[dict]:
    return [json.loads(line) for line in (folder / arm / f"{session}.jsonl").read_text().splitlines()]


SENT = [
    (BODY, said("yes")),
    ({**BODY, "stream": True}, as_stream(text_piece("y"), text_piece("és, 東京", "stop"), USAGE)),
]  # fmt: skip


@pytest.mark.parametrize(("body", "reply"), SENT)
def test_an_answer_is_told_again_with_its_times_and_nobody_is_asked(body, reply, tmp_path):
    with scripted(reply) as server:
        served = Served(endpoint=server.address, requests_per_minute=60_000)
        then = talk(tmp_path, served, ask(body))
    now = talk(tmp_path, served, ask(body), replayed=True)
    assert replace(now, first=0, last=0, max_gap=None) == replace(then, first=0, last=0, max_gap=None)
    assert now.first == pytest.approx(then.first, abs=0.5)
    assert now.first == lines(tmp_path)[1]["said"]["pieces"][0][0]


def test_what_failed_first_fails_again_and_the_same_question_gets_its_answers_in_turn(tmp_path):
    script = [Reply(status=503, headers={"Retry-After": "2"}), Reply(body=b"{", promised=900), said("one"), said("two")]

    async def twice(client):
        return [(await client.ask("/completions", BODY, "s/c")).text for _ in range(2)]

    with scripted(*script) as server:
        served = Served(endpoint=server.address)
        assert talk(tmp_path, served, twice) == ["one", "two"]
    assert talk(tmp_path, served, twice, replayed=True) == ["one", "two"]
    assert [line["said"]["status"] for line in lines(tmp_path)[1:-1]] == [503, 200, 200, 200]
    assert lines(tmp_path)[1]["said"]["headers"]["retry-after"] == "2"
    assert lines(tmp_path)[2]["said"]["broke"][0].endswith("Error")


def test_cases_get_their_own_answers_however_they_are_ordered(tmp_path):
    """Two cases that ask the same, of a server that does not say the same twice."""

    def both(*order):
        async def talking(client):
            return {of: (await client.ask("/completions", BODY, of)).text for of in order}

        return talking

    with scripted(said("first"), said("second")) as server:
        served = Served(endpoint=server.address)
        then = talk(tmp_path, served, both("s/a", "s/b"))
    assert talk(tmp_path, served, both("s/b", "s/a"), replayed=True) == then == {"s/a": "first", "s/b": "second"}


def test_pages_and_refusals_are_told_again(tmp_path):
    async def looked(client):
        found = await client.get("/models", Models), await client.get("/none", Version, of_host=True)
        with pytest.raises(NotServed) as refused:
            await client.ask("/completions", BODY)
        return found, str(refused.value), await client.page("/metrics")

    with scripted(as_json({"error": "too long"}, 400), version=Reply(status=404)) as server:
        server.metrics = Reply(body=b"drafts 4 \xff\n", kind="text/plain")
        served = Served(endpoint=server.address)
        then = talk(tmp_path, served, looked)
    assert talk(tmp_path, served, looked, replayed=True) == then
    assert then[2] == "drafts 4 \ufffd\n"


def test_no_server_at_all_is_told_again(tmp_path):
    with scripted() as server:
        served = Served(endpoint=server.address)

    async def given_up(client):
        with pytest.raises(InfrastructureError) as found:
            await client.ask("/completions", BODY)
        return str(found.value)

    then = talk(tmp_path, served, given_up)
    assert "ConnectError" in then
    assert talk(tmp_path, served, given_up, replayed=True) == then


def test_no_key_is_in_a_recording_even_where_a_server_repeats_it(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_KEY", KEY)
    pieces = as_stream(text_piece(f"your key is {KEY}"), text_piece("", "stop"), USAGE)
    reply = replace(pieces, headers={"Retry-After": KEY, "Location": f"http://x/{KEY}"})
    with scripted(reply) as server:
        served = Served(endpoint=server.address, api_key_env="SOME_KEY")
        answer = talk(tmp_path, served, ask({**BODY, "stream": True}))
        assert server.asked[0][1]["Authorization"] == f"Bearer {KEY}"
    assert answer.text == f"your key is {KEY}"
    raw = "".join(file.read_text() for file in tmp_path.rglob("*.jsonl"))
    assert KEY not in raw
    assert "uthorization" not in raw
    monkeypatch.delenv("SOME_KEY")  # none is needed to hear it again
    again = talk(tmp_path, served, ask({**BODY, "stream": True}), replayed=True)
    assert again.text == "your key is ***"


def test_a_key_that_is_parted_between_two_pieces_is_found():
    assert without([(0.1, "your " + KEY[:5]), (0.2, KEY[5:] + " ok")], KEY) == [(0.2, "your *** ok")]
    assert without([(0.1, f"a {KEY}"), (0.2, "b")], KEY) == [(0.1, "a ***"), (0.2, "b")]
    assert without([(0.1, "a"), (0.2, "b")], "") == [(0.1, "a"), (0.2, "b")]


@pytest.mark.parametrize(
    ("body", "of", "why"),
    [
        ({**BODY, "max_tokens": 9}, "s/c", "`max_tokens` was 4, and is 9"),
        ({**BODY, "prompt": "q" * 99}, "s/c", f'`prompt` was "p", and is "{"q" * 59}…'),
        ({**BODY, "prompt": "p" * 10 + "q" * 99}, "s/c", f'`prompt` was "p", and is "{"p" * 10}{"q" * 49}…'),
        ({**BODY, "top_p": 0.5}, "s/c", "`top_p` was not said, and is 0.5"),
        (BODY, "s/other", "nothing of this kind was asked then"),
    ],
)
def test_what_was_not_asked_then_is_refused_with_what_differs(body, of, why, tmp_path):
    with scripted(said("yes")) as server:
        served = Served(endpoint=server.address)
        talk(tmp_path, served, ask(of="s/c"))
    with pytest.raises(NotRecorded) as refused:
        talk(tmp_path, served, ask(body, of), replayed=True)
    assert f"v/job-00000: POST {server.address}/completions of {of} is not in the recording: {why}" in str(
        refused.value
    )


def test_long_texts_are_shown_from_where_they_part(tmp_path):
    before, after = "a" * 300 + " one", "a" * 300 + " two"
    with scripted(said("yes")) as server:
        served = Served(endpoint=server.address)
        talk(tmp_path, served, ask({**BODY, "prompt": before}))
    with pytest.raises(NotRecorded, match=r'was …a+ one", and is …a+ two"'):
        talk(tmp_path, served, ask({**BODY, "prompt": after}), replayed=True)


def test_a_question_that_was_asked_once_is_not_answered_twice(tmp_path):
    with scripted(said("yes")) as server:
        served = Served(endpoint=server.address)
        talk(tmp_path, served, ask())

    async def twice(client):
        await client.ask("/completions", BODY)
        await client.ask("/completions", BODY)

    with pytest.raises(NotRecorded, match="it was asked less often then"):
        talk(tmp_path, served, twice, replayed=True)


def test_another_server_job_or_file_is_refused(tmp_path):
    with scripted(said("yes")) as server:
        served = Served(endpoint=server.address)
        talk(tmp_path, served, ask())
    with pytest.raises(NotRecorded, match=r"of another server: `endpoint` was .*, and is .http://other"):
        talk(tmp_path, Served(endpoint="http://other/v1"), ask(), replayed=True)
    with pytest.raises(NotRecorded, match=r"`headers` was .., and is ..X-Team.: .b.."):
        talk(tmp_path, replace(served, extra_headers=(("X-Team", "b"),)), ask(), replayed=True)
    with pytest.raises(NotRecorded, match="no such part of the recording"):
        talk(tmp_path, served, ask(), replayed=True, session="job-00001")
    file = tmp_path / "v" / "job-00000.jsonl"
    sound = file.read_text()
    for damaged in (sound.replace("yes", "no!"), sound[: len(sound) // 2], "", "[]\n", sound.partition("\n")[2]):
        file.write_text(damaged)
        with pytest.raises(IntegrityError, match="not as it was written"):
            talk(tmp_path, served, ask(), replayed=True)


def test_a_started_servers_port_is_no_part_of_what_was_asked(tmp_path):
    with scripted(said("yes")) as server:
        talk(tmp_path, Served(endpoint=server.address, command="serve --port {port}"), ask())
    again = Served(endpoint="http://started/v1", command="serve --port {port}")
    assert talk(tmp_path, again, ask(), replayed=True).text == "yes"
    with pytest.raises(NotRecorded, match=r"`serve` was .serve --port {port}., and is .serve --fp8"):
        talk(tmp_path, replace(again, command="serve --fp8 --port {port}"), ask(), replayed=True)


def test_a_server_that_a_run_starts_is_not_started_to_be_told_again(tmp_path):
    served = Served(command="no-such-program --port {port}", replayed=True)
    with running(ArmSpec(name="v", model="m", served=served), tmp_path, lambda: False) as arm:
        assert arm is not None
        assert arm.served == replace(served, endpoint="http://started/v1")


def test_a_job_that_failed_leaves_nothing_and_one_that_is_run_again_is_as_it_was_last(tmp_path):
    async def fails(client):
        await client.ask("/completions", BODY)
        raise InfrastructureError("interrupted")

    with scripted(said("old"), said("once"), said("half"), said("new")) as server:
        served = Served(endpoint=server.address)
        talk(tmp_path, served, ask(of="s/a"))
        talk(tmp_path, served, ask(of="s/b"))
        with pytest.raises(InfrastructureError):
            talk(tmp_path, served, fails)
        assert sorted(file.name for file in (tmp_path / "v").iterdir()) == ["job-00000.jsonl"]
        talk(tmp_path, served, ask(of="s/a"))
    assert talk(tmp_path, served, ask(of="s/a"), replayed=True).text == "new"
    assert talk(tmp_path, served, ask(of="s/b"), replayed=True).text == "once"


def test_folders_that_are_no_place_for_a_recording_are_refused(tmp_path):
    with pytest.raises(UsageError, match="there is no recording"):
        check_recorded(tmp_path / "none")
    begin_recording(tmp_path / "new", "gate.yaml")
    check_recorded(tmp_path / "new")
    of_run(tmp_path / "new", "run-1")
    begin_recording(tmp_path / "new", "gate.yaml")  # resumed
    with pytest.raises(UsageError, match="in run 'run-1', and this is run run-2"):
        of_run(tmp_path / "new", "run-2")
    of_run(tmp_path / "new", "run-1", whole=True)
    with pytest.raises(UsageError, match="a whole recording already"):
        begin_recording(tmp_path / "new", "gate.yaml")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="it holds other files"):
        begin_recording(tmp_path / "other", "gate.yaml")
    check_recorded(tmp_path / "new", max_age=3600)
    for began in ("2026-01-01T00:00:00+00:00", "9999-01-01T00:00:00+00:00", "yesterday", 5):
        (tmp_path / "new" / "recording.json").write_text(json.dumps({"recording": 1, "began": began}))
        check_recorded(tmp_path / "new")
        with pytest.raises(EvidenceMissing, match="longer ago than `max_age` allows"):
            check_recorded(tmp_path / "new", max_age=3600)
    (tmp_path / "new" / "recording.json").write_text('{"recording": 2}')
    with pytest.raises(UsageError, match="its form is 2"):
        check_recorded(tmp_path / "new")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        begin_recording(tmp_path / "file" / "below", "gate.yaml")
