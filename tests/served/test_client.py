"""What a client makes of a server that answers, refuses, breaks off, lies, or sends it elsewhere."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from dataclasses import replace
from typing import Any

import pytest

from qualgate.errors import Exit, InfrastructureError, QualgateError, UsageError
from qualgate.records import ArmSpec, Served
from qualgate.served import client
from qualgate.served.client import Client
from qualgate.served.declared import declared, identify_served
from qualgate.served.faults import NotServed, RequestRefused
from qualgate.served.replies import Models
from qualgate.served.retries import TRIES
from tests.served.scripted import Reply, Scripted, as_json, as_stream, asking, scripted, sound, text_piece

WHOLE = {**text_piece("yes", "stop"), "usage": {"prompt_tokens": 3, "completion_tokens": 1}}
KEY = "sk-canary-4711"


def failing(server: Scripted, kind: type[QualgateError], body: dict[str, Any] | None = None, **served: Any) -> str:
    with pytest.raises(kind) as found:
        asking(server, body, **served)
    return str(found.value)


def test_a_whole_answer_is_read():
    with scripted(as_json(WHOLE)) as server:
        answer, waited = asking(server)
    assert (answer.text, answer.finish, answer.prompt_tokens, answer.completion_tokens) == ("yes", "stop", 3, 1)
    assert waited == []


def test_a_stream_is_put_together():
    pieces = text_piece("y"), text_piece("es"), text_piece("", "length"), {"choices": [], "usage": WHOLE["usage"]}
    with scripted(as_stream(*pieces)) as server:
        answer, _ = asking(server, {"prompt": "p", "stream": True})
    assert (answer.text, answer.finish, answer.completion_tokens) == ("yes", "length", 1)
    assert 0 < answer.first <= answer.last


def test_a_server_that_answers_whole_where_a_stream_was_asked_for_is_read():
    with scripted(as_json(WHOLE)) as server:
        answer, _ = asking(server, {"prompt": "p", "stream": True})
    assert answer.text == "yes"


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503, 520, 524])
def test_what_may_pass_is_asked_again(status):
    with scripted(as_json({}, status), as_json({}, status), as_json(WHOLE)) as server:
        answer, waited = asking(server)
    assert answer.text == "yes"
    assert len(waited) == 2
    assert 0.25 <= waited[0] <= 0.5 <= waited[1] <= 1.0  # doubled, and drawn between half and all of it


def test_a_server_is_left_alone_for_as_long_as_it_asks():
    with scripted(as_json({}, 429, Retry_After="7"), as_json(WHOLE)) as server:
        _, waited = asking(server)
    assert waited == [pytest.approx(7.0, abs=0.1)]


def test_a_server_that_asks_for_too_long_is_not_waited_for():
    later = as_json({"error": "later"}, 503, Retry_After="86400")
    with scripted(later, later) as server:  # once may be a mistake
        said = failing(server, InfrastructureError)
    assert "asks to wait for 24.0 h" in said
    with scripted(later, as_json(WHOLE)) as server:
        assert asking(server)[0].text == "yes"


def test_one_that_never_answers_is_the_machinerys():
    with scripted(*[as_json({"error": {"message": "queue full"}}, 503)] * TRIES) as server:
        said = failing(server, InfrastructureError)
    assert f"asked {TRIES} times" in said
    assert "queue full" in said
    assert InfrastructureError.exit == Exit.INFRASTRUCTURE


BROKEN = {
    "no end": as_stream(text_piece("half"), done=False),
    "cut in its last piece": Reply(
        body=as_stream(text_piece("half", "stop"), done=False).body + b'data: {"choices": [], "us',
        kind="text/event-stream",
    ),
    "an error without a name": as_stream({"object": "error", "message": "engine died", "code": 500}),
    "a part that is no text": as_json(
        {"choices": [{"message": {"content": [{"type": "image", "url": "x"}]}, "finish_reason": "stop"}]}
    ),
    "no reason": as_stream(text_piece("half")),
    "an error in the stream": as_stream(text_piece("half"), {"error": {"message": "oom"}}),
    "an error under 200": as_json({"error": {"message": "oom"}}),
    "no JSON": Reply(body=b"{"),
    "a web page": Reply(body=b"<html>gateway</html>", kind="text/html"),
    "nothing": Reply(),
    "no choice": as_json({"choices": []}),
    "two choices": as_json({"choices": [{"index": 0, "text": "a"}, {"index": 1, "text": "b"}]}),
    "a number for a text": as_json({"choices": [{"index": 0, "text": 5, "finish_reason": "stop"}]}),
    "an unknown end": as_json(text_piece("half", "tired")),
    "fewer bytes than promised": Reply(body=b'{"choices": [', promised=1000),
    "a piece twice": as_stream(
        text_piece("a", token_ids=[1]), text_piece("a", token_ids=[1]), text_piece("", "stop"),
        {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}},
    ),
    "more after its end": as_stream(text_piece("a", "stop"), text_piece("b")),
    "arguments before a name": as_stream(
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}}]},
    ),
    "an end in each piece and none of its stream": as_stream(
        *({"choices": [{"index": 0, "delta": {"content": said}, "finish_reason": "stop"}]} for said in "ab"),
        done=False,
    ),
    "tokens of the first piece alone": as_stream(
        {"choices": [{"index": 0, "text": "one", "token_ids": [1], "finish_reason": None}]},
        *({"choices": [{"index": 0, "text": said, "finish_reason": None}]} for said in "ab"),
        {"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]},
    ),
    "a text and no tokens of it": as_json(text_piece("the whole answer", "stop", token_ids=[], logprobs=None)),
    "a call of two names": as_stream(
        *({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"name": name}}]}}]}
          for name in ("a", "b")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_no_whole_answer_never_counts_as_one(what):
    with scripted(BROKEN[what], as_json(WHOLE)) as server:
        answer, waited = asking(server, {"prompt": "p", "stream": True})
    assert answer.text == "yes"
    assert len(waited) == 1
    with scripted(*[BROKEN[what]] * TRIES) as server:
        failing(server, InfrastructureError, {"prompt": "p", "stream": True})


def test_no_prompt_and_no_key_is_sent_on():
    with scripted() as elsewhere, scripted(Reply(status=307, headers={"Location": elsewhere.address})) as server:
        said = failing(server, NotServed)
        assert elsewhere.asked == []
    assert elsewhere.address in said
    assert "not sent on" in said


def test_the_key_goes_into_one_header_and_no_message(monkeypatch):
    monkeypatch.setenv("SOME_KEY", KEY)
    echoes = as_json({"error": f"{KEY} is wrong"}, 401)
    with scripted(as_json({"error": KEY}, 500), echoes) as server:
        said = failing(server, NotServed, api_key_env="SOME_KEY")
        assert [headers["Authorization"] for _, headers, _ in server.asked] == [f"Bearer {KEY}"] * 2
    assert KEY not in said
    assert "*** is wrong" in said
    assert "SOME_KEY" in said


def test_azures_own_header_has_the_key_too_and_no_other_host_is_sent_it(monkeypatch):
    monkeypatch.setenv("SOME_KEY", KEY)
    for ends, sent in ((client.AZURE, [None]), (("127.0.0.1",), [KEY])):
        monkeypatch.setattr(client, "AZURE", ends)
        with scripted(as_json({"error": "no"}, 401)) as server:
            failing(server, NotServed, api_key_env="SOME_KEY")
            assert [headers.get("api-key") for _, headers, _ in server.asked] == sent


@pytest.mark.parametrize("before", [66, 73, 77])
@pytest.mark.parametrize("quoted", [False, True])
def test_not_even_a_part_of_a_key_is_shown_where_a_message_is_cut(before, quoted, monkeypatch):
    monkeypatch.setenv("SOME_KEY", key := 'sk-ca"nary-4711')
    pad = "x" * (before if not quoted else before + 110)
    told = as_json({"error": pad + key}) if quoted else Reply(body=(pad + key).encode())
    with scripted(*[told] * TRIES) as server:
        said = failing(server, InfrastructureError, api_key_env="SOME_KEY")
    assert "sk-" not in said


@pytest.mark.parametrize("charset", ["utf-16", "no-such", "utf-8"])
def test_a_stream_in_no_charset_is_asked_again(charset):
    spoilt = Reply(body=b"data: \xff\xff\xff\n\n", kind=f"text/event-stream; charset={charset}")
    with scripted(spoilt, as_json(WHOLE)) as server:
        assert asking(server, {"prompt": "p", "stream": True})[0].text == "yes"


@pytest.mark.parametrize("told", [b"-1" + b"0" * 400, b"true", b'"-1"', b"null", b"[]"])
def test_log_probs_that_are_none_tell_nothing(told):
    choice = (
        b'{"choices": [{"text": "yes", "finish_reason": "stop", "token_ids": [1], "logprobs": {"token_logprobs": '
        b'[-0.5], "top_logprobs": [{"yes": -0.5, "no": ' + told + b"}]}}]}"
    )
    with scripted(Reply(body=choice)) as server:
        answer, _ = asking(server)
    assert (answer.text, answer.logprobs, answer.margins) == ("yes", (-0.5,), ())


@pytest.mark.parametrize("key", ["", "a b", "ké", "a\nb"])
def test_a_key_that_is_none_is_refused_unseen(key, monkeypatch):
    monkeypatch.setenv("SOME_KEY", key)
    with scripted() as server:
        said = failing(server, UsageError, api_key_env="SOME_KEY")
        assert server.asked == []
    assert "SOME_KEY" in said
    assert not key or key not in said


def test_what_a_server_refuses_is_not_asked_again():
    too_long = {"error": {"message": "maximum context length is 5 tokens"}}
    with scripted(as_json(too_long, 400)) as server:
        assert "maximum context length" in failing(server, RequestRefused)
    with scripted(as_json({}, 404)) as server:
        assert "`endpoint` is the API's address" in failing(server, NotServed)


def test_hostile_words_of_a_server_are_shown_harmlessly():
    with scripted(Reply(status=418, body=b"\x1b[31m::error::gone\n" + b"x" * 10_000)) as server:
        said = failing(server, NotServed)
    assert "\x1b" not in said
    assert "\n" not in said
    assert len(said) < 600


def test_a_web_page_where_the_api_should_be_says_what_an_address_is():
    async def look(address: str) -> Models | None:
        async with Client("x", Served(endpoint=address), 1) as client:
            return await client.get("/models", Models)

    with scripted(models=Reply(body=b"<!doctype html>", kind="text/html")) as server, pytest.raises(NotServed) as found:
        asyncio.run(look(server.address))
    assert "web page" in str(found.value)
    assert "http://127.0.0.1:8000/v1" in str(found.value)


def test_a_server_that_lists_no_model_is_told_how_it_can_be_asked():
    """As `transformers serve`, which lists what lies in its cache and loads what it is asked for."""

    async def look(address: str) -> str:
        served = Served(endpoint=address)
        async with Client("x", served, 1) as client:
            return await declared(client, ArmSpec(name="x", model="./support", served=served))

    with scripted(models=as_json({"object": "list", "data": []})) as server, pytest.raises(NotServed) as found:
        asyncio.run(look(server.address))
    assert "lists none" in str(found.value)
    assert "`engine: transformers`" in str(found.value)
    assert "`list_models: false`" in str(found.value)


def test_nobody_there_is_told_with_what_to_look_at():
    with scripted() as server:
        gone = server.address
    with pytest.raises(InfrastructureError, match="Look whether the server runs"):
        asking(Scripted(gone, [], as_json({}), as_json({}), None, sound))


def test_a_connection_that_cannot_be_secured_is_refused():
    with scripted() as server:
        secure = replace(server, address=server.address.replace("http:", "https:"))
        said = failing(secure, NotServed)
    assert "no secure connection" in said
    assert server.asked == []


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_certificate_is_trusted_where_its_authority_is_named_and_for_its_own_host(tmp_path, monkeypatch):
    for name in ("127.0.0.1", "192.0.2.7"):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test",
             "-addext", f"subjectAltName=IP:{name}", "-keyout", f"{name}.key", "-out", f"{name}.pem"],
            cwd=tmp_path, check=True, capture_output=True,
        )  # fmt: skip

    def asked_of(host: str, trusted: str | None) -> str:
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        if trusted:
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / trusted))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / f"{host}.pem", tmp_path / f"{host}.key")
        with scripted(as_json(WHOLE), secured=context) as server:
            try:
                return asking(server)[0].text
            except NotServed as error:
                return str(error)

    assert asked_of("127.0.0.1", "127.0.0.1.pem") == "yes"
    assert "certificate verify failed" in asked_of("127.0.0.1", None)
    assert "no secure connection" in asked_of("192.0.2.7", "192.0.2.7.pem"), "it is another host's"


def test_a_rate_is_kept_before_each_try_and_not_for_what_is_only_looked_up():
    with scripted(Reply(status=503), as_json(WHOLE)) as server:
        answer, waited = asking(server, requests_per_minute=60)
        assert answer.text == "yes"
        paced, backoff, again = waited
        assert paced == 1.0  # another may just have been sent
        assert 0.25 <= backoff <= 0.5
        assert again == pytest.approx(1.0, abs=0.1)  # its turn is one after the last one's

        async def look() -> Models | None:
            async def refuse(seconds: float) -> None:
                raise AssertionError("nothing is to wait")

            served = Served(endpoint=server.address, requests_per_minute=60)
            async with Client("x", served, 1, sleep=refuse) as client:
                return await client.get("/models", Models)

        assert asyncio.run(look()) is not None


def test_parameters_that_a_server_calls_otherwise_are_named_so_and_others_left_out():
    body = {"prompt": "p", "max_tokens": 4, "temperature": 0.0}
    named = (("max_tokens", "max_completion_tokens"), ("temperature", "omit"))
    with scripted(as_json(WHOLE)) as server:
        asking(server, body, parameters=named)
        [(_, _, sent)] = server.asked
    assert sent == {"prompt": "p", "max_completion_tokens": 4}


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        ("Unsupported parameter: 'max_tokens'", "`parameters: {max_tokens: max_completion_tokens}`"),
        ("'temperature' does not support 0.0 with this model", "`parameters: {temperature: omit}`"),
        ("Unrecognized request argument supplied: stream_options", "`parameters: {stream_options: omit}`"),
        ("'seed' is not supported; supported: max_tokens, stop", "`parameters: {seed: omit}`"),
        ("Additional properties are not allowed ('stop' was unexpected)", "`parameters: {stop: omit}`"),
    ],
)
def test_a_refused_parameter_is_told_with_its_cure(words, cure):
    with scripted(as_json({"error": {"message": words}}, 400)) as server:
        assert cure in failing(server, RequestRefused)


def test_a_new_name_that_a_server_does_not_know_is_told_as_the_gate_file_has_it():
    refused = as_json({"error": "unknown field: max_output"}, 400)
    with scripted(refused) as server, pytest.raises(RequestRefused, match=r"`parameters: \{max_tokens: max_output\}`"):
        asking(server, parameters=(("max_tokens", "max_output"),))


def test_a_prompt_that_is_too_long_is_no_parameter_to_leave_out():
    words = "max_tokens is too large: 32768. This model supports at most 16384 completion tokens"
    with scripted(as_json({"error": {"message": words}}, 400)) as server:
        assert "parameters" not in failing(server, RequestRefused)


WORDS = "model overloaded, code X1"
PAGE = f"<!DOCTYPE html><style>{'p{}' * 90}</style><title>{WORDS}</title>".encode()
FORMS = {
    "error": as_json({"error": {"message": WORDS}}),
    "detail": as_json({"detail": WORDS}),
    "message and code": as_json({"message": WORDS, "code": 503}),
    "object": as_json({"object": "error", "message": WORDS}),
    "msg": as_json({"code": 500, "msg": WORDS}),
    "no choices and no tokens": as_json({"choices": None, "usage": {"completion_tokens": 0}, "message": WORDS}),
    "in words of its own": as_json({"choices": None, "usage": {"completion_tokens": 0}, "error_msg": WORDS}),
    "in its choice": as_json({"choices": [{"text": "a", "finish_reason": "error", "error": {"message": WORDS}}]}),
    "page": Reply(body=PAGE, kind="text/html"),
    "event": Reply(body=f'event: error\ndata: {{"message": "{WORDS}"}}\n\n'.encode(), kind="text/event-stream"),
    "event of text": Reply(body=f"event: error\ndata: {WORDS}\n\n".encode(), kind="text/event-stream"),
    "event behind a piece": as_stream(text_piece("a"), {"code": 1, "msg": WORDS}),
}


@pytest.mark.parametrize("form", FORMS)
def test_an_error_under_the_status_200_is_told_in_the_servers_own_words(form):
    with scripted(*[FORMS[form]] * TRIES) as server:
        assert WORDS in failing(server, InfrastructureError, {"prompt": "p", "stream": "event" in form})


def test_an_arm_that_leaves_out_what_steers_an_answer_is_compared_with_its_like_alone():
    def sampling(*parameters: tuple[str, str]) -> str:
        served = Served(endpoint="http://127.0.0.1:1/v1", parameters=parameters)
        return identify_served(ArmSpec(name="x", model="m", served=served), None, {}, "").sampling

    assert sampling(("temperature", "omit")) != sampling() == sampling(("max_tokens", "max_completion_tokens"))
    assert sampling(("stream_options", "omit")) == sampling()
