"""One job of a served arm: what its server is asked, and what is made of what it answers."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from qualgate.engine.prompts import load_tokenizer
from qualgate.errors import InfrastructureError, IntegrityError, UsageError
from qualgate.pipeline.served_arms import of_server
from qualgate.quant.model_files import read_files
from qualgate.records import (
    GREEDY,
    UNCOUNTED,
    ArmSpec,
    Case,
    Completion,
    Job,
    JobFailure,
    JobResult,
    Prompt,
    Sampling,
    Served,
    UnitKey,
)
from qualgate.scoring.reasoning import way_of
from qualgate.scoring.tools.dialects import BadCall, hermes
from qualgate.served.asked import asked_of, request_of
from qualgate.served.job import run_served
from tests.served.scripted import MODELS, Reply, Scripted, as_json, as_stream, scripted, text_piece
from tests.tiny_models import save_byte_tokenizer

TOOLS = [{"type": "function", "function": {"name": "cancel_order", "parameters": {"type": "object"}}}]
CASE = Case(evalset="s", body={"id": "c", "messages": [{"role": "user", "content": "Cancel A1."}], "tools": TOOLS})
HERMES = '<tool_call>\n{"name": "cancel_order", "arguments": {"order": "A1"}}\n</tool_call>'


def prompt(number: int = 0, case: Case = CASE, **more: Any) -> Prompt:
    asked = asked_of(case, Served(endpoint="x"), "hermes" if "tools" in case.body else "")
    key = UnitKey("x", "s", f"c-{number}", more.pop("repeat", 0))
    told = {"asked": asked, "reasoning": way_of(case.body), "token_ids": (), "max_new_tokens": 9}
    return Prompt(**{"key": key, "case_hash": "h", **told, **more})


def answered(server: Scripted, *prompts: Prompt, at_once: int = 4, **served: Any) -> JobResult:
    arm = ArmSpec(name="x", model="m", served=Served(endpoint=server.address, **served))
    job = Job(index=3, arm=arm, prompts=prompts or (prompt(),), artifact="", drafted=False, seed=5)
    return run_served(job, {"temperature": 0}, at_once)


def always_x(body: dict[str, Any]) -> Reply:
    return as_json(text_piece("x", "stop"))


def completion_of(reply: Reply, *prompts: Prompt, **served: Any) -> Completion:
    """What is made of a server's one reply."""
    with scripted(reply) as server:
        [completion] = answered(server, *prompts, **served).completions
    return completion


def asked_once(*prompts: Prompt, **served: Any) -> tuple[str, dict[str, Any]]:
    """Path and body of the one request that is made of it."""
    with scripted(as_json(text_piece("x", "stop"))) as server:
        answered(server, *prompts, **served)
        [(path, _, body)] = server.asked
    return path, body


def of_case(**body: Any) -> Prompt:
    return prompt(case=Case(evalset="s", body={"id": "c", **body}))


def calls(*given: tuple[str, str], content: str | None = None) -> dict[str, Any]:
    made = [
        {"id": f"c{n}", "type": "function", "function": {"name": a, "arguments": b}} for n, (a, b) in enumerate(given)
    ]
    message = {"role": "assistant", "content": content, "tool_calls": made}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}


def test_calls_that_a_servers_parser_read_are_written_in_their_dialect():
    completion = completion_of(as_json(calls(("cancel_order", '{"order":"A1"}'))))
    assert (completion.text, completion.finish_reason) == (HERMES, "stop")


@pytest.mark.parametrize("said", [{}, {"dialect": "auto"}, {"dialect": "hermes"}])
def test_parsed_calls_need_no_dialect(said):
    served = ArmSpec(name="x", model="m", served=Served(endpoint="http://127.0.0.1:1/v1"))
    asked = of_server(replace(CASE, body=CASE.body | said), served)
    completion = completion_of(as_json(calls(("cancel_order", '{"order":"A1"}'))), replace(prompt(), asked=asked))
    assert completion.text == HERMES


@pytest.mark.parametrize(
    ("sampling", "timed", "asked"),
    [(GREEDY, False, False), (GREEDY, True, True), (Sampling(temperature=0.7), False, True)],
)
def test_log_probs_cost_a_server_time_and_are_asked_where_something_rests_on_them(sampling, timed, asked, tmp_path):
    save_byte_tokenizer(tmp_path)
    served = Served(engine="vllm", tokenizer=str(tmp_path), stream=False)
    one = replace(prompt(), token_ids=(1, 2), asked="", sampling=sampling)
    with scripted(as_json(text_piece("x", "stop", token_ids=[3]))) as server:
        arm = ArmSpec(name="x", model="m", served=replace(served, endpoint=server.address))
        run_served(Job(index=0, arm=arm, prompts=(one,), artifact="", drafted=False, timed=timed), {}, 1)
        [(_, _, body)] = server.asked
    assert ("logprobs" in body) is asked
    assert "logprobs" not in request_of(one, arm, 0)[1]  # as `qualgate load` asks


THOUGHT = prompt(case=Case(evalset="s", body={**CASE.body, "reasoning": "think"}))


def with_thought(whole: dict[str, Any], name: str = "reasoning") -> dict[str, Any]:
    whole["choices"][0]["message"][name] = "Which order?"
    return whole


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_a_thought_that_a_servers_parser_took_off_is_kept_before_the_answer(name):
    whole = with_thought(calls(("cancel_order", '{"order":"A1"}'), content="Done."), name)
    assert completion_of(as_json(whole), THOUGHT).text == f"<think>Which order?</think>\n\nDone.{HERMES}"
    assert "reasoning" not in asked_once(THOUGHT)[1]
    assert completion_of(as_json(whole)).text == f"Done.{HERMES}", "no case asks for it"


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        ({"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 5}}, 5),
        ({"completion_tokens": 9, "reasoning_tokens": 5}, 5),
        ({"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 0}}, UNCOUNTED),  # it counts none
        ({"completion_tokens": 4, "completion_tokens_details": {"reasoning_tokens": 5}}, UNCOUNTED),
        ({"completion_tokens": 9, "completion_tokens_details": None}, UNCOUNTED),
    ],
)
def test_a_servers_count_of_a_thoughts_tokens_is_taken_where_it_can_be_true(usage, counted):
    whole = as_json(with_thought(calls(content="Done.")) | {"usage": {"prompt_tokens": 3, **usage}})
    assert (completion_of(whole, THOUGHT).thought, completion_of(whole).thought) == (counted, None)
    assert completion_of(as_json(calls(content="Done.")), THOUGHT).thought == 0, "it has none"


def piece(reason: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def test_a_thought_in_pieces_without_an_answer_never_ended():
    case = Case(evalset="s", body={**CASE.body, "reasoning": "seed_opened"})
    pieces = piece(reasoning="Which"), piece(reasoning=" order?"), piece("length")
    completion = completion_of(as_stream(*pieces), prompt(case=case))
    assert (completion.text, completion.finish_reason) == ("<seed:think>Which order?", "length")


@pytest.mark.parametrize("between", [None, "\n"])
def test_calls_in_pieces_are_the_same_calls_with_a_blank_between_their_tags_or_none(between):
    functions = {"name": "cancel_order", "arguments": ""}, {"arguments": '{"order"'}, {"arguments": ': "A1"}'}
    pieces = [piece(tool_calls=[{"index": 0, "function": function}]) for function in functions]
    behind = {"choices": [{"index": 0, "delta": {"content": between}}]}
    assert completion_of(as_stream(*pieces, behind, piece("tool_calls"))).text == HERMES


@pytest.mark.parametrize("arguments", ['{"order":', "[1]", '{"a": 1, "a": 2}', '{"a": NaN}'])
def test_arguments_that_are_no_json_are_no_right_call(arguments):
    completion = completion_of(as_json(calls(("cancel_order", arguments))))
    with pytest.raises(BadCall):
        hermes(completion.text, TOOLS)


def test_messages_and_tools_go_as_the_case_has_them_and_nothing_of_ours_beside():
    more = '{"chat_template_kwargs": {"enable_thinking": false}}'
    assert asked_once(extra_body=more, stream=False) == (
        "/v1/chat/completions",
        {
            "model": "m",
            "messages": CASE.body["messages"],
            "tools": TOOLS,
            "max_tokens": 9,
            "temperature": 0.0,
            "chat_template_kwargs": {"enable_thinking": False},
        },
    )


def test_what_draws_is_asked_by_a_seed_of_its_case_and_repeat():
    drawn = Sampling(temperature=0.7, top_p=0.9, top_k=40)
    asked = [prompt(0, sampling=drawn), prompt(0, sampling=drawn, repeat=1), prompt(1, sampling=drawn)]
    with scripted(otherwise=always_x) as server:
        answered(server, *asked)
        answered(server, *asked)
        seeds = [body["seed"] for _, _, body in server.asked]
        body = server.asked[0][2]
    assert (body["temperature"], body["top_p"], body["top_k"]) == (0.7, 0.9, 40)
    assert len(set(seeds[:3])) == 3
    assert sorted(seeds[:3]) == sorted(seeds[3:])


def test_a_schema_that_holds_an_answer_is_asked_for():
    schema = {"type": "object"}
    path, body = asked_once(replace(of_case(prompt="p", constraint={"json_schema": schema}), until=("\n",)))
    assert path == "/v1/completions"
    assert (body["prompt"], body["stop"]) == ("p", ["\n"])
    assert body["response_format"]["json_schema"]["schema"] == schema


def test_half_a_character_in_a_case_is_sent_as_it_stands():
    assert asked_once(of_case(prompt="a\ud800"))[1]["prompt"] == "a\ud800"


def test_as_many_are_asked_at_once_as_the_gate_file_says_and_no_more():
    together, lock, open_now, most = threading.Barrier(4, timeout=20), threading.Lock(), [0], [0]

    def waiting(body: dict[str, Any]) -> Reply:
        with lock:
            open_now[0] += 1
            most[0] = max(most[0], open_now[0])
        together.wait()
        with lock:
            open_now[0] -= 1
        return as_json(text_piece("x", "stop"))

    with scripted(otherwise=waiting) as server:
        result = answered(server, *map(prompt, range(12)), at_once=4, stream=False)
    assert len(result.completions) == 12
    assert most[0] == 4


def test_answers_are_those_of_their_own_prompts_whatever_order_they_come_in():
    def said(body: dict[str, Any]) -> Reply:
        return as_json(text_piece(body["prompt"], "stop"))

    cases = [Case(evalset="s", body={"id": f"c-{number}", "prompt": f"p-{number}"}) for number in range(20)]
    asked = [prompt(number, case=case) for number, case in enumerate(cases)]
    with scripted(*[as_json({}, 503, Retry_After="0")] * 5, otherwise=said) as server:
        result = answered(server, *asked, at_once=8)
    assert [completion.text for completion in result.completions] == [f"p-{number}" for number in range(20)]
    assert [completion.key.case_id for completion in result.completions] == [f"c-{number}" for number in range(20)]


def test_tokens_are_counted_as_the_server_counts_them_where_it_tells_none():
    usage = {"prompt_tokens": 11, "completion_tokens": 7}
    completion = completion_of(as_json({**text_piece("x", "length"), "usage": usage}))
    assert (completion.prompt_tokens, completion.tokens, completion.token_ids) == (11, 7, ())
    assert completion.finish_reason == "length"


@pytest.mark.parametrize("root", ["./m", "./m" * 400])
def test_who_answered_is_a_part_of_what_the_arm_is_and_a_long_name_hides_no_version(root):
    with scripted(models=as_json({"data": [{"id": "m", "root": root}]}), otherwise=always_x) as server:
        first = answered(server)
        server.version = as_json({"version": "2.0"})
        second = answered(server)
    assert first.generation.engine == "engine not told 1.0"
    assert first.identity.served == "m, root ./m; engine not told 1.0" or root != "./m"
    assert first.identity != second.identity


def test_a_server_that_changes_while_it_answers_ends_the_run():
    with scripted() as server:

        def change(body: dict[str, Any]) -> Reply:
            server.models = as_json({"data": [{**MODELS["data"][0], "root": "./other"}]})
            return as_json(text_piece("x", "stop"))

        server.otherwise = change
        with pytest.raises(IntegrityError, match="changed during the run"):
            answered(server)


def test_a_version_that_nobody_tells_is_not_needed():
    page = Reply(body=b"<html>", kind="text/html")
    with scripted(as_json(text_piece("x", "stop")), version=page) as server:
        assert answered(server).identity.served == "m, root ./m; engine not told"


def test_one_answer_that_does_not_come_fails_the_job_whole():
    with (
        scripted(*[as_json({}, 503, Retry_After="9999")] * 2, otherwise=always_x) as server,  # the check's, and another
        pytest.raises(InfrastructureError),
    ):
        answered(server, *map(prompt, range(6)))


def handed(
    server: Scripted, *prompts: Prompt, job: dict[str, Any] | None = None, threads: Any = None
) -> tuple[list[Any], Any]:
    """What is handed back of a job before its end, and its end. threads: in which it is handed back."""
    parts: list[Any] = []

    def hand(part: Any) -> None:
        parts.append(part)
        if threads is not None:
            threads.append(threading.current_thread())

    arm = ArmSpec(name="x", model="m", served=Served(endpoint=server.address))
    asked = Job(index=3, arm=arm, prompts=prompts, artifact="", drafted=False, **(job or {}))
    try:
        return parts, run_served(asked, {"temperature": 0}, 2, hand=hand)
    except (InfrastructureError, UsageError, IntegrityError) as error:
        return parts, error


def test_answers_are_handed_back_as_they_come_and_together_they_are_the_job():
    with scripted(otherwise=always_x) as server:
        parts, rest = handed(server, *map(prompt, range(4)))
        whole = answered(server, *map(prompt, range(4)))
    assert [len(part.completions) for part in parts] == [1, 1, 1, 1]
    assert all(part.part and part.identity == whole.identity for part in parts)
    assert (rest.part, rest.completions) == (False, ())
    together = sum((part.generation for part in parts), rest.generation)
    assert together == whole.generation


def test_answers_whose_times_are_compared_are_handed_on_outside_the_loop_that_measures_them():
    threads = list[threading.Thread]()
    with scripted(otherwise=always_x) as server:
        parts, rest = handed(server, *map(prompt, range(3)), job={"timed": True}, threads=threads)
    assert ([len(part.completions) for part in parts], rest.completions) == ([1, 1, 1], ())
    assert threading.current_thread() not in threads


@pytest.mark.parametrize(
    ("status", "words", "refused"),
    [
        (200, "asked 3 times, no answer", False),
        (400, 'refuses the request (400): {"error": "no"}', True),
    ],
)
def test_a_case_that_fails_is_named_with_the_servers_words_and_the_others_are_answered(status, words, refused):
    strikes = as_json({"error" if status == 400 else "result": "no"}, status)

    def but_one(body: dict[str, Any]) -> Reply:
        return strikes if body["messages"][0]["content"] == "2" else always_x(body)

    cases = [Case(evalset="s", body={"id": "c", "messages": [{"role": "user", "content": f"{n}"}]}) for n in range(6)]
    with scripted(otherwise=but_one) as server:
        parts, _ = handed(server, *map(prompt, range(6), cases))
    [failure] = [part for part in parts if isinstance(part, JobFailure)]
    [key] = failure.keys
    assert failure.error.startswith(f"s/{key.case_id}: x (")
    assert words in failure.error
    assert '"no"' in failure.error
    assert (failure.part, failure.refused, failure.void) == (True, refused, False)
    assert {key, *(key for part in parts for key in part.keys)} == {UnitKey("x", "s", f"c-{n}") for n in range(6)}


def test_answers_that_were_handed_back_are_void_where_the_server_changed_meanwhile():
    with scripted() as server:

        def change(body: dict[str, Any]) -> Reply:
            server.models = as_json({"data": [{**MODELS["data"][0], "root": "./other"}]})
            return always_x(body)

        server.otherwise = change
        parts, error = handed(server, *map(prompt, range(3)))
    assert isinstance(error, IntegrityError)
    assert (parts[-1].void, len(parts[-1].keys)) == (True, 3)


def test_tokens_that_are_told_are_read_here(tmp_path):
    save_byte_tokenizer(tmp_path)
    tokenizer = load_tokenizer(read_files(tmp_path))
    said = [*tokenizer("Hi")["input_ids"], tokenizer.eos_token_id]
    piece = text_piece("what the server makes of it", "stop", token_ids=said)
    asked = replace(of_case(prompt="p"), token_ids=(1, 2, 3), asked="")
    with scripted(as_json({**piece, "usage": {"prompt_tokens": 3, "completion_tokens": len(said)}})) as server:
        [completion] = answered(server, asked, tokenizer=str(tmp_path)).completions
        [(path, _, body)] = server.asked
    assert path == "/v1/completions"
    assert body["prompt"] == [1, 2, 3]
    assert body["return_token_ids"] is True
    assert (completion.text, completion.finish_reason, completion.token_ids) == ("Hi", "eos", tuple(said))


def test_a_prompt_that_is_read_in_part_ends_the_run(tmp_path):
    save_byte_tokenizer(tmp_path)
    asked = replace(of_case(prompt="p"), token_ids=(1, 2, 3), asked="")
    part = {**text_piece("x", "stop"), "usage": {"prompt_tokens": 2, "completion_tokens": 1}}
    with (
        scripted(as_json(part)) as server,
        pytest.raises(UsageError, match="reads other tokens than it is sent: 3 of s/c-0, of which it counts 2"),
    ):
        answered(server, asked, tokenizer=str(tmp_path))


@pytest.mark.parametrize(
    "hiccup", [as_json({}, 401), as_json({}, 402), Reply(body=b"<html>maintenance</html>", kind="text/html")]
)
def test_a_list_of_models_that_does_not_come_voids_no_answer(hiccup):
    with scripted(otherwise=always_x) as server:

        def change(body: dict[str, Any]) -> Reply:
            server.models = hiccup
            return always_x(body)

        server.otherwise = change
        parts, error = handed(server, *map(prompt, range(3)))
    assert isinstance(error, UsageError)
    assert not isinstance(error, IntegrityError)
    assert [len(part.completions) for part in parts] == [1, 1, 1]
