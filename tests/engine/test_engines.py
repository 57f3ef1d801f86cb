"""What every engine keeps to: one end each, and the answers of one request at a time, one token a step."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from qualgate.engine import packed
from qualgate.engine.padded import engine as padded_engine
from qualgate.engine.padded import step_loop
from qualgate.engine.prompts import load_tokenizer
from qualgate.engine.request import Ended, Engine, Event, Read, Request, Spoken
from qualgate.engine.sampling import Draws, noise_numbers
from qualgate.engine.schedule import Limits
from qualgate.quant.model_files import read_files
from qualgate.records import Sampling
from qualgate.refmodel import PATH
from tests.engine.engines import (
    END,
    KINDS,
    MOST,
    Kind,
    Told,
    answered,
    asked,
    drafts_of,
    generated,
    laid_out,
    load,
    opened,
    other,
    questions,
    reference,
    right_answers,
)


@pytest.fixture(scope="module")
def theirs() -> Any:
    return reference("padded")


@pytest.fixture(scope="module", params=KINDS)
def kind(request) -> Kind:
    return request.param


@pytest.fixture(scope="module")
def engine(kind) -> Iterator[Engine]:
    with opened(kind, reference(kind)) as engine:
        yield engine


@pytest.fixture(scope="module")
def prompts() -> list[tuple[int, ...]]:
    return questions()


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    return right_answers()


def weighed(model: Any, prompt: Sequence[int], answer: Sequence[int]) -> tuple[list[int], list[float], list[float]]:
    """By one pass of the model's own: at each token of an answer the likeliest, its log-prob, and the token's own."""
    with torch.inference_mode():
        logits = model(torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 : -1].double()
    logprobs = logits.log_softmax(-1)
    best, tokens = logprobs.max(-1)
    return tokens.tolist(), best.tolist(), logprobs.gather(-1, torch.tensor(answer)[:, None])[:, 0].tolist()


# ------------------------------------------------------------------------------------------------ plain answers


def test_greedy_answers_are_those_of_transformers_generate_each_told_in_its_time(engine, theirs, prompts, expected):
    engine.abort(0)  # outside of a run: nothing
    told = answered(engine, asked(prompts))
    assert told.tokens == expected
    assert told.reasons == ["eos" if answer[-1] == END else "length" for answer in expected]
    for prompt, answer, logprobs in zip(prompts, expected, told.logprobs, strict=True):
        assert logprobs == pytest.approx(weighed(theirs, prompt, answer)[1], abs=1e-4)
    assert all(end.proposed == end.accepted == 0 for end in told.ended.values())
    seconds = [event.seconds for event in told.events]
    assert seconds == sorted(seconds)
    assert seconds[0] > 0


def test_what_was_done_is_counted(engine, prompts, expected):
    before = replace(engine.tally)
    offered = [drafts_of(answer)["with a wrong token"][0] for answer in expected[:2]]
    requests = [*asked(prompts), *(replace(one, answer=tuple(draft)) for one, draft in zip(
        asked(prompts[:2]), offered, strict=True))]  # fmt: skip
    told = answered(engine, requests)
    after = engine.tally
    assert after.tokens - before.tokens == sum(map(len, told.tokens))
    assert max(map(len, expected)) <= after.passes - before.passes <= sum(map(len, told.tokens))
    assert (after.forked - before.forked, after.rejoined) == (2, before.rejoined)


def test_states_are_what_gives_the_logits_of_each_token_or_are_told_where_it_was_read(engine, prompts, expected):
    plain, wrong = asked(prompts), [drafts_of(answer)["with a wrong token"][0] for answer in expected]
    offered = [replace(request, answer=tuple(draft)) for request, draft in zip(plain[3:], wrong[3:], strict=True)]
    for requests in (plain, [*plain[:3], *offered]):
        for event in answered(engine, requests).events:
            if isinstance(event, Spoken) and event.states is None:
                assert any(requests[at].answer for at in event.requests)
            elif not isinstance(event, Ended):
                said = event.tokens if isinstance(event, Spoken) else event.predicted.tokens.tolist()
                assert event.states is not None
                assert engine.head.logits(event.states).argmax(-1).tolist() == said


def test_one_token_and_no_request_at_all(engine, prompts, expected):
    told = answered(engine, asked(prompts, max_new_tokens=1))
    assert told.tokens == [answer[:1] for answer in expected]
    assert set(told.reasons) == {"length"}
    assert answered(engine, []).events == []


def test_a_request_that_fills_the_context_to_its_last_position(engine, theirs, prompts):
    prompt = (prompts[4] * 30)[: 1024 - 7]
    told = answered(engine, asked([prompt], max_new_tokens=8))
    assert told.tokens == [generated(theirs, prompt, 8)]


def test_an_answer_that_was_begun_is_gone_on_with(engine, prompts, expected):
    begun = [1 + at for at in range(len(prompts))]
    requests = [
        replace(request, begun=tuple(answer[:count]))
        for request, answer, count in zip(asked(prompts), expected, begun, strict=True)
    ]
    found: list[list[int]] = [list(request.begun) for request in requests]

    def hear(event: Event) -> None:
        if isinstance(event, Spoken):
            for request, position, token in zip(event.requests, event.positions, event.tokens, strict=True):
                assert position == len(found[request])
                found[request].append(token)

    engine.run(requests, None, hear)
    assert found == expected


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"prompt": (), "max_new_tokens": 1}, "prompt"),
        ({"prompt": (), "answer": (1,)}, "prompt"),
        ({"prompt": (1,)}, "max_new_tokens"),
        ({"prompt": (1,), "max_new_tokens": -1, "answer": (1,)}, "max_new_tokens"),
        ({"prompt": (1,), "max_new_tokens": 2, "begun": (1, 2)}, "begun"),
        ({"prompt": (1,), "max_new_tokens": 2, "begun": (1,), "answer": (2,)}, "begun"),
    ],
)
def test_what_asks_for_nothing_is_no_request(how, said):
    with pytest.raises(ValueError, match=said):
        Request(**how)


# ---------------------------------------------------------------------------------------- answers that are offered


@pytest.mark.parametrize("way", drafts_of([0] * MOST))
def test_an_offered_answer_changes_no_token_and_is_counted(engine, prompts, expected, way):
    offered = [drafts_of(answer)[way] for answer in expected]
    requests = [
        replace(request, answer=tuple(draft)) for request, (draft, _) in zip(asked(prompts), offered, strict=True)
    ]
    told = answered(engine, requests)
    assert told.tokens == expected
    assert told.reasons == ["eos" if answer[-1] == END else "length" for answer in expected]
    ends = [told.ended[request] for request in range(len(prompts))]
    assert [end.proposed for end in ends] == [len(draft) for draft, _ in offered]
    assert [end.accepted for end in ends] == [agreed for _, agreed in offered]
    assert [[answer for answer, *_ in read] for read in told.reads] == [draft for draft, _ in offered]


def test_a_text_across_tokens_ends_an_answer_offered_or_not(engine, prompts, expected):
    tokenizer = load_tokenizer(read_files(PATH))

    def text(tokens: Sequence[int]) -> str:
        decoded = tokenizer.decode(list(tokens), skip_special_tokens=True)
        assert isinstance(decoded, str)
        return decoded

    plain, firsts = [], []
    for request, answer in zip(asked(prompts), expected, strict=True):
        across = text(answer[7:8])[-1:] + text(answer[8:9])[:1]
        assert len(across) == 2
        firsts.append(next(answer[:end] for end in range(1, len(answer) + 1) if across in text(answer[:end])))
        plain.append(replace(request, stops=lambda tokens, across=across: across in text(tokens)))
    offered = [replace(request, answer=tuple(answer)) for request, answer in zip(plain, expected, strict=True)]
    for requests in (plain, offered):
        told = answered(engine, requests)
        assert told.tokens == firsts
        assert set(told.reasons) == {"stop"}
    assert [told.ended[at].accepted for at in range(len(firsts))] == list(map(len, firsts))


def test_what_is_only_read_has_the_log_probs_of_teacher_forcing(engine, theirs, prompts, expected):
    answers = [(*answer[:10], other(answer[10]), *answer[10:]) for answer in expected]
    told = answered(engine, [Request(prompt=p, answer=a) for p, a in zip(prompts, answers, strict=True)])
    assert told.tokens == [[]] * len(prompts)
    assert set(told.reasons) == {"length"}
    for prompt, answer, read, given in zip(prompts, answers, told.reads, told.given, strict=True):
        tokens, best, own = weighed(theirs, prompt, answer)
        assert [token for token, *_ in read] == list(answer)
        assert [said for _, said, _ in read] == tokens
        assert [logprob for *_, logprob in read] == pytest.approx(best, abs=1e-4)
        assert given == pytest.approx(own, abs=1e-4)


def test_logits_are_told_a_few_positions_at_a_time(engine, kind, prompts, expected, monkeypatch):
    where = step_loop.Transcript.__module__ if kind == "padded" else packed.__name__
    monkeypatch.setattr(f"{where}.LOGITS_AT_ONCE", 3 * engine.head.vocabulary)
    requests = [Request(prompt=p, answer=tuple(a)) for p, a in zip(prompts, expected, strict=True)]
    told = answered(engine, requests)
    assert [[said for _, said, _ in read] for read in told.reads] == expected
    assert max(len(event.requests) for event in told.events if isinstance(event, Read)) == 3


def test_drawn_answers_are_the_same_whether_offered_drafted_or_alone(engine, prompts):
    draws = Draws(
        seed=5,
        cases=noise_numbers([f"case {at}" for at in range(len(prompts))], torch.device("cpu")),
        sampling=Sampling(temperature=3.0),
    )
    plain = asked(prompts, max_new_tokens=10)
    told = answered(engine, plain, draws=draws)
    assert told.tokens[0] != told.tokens[6]  # the same prompt, another draw
    for way in ("whole", "with a wrong token"):
        offered = [drafts_of(answer)[way][0] for answer in told.tokens]
        requests = [replace(request, answer=tuple(draft)) for request, draft in zip(plain, offered, strict=True)]
        assert answered(engine, requests, draws=draws).tokens == told.tokens
    for at in (0, 3, 6):
        alone = answered(engine, plain[at : at + 1], draws=replace(draws, cases=draws.cases[at : at + 1]))
        assert alone.tokens == told.tokens[at : at + 1]


# -------------------------------------------------------------------------------------------- what is ended, or broken


@pytest.fixture
def narrow(kind, monkeypatch) -> Iterator[Engine]:
    """An engine that takes two requests at a time, and reads a few tokens."""
    monkeypatch.setattr(padded_engine, "ROWS", 2)
    monkeypatch.setattr(step_loop, "READ_TOKENS", 8)
    with opened(kind, reference(kind), limits=Limits(rows=8, sequences=2)) as engine:
        yield engine


def ended_at(engine: Engine, requests: Sequence[Request], which: int, when: Any) -> Told:
    """`which` is aborted by another thread at the first event of which `when` holds, twice, and others that there are
    not."""
    done: list[Event] = []

    def look(event: Event) -> None:
        if not done and when(event):
            done.append(event)
            thread = threading.Thread(target=lambda: [engine.abort(request) for request in (which, which, 1000)])
            thread.start()
            thread.join()

    told = answered(engine, requests, on_event=look)
    assert done
    return told


def of(kind_of_event: type, which: int, position: int) -> Any:
    """The first event of a kind that tells of this place of a request."""
    return lambda event: (
        isinstance(event, kind_of_event) and (which, position) in zip(event.requests, event.positions, strict=True)
    )


def without(answers: Sequence[Any], which: int) -> list[Any]:
    return [*answers[:which], *answers[which + 1 :]]


@pytest.mark.parametrize("which", [0, 3])
def test_who_is_aborted_while_it_decodes_says_no_more_and_the_others_all(narrow, prompts, expected, which):
    told = ended_at(narrow, asked(prompts[:5]), which, of(Spoken, which, 3))
    assert (told.tokens[which], told.reasons[which]) == (expected[which][:4], "abort")
    assert without(told.tokens, which) == without(expected[:5], which)
    assert answered(narrow, asked(prompts[:2])).tokens == expected[:2]  # the next run knows nothing of it


def test_who_is_aborted_before_its_turn_says_nothing(narrow, prompts, expected):
    requests = [replace(request, expected=900 - 100 * at) for at, request in enumerate(asked(prompts))]
    told = ended_at(narrow, requests, 6, lambda event: isinstance(event, Spoken))
    assert (told.tokens[6], told.reasons[6]) == ([], "abort")
    assert told.tokens[:6] == expected[:6]


@pytest.mark.parametrize("which", [2, 4])  # of one batch of padded rows, where they are read one after the other
def test_who_is_aborted_while_its_answer_is_read_says_no_more_than_it_read(narrow, prompts, expected, which):
    plain = asked(prompts)
    offered = [replace(request, answer=tuple(answer[:9])) for request, answer in zip(plain, expected, strict=True)]
    told = ended_at(narrow, offered, which, of(Read, which, 0))
    assert told.reasons[which] == "abort"
    assert told.tokens[which] in ([], expected[which][:9])
    assert len(told.reads[which]) <= 9
    assert without(told.tokens, which) == without(expected, which)


def test_all_may_be_aborted_and_who_has_ended_stays_as_it_ended(narrow, prompts, expected):
    def look(event: Event) -> None:
        if isinstance(event, Ended):
            for request in range(len(prompts)):
                narrow.abort(request)

    told = answered(narrow, asked(prompts), on_event=look)
    first, *others = [event.request for event in told.events if isinstance(event, Ended)]
    assert told.tokens[first] == expected[first]
    assert {told.reasons[request] for request in others} <= {"abort", told.reasons[first]}
    assert "abort" in told.reasons


def test_an_error_of_who_listens_ends_the_run_and_not_the_engine(narrow, prompts, expected):
    def fail(event: Event) -> None:
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        narrow.run(asked(prompts), None, fail)
    assert answered(narrow, asked(prompts[:3])).tokens == expected[:3]


@pytest.fixture(scope="module")
def broken(kind) -> Iterator[Engine]:
    model = load(PATH)
    model.model.norm.weight.data[3] = float("nan")
    with opened(kind, model if kind == "padded" else laid_out(model)) as engine:
        yield engine


@pytest.mark.parametrize("drawn", [False, True])
def test_logits_that_are_nan_are_broken_and_never_an_answer(broken, prompts, drawn):
    cases = noise_numbers(["a", "b", "c"], torch.device("cpu"))
    draws = Draws(seed=1, cases=cases, sampling=Sampling(temperature=0.7)) if drawn else None
    for answer in ((), (5, 6, 7)):
        told = answered(broken, asked(prompts[:3], answer=answer), draws=draws)
        assert told.reasons == ["broken"] * 3
        assert [len(tokens) for tokens in told.tokens] == [1] * 3
    read = [Request(prompt=prompt, answer=(5, 6, 7)) for prompt in prompts[:3]]
    assert answered(broken, read, draws=draws).reasons == ["broken"] * 3
