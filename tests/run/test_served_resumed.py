"""What a run remembers of its servers from batch to batch: limits, paces, answers, and streams that proved wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from qualgate.errors import Exit
from tests.command_line import PROGRAM, qualgate
from tests.run.commands import rows
from tests.served.chance import SIZE, Model
from tests.served.scripted import Reply, Scripted, as_json, as_stream, scripted, text_piece
from tests.tiny_models import save_byte_tokenizer

CASES = 30  # in three batches, for each may have half of what a batch holds
LIMIT = {"error": {"message": "Rate limit reached: 200 requests per day", "code": "rate_limit_exceeded"}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    cases = [{"id": f"c{n}", "prompt": f"say {n}", "answer": str(n), "max_new_tokens": 3000} for n in range(CASES)]
    (tmp_path / "say.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    (tmp_path / "say.yaml").write_text('name: say\nversion: "1"\nmetrics: [exact_match]\n')
    return tmp_path


def write(folder: Path, baseline: Scripted, variant: Scripted, more: str = "", workers: int = 1) -> None:
    (folder / "gate.yaml").write_text(
        f"version: 1\nbaseline: {{endpoint: '{baseline.address}', model: m, concurrency: 4{more}}}\n"
        f"variants: {{v: {{endpoint: '{variant.address}', model: m, concurrency: 4{more}}}}}\n"
        f"evalsets: [./say.yaml]\nworkers: {{count: {workers}}}\nstore: sqlite:///qualgate.db\n"
        "gate: {noise_floor: false, rules: [{metric: exact_match, max_drop: 0.15}]}\n"
    )


def run(folder: Path, baseline: Scripted, variant: Scripted, **more: Any):
    write(folder, baseline, variant, **more)
    return qualgate("run", "gate.yaml", "--json", cwd=folder)


def right(body: dict[str, Any]) -> Reply:
    usage = {"prompt_tokens": 2, "completion_tokens": 1}
    return as_json({**text_piece(body["prompt"].split()[-1], "stop"), "usage": usage})


def asked(server: Scripted) -> Counter[str]:
    return Counter(body["prompt"] for _, _, body in server.asked)


def stored(folder: Path, arm: str) -> dict[str, str]:
    return dict(rows(folder, f"SELECT case_id, text FROM units WHERE arm = '{arm}' AND status = 'done'"))


def test_a_limit_for_hours_ends_the_arm_once_names_the_time_and_another_day_the_run_goes_on(folder):
    limited = [True]

    def by_day(body: dict[str, Any]) -> Reply:
        """Twelve answers a day."""
        if limited[0] and len(two.asked) > 12:
            return as_json(LIMIT, 429, Retry_After="10800")
        return right(body)

    with scripted(otherwise=right) as one, scripted(otherwise=by_day) as two:
        done = run(folder, one, two)
        assert done.returncode == Exit.INFRASTRUCTURE, done.stderr
        told = " ".join(done.stderr.split())
        assert told.count("asks to wait for 3.0 h, longer than `budget: {patience: 10m}`") == 1, told
        [until] = re.findall(r"Run again after (\S+ \S+) UTC: what was answered is kept", told)
        due = datetime.strptime(until, "%Y-%m-%d %H:%M").replace(tzinfo=UTC)
        assert timedelta(hours=2.9) < due - datetime.now(UTC) < timedelta(hours=3.1)
        assert len(two.asked) <= 12 + 4 + 1, "those under way, and once more"
        assert len(stored(folder, "v")) == 12
        limited[0] = False
        again = run(folder, one, two)
        assert again.returncode == Exit.APPROVE, again.stderr
        assert (len(one.asked), len(stored(folder, "v"))) == (CASES, CASES)


def test_a_single_demand_for_hours_among_answers_is_a_mistake(folder):
    struck: list[dict[str, Any]] = []

    def once(body: dict[str, Any]) -> Reply:
        if len(two.asked) > 12 and not struck:
            struck.append(body)
            wrong_clock = (datetime.now(UTC) + timedelta(hours=3)).strftime("%a, %d %b %Y %H:%M:%S GMT")
            return as_json(LIMIT, 429, Retry_After=wrong_clock)
        return right(body)

    with scripted(otherwise=right) as one, scripted(otherwise=once) as two:
        assert run(folder, one, two).returncode == Exit.APPROVE


def test_a_pace_that_was_learnt_is_kept_from_batch_to_batch(folder):
    """Of a server that takes eight requests in two seconds."""
    window, answers, limits = [0.0, 0.0], list[Any](), list[int]()

    def by_window(body: dict[str, Any]) -> Reply:
        with two.lock:
            if time.monotonic() - window[0] > 2.0:
                window[:] = time.monotonic(), 0
            window[1] += 1
            if window[1] <= 8:
                answers.append(body)
                return right(body)
            limits.append(len(answers))
            return as_json(LIMIT, 429, retry_after_ms=f"{2500 - 1000 * (time.monotonic() - window[0]):.0f}")

    with scripted(otherwise=right) as one, scripted(otherwise=by_window) as two:
        assert run(folder, one, two).returncode == Exit.APPROVE
    assert set(limits) == {8}, "the second and the third batch met none"


def kill(folder: Path, servers: list[Scripted], requests: int) -> None:
    """Begin a run, and kill it without warning once its servers have so many requests."""
    process = subprocess.Popen([sys.executable, PROGRAM, "run", "gate.yaml"], cwd=folder, start_new_session=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    while sum(len(server.asked) for server in servers) < requests and process.poll() is None:
        time.sleep(0.005)
    assert process.poll() is None, "it ended before"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def killed_and_run_again(folder: Path, servers: list[Scripted], requests: int) -> int:
    """Kill a run, and run it again; return the answers that the store held after the kill."""
    kill(folder, servers, requests)
    [(count,)] = rows(folder, "SELECT count(*) FROM units WHERE status = 'done'")
    done = qualgate("run", "gate.yaml", cwd=folder)
    assert done.returncode in (Exit.APPROVE, Exit.UNDECIDED), done.stderr
    assert not rows(folder, "SELECT * FROM units WHERE status <> 'done'")
    return count


def slowly(answer: Any) -> Any:
    def answered(body: dict[str, Any]) -> Reply:
        time.sleep(0.03)
        return answer(body)

    return answered


def test_of_four_arms_that_are_killed_every_answer_is_stored_and_none_asked_twice(folder):
    arms = ("baseline", "q", "s", "both")
    with ExitStack() as opened:
        servers = [opened.enter_context(scripted(otherwise=slowly(right))) for _ in arms]
        named = [f"{name}: {{endpoint: '{one.address}', model: m, concurrency: 4}}"
                 for name, one in zip(arms, servers, strict=True)]  # fmt: skip
        (folder / "gate.yaml").write_text(
            f"version: 1\n{named[0]}\nvariants: {{{', '.join(named[1:])}}}\nevalsets: [./say.yaml]\n"
            "four_arm: {quantization: q, speculation: s, both: both}\nworkers: {count: 1}\n"
            "store: sqlite:///qualgate.db\ngate: {noise_floor: false, rules: [{metric: exact_match, max_drop: 0.15}]}\n"
        )
        stored_then = killed_and_run_again(folder, servers, 50)
        twice = sum(count - 1 for server in servers for count in asked(server).values())
    assert stored_then >= 50 - 4 - 1
    assert twice <= 4, "those under way"


def test_of_arms_whose_answers_are_read_none_is_asked_twice_after_a_kill(folder, tmp_path_factory):
    tokenizer = tmp_path_factory.mktemp("tokenizer")
    save_byte_tokenizer(tokenizer)
    (tokenizer / "config.json").write_text(json.dumps({"vocab_size": SIZE, "eos_token_id": 258}))
    cases = [{"id": f"c{n}", "prompt": f"say {n}", "answer": "x", "max_new_tokens": 8} for n in range(CASES)]
    (folder / "say.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    totals = []
    for kill_at in (None, 40, 100):
        with scripted(otherwise=slowly(Model())) as one, scripted(otherwise=slowly(Model(other=0.3))) as two:
            write(folder, one, two, f", stream: false, tokenizer: {tokenizer}, prompt_logprobs: 4, engine: vllm")
            if kill_at is None:
                qualgate("run", "gate.yaml", cwd=folder)
            else:
                killed_and_run_again(folder, [one, two], kill_at)
            totals.append(len(one.asked) + len(two.asked))
    assert totals[0] > 3 * CASES, "each is answered, and read twice"
    assert max(totals) <= totals[0] + 4, "those under way"
    with scripted(otherwise=slowly(Model())) as one, scripted(otherwise=slowly(Model(other=0.3))) as two:
        write(folder, one, two, f", stream: false, tokenizer: {tokenizer}, prompt_logprobs: 4, engine: vllm")
        kill(folder, [one, two], 40)
        for file in folder.glob("qualgate.db*"):
            file.unlink() if file.is_file() else None  # the run is gone, and what it received is not
        before = len(one.asked) + len(two.asked)
        qualgate("run", "gate.yaml", cwd=folder)
        assert len(one.asked) + len(two.asked) - before >= totals[0] - 4, "answers to another run are no evidence"


@pytest.mark.parametrize("workers", [1, 2])
def test_where_streams_prove_wrong_late_the_answers_before_are_asked_again_whole(folder, workers):
    """From a moment on streams lose their second piece; of some before nobody looked whether they had."""
    lost = {"say 3", "say 7"}

    def losing(body: dict[str, Any]) -> Reply:
        number = body["prompt"].split()[-1]
        if not body.get("stream"):
            return right(body)
        time.sleep(0.01)
        loses = body["prompt"] in lost or len(asked(two)) > 20
        pieces = [text_piece(" "), *([] if loses else [text_piece(number)]), text_piece("", "stop")]
        return as_stream(*pieces, {"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 1}})

    with scripted(otherwise=right) as one, scripted(otherwise=losing) as two:
        done = run(folder, one, two, workers=workers)
        told = " ".join(done.stderr.split())
        assert done.returncode == Exit.APPROVE, told
        assert stored(folder, "v") == {f"c{n}": str(n) for n in range(CASES)}
        assert re.search(r"v: \d+ answers asked again whole: it was streamed, and its stream", told), told
        assert {body.get("stream") for _, _, body in two.asked} == {None, True}
