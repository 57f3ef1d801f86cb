"""What a run remembers of its servers from batch to batch: limits, paces, answers, and streams that proved wrong."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from qualgate.errors import Exit
from tests.command_line import qualgate
from tests.run.commands import rows
from tests.served.scripted import Reply, Scripted, as_json, as_stream, scripted, text_piece

CASES = 30  # in three batches, for each may have half of what a batch holds
LIMIT = {"error": {"message": "Rate limit reached: 200 requests per day", "code": "rate_limit_exceeded"}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    cases = [{"id": f"c{n}", "prompt": f"say {n}", "answer": str(n), "max_new_tokens": 3000} for n in range(CASES)]
    (tmp_path / "say.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    (tmp_path / "say.yaml").write_text('name: say\nversion: "1"\nmetrics: [exact_match]\n')
    return tmp_path


def run(folder: Path, baseline: Scripted, variant: Scripted, more: str = "", gate: str = ""):
    (folder / "gate.yaml").write_text(
        f"version: 1\nbaseline: {{endpoint: '{baseline.address}', model: m, concurrency: 4{more}}}\n"
        f"variants: {{v: {{endpoint: '{variant.address}', model: m, concurrency: 4{more}}}}}\n"
        "evalsets: [./say.yaml]\nworkers: {count: 1}\nstore: sqlite:///qualgate.db\n"
        f"gate: {{noise_floor: false, {gate}rules: [{{metric: exact_match, max_drop: 0.15}}]}}\n"
    )
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
