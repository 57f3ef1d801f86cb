"""What of a nightly file is due, judged or repeated, and what becomes of what fails. Runs are made up, the plan too."""

from __future__ import annotations

import fcntl
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from types import SimpleNamespace

import pytest

from qualgate.config import load_gate_file
from qualgate.config.nightly import load_nightly
from qualgate.errors import Exit, InfrastructureError, Interrupted, UsageError
from qualgate.pipeline.nights import night as nights
from qualgate.pipeline.nights.digest import lines
from qualgate.pipeline.nights.night import exit_of, exit_of_plan, planned
from qualgate.pipeline.nights.whole import tell, whole_night
from qualgate.pipeline.outcome import Outcome
from qualgate.records import Verdict
from qualgate.store import runs
from qualgate.store.database import open_store
from qualgate.store.nights import add_digests, last_nights, undelivered
from tests.command_line import qualgate
from tests.postgresql import server
from tests.store.made import make_plan, make_run

NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)
SAME = {"int8": 0.0}
GATE = """\
version: 1
baseline: {model: reference}
variants: {int8: {quantize: int8}}
evalsets: [json_extract]
gate: {rules: [{metric: json.valid, max_drop: 0.02}]}
"""


def nights_of(nightly, judge, now, **more):
    return whole_night(nightly, judge, now, **more).nights


def code_of(nightly):
    with open_store(nightly.store_url) as store:
        return exit_of(nightly, store)


class Judge:
    """In the place of a run: writes a made-up one, by the exit code that is wanted of each variant."""

    def __init__(self, **codes):
        self.codes, self.asked = codes, []

    def __call__(self, gate):
        [arm] = [one.name for one in gate.variants]
        self.asked.append(arm)
        code = self.codes.get(arm, Exit.APPROVE)
        if isinstance(code, BaseException):
            raise code
        with open_store(gate.store_url) as store:
            run_id = make_run(store, replace(make_plan(cases=4, wrong={arm: 0.0}), key=f"key of {arm}"), {arm: 0.0})
        verdict = Verdict(variant=arm, word="approve", exit=code, reasons=("as it is wanted",))
        return Outcome(run_id=run_id, verdicts=(verdict,), exit=code, resumed=False, failures=())


@pytest.fixture
def nightly(tmp_path, monkeypatch):
    """Two gate files; plans whose key is their variant's name, and stored runs that decide again as they did."""
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(GATE.replace("int8:", f"{name}:"))
    (tmp_path / "nightly.yaml").write_text(
        'version: 1\nschedule: {at: "02:00"}\ngates:\n  one: {gate: one.yaml}\n  two: {gate: two.yaml}\n'
    )
    made = make_plan(cases=4, wrong=SAME)
    monkeypatch.setattr(nights, "make_plan", lambda gate: replace(made, key=f"key of {gate.variants[0].name}"))
    said = Verdict(variant="int8", word="approve", exit=Exit.APPROVE, reasons=("as before",))
    monkeypatch.setattr(
        nights, "decide_again",
        lambda url, run_id, gate: Outcome(run_id=run_id, verdicts=(said,), exit=Exit.APPROVE, resumed=False,
                                          failures=()),
    )  # fmt: skip
    return load_nightly(tmp_path / "nightly.yaml")


def test_what_is_due_is_judged_once_and_nothing_is_due_until_the_next_night(nightly):
    judge = Judge(two=Exit.BLOCK)
    told = nights_of(nightly, judge, NOON)
    assert judge.asked == ["one", "two"]
    assert [(one.night.name, one.night.exit, one.night.repeated, one.before) for one in told] == [
        ("one", 0, False, None), ("two", 10, False, None),
    ]  # fmt: skip
    assert nights_of(nightly, judge, NOON + timedelta(hours=13)) == ()
    assert code_of(nightly) is Exit.BLOCK, "what is not due keeps its last word"


def test_the_next_night_repeats_the_verdict_of_what_has_not_changed_and_says_so(nightly):
    judge = Judge()
    first = nights_of(nightly, judge, NOON)
    again = nights_of(nightly, judge, NOON + timedelta(days=1))
    assert judge.asked == ["one", "two"], "nothing ran again"
    assert [one.night.repeated for one in again] == [True, True]
    assert [one.night.run_id for one in again] == [one.night.run_id for one in first]
    assert "nothing changed since run" in again[0].night.said
    assert not again[0].changed


def test_nights_that_were_missed_are_made_up_for_once(nightly):
    nights_of(nightly, Judge(), NOON)
    assert len(nights_of(nightly, Judge(), NOON + timedelta(days=9))) == 2
    assert nights_of(nightly, Judge(), NOON + timedelta(days=9, hours=1)) == ()


def test_one_gate_file_that_fails_keeps_none_of_the_others_and_the_worst_counts(nightly):
    told = nights_of(nightly, Judge(one=InfrastructureError("no room"), two=Exit.UNDECIDED), NOON)
    assert [(one.night.exit, one.night.said, one.night.run_id is None) for one in told] == [
        (13, "no room", True), (12, "", False),
    ]  # fmt: skip
    assert code_of(nightly) is Exit.INFRASTRUCTURE
    told = nights_of(nightly, Judge(one=ZeroDivisionError("x")), NOON, every=True)
    assert told[0].night.exit == 13
    assert told[0].night.said == "ZeroDivisionError: x"


@pytest.fixture
def clock(monkeypatch):
    """Sets the time at which nights end, and returns it."""
    ticks = count()

    def set_to(now):
        ended = lambda: (now + timedelta(milliseconds=next(ticks))).isoformat(timespec="milliseconds")  # noqa: E731
        monkeypatch.setattr(nights, "plain", SimpleNamespace(now=ended))
        return now

    return set_to


def digests_of(nightly):
    """Each that was written: by what its nights ended, and when they are tried again."""
    with open_store(nightly.store_url) as store:
        bodies = [one.body for one in undelivered(store, nightly.name)]
    return [[(night["gate"], night["exit"], night["exit_before"], night["failed"]) for night in one["nights"]]
            for one in bodies]  # fmt: skip


def test_what_failed_is_tried_again_after_growing_pauses_and_then_waits_for_the_next_night(nightly, clock):
    judge = Judge(one=InfrastructureError("the cluster is away"))
    tried = []
    for minutes in range(0, 13 * 60, 15):
        whole_night(nightly, judge, clock(NOON + timedelta(minutes=minutes)))
        tried += [minutes] * judge.asked.count("one")
        judge.asked.clear()
    assert tried == [0, 15, 45, 105], "looked at every quarter of an hour, as by a timer"
    assert code_of(nightly) is Exit.INFRASTRUCTURE
    whole_night(nightly, judge, clock(NOON + timedelta(hours=14, minutes=1)))
    assert "one" in judge.asked, "the next night"


def test_a_failure_that_is_tried_again_is_told_once_then_that_it_stays_and_at_once_that_it_is_over(
    nightly, clock, monkeypatch
):
    nightly.path.write_text(nightly.path.read_text() + "digest: {webhook: {url_env: HOOK}}\n")
    nightly, judge = load_nightly(nightly.path), Judge(one=InfrastructureError("the cluster is away"))
    monkeypatch.delenv("HOOK", raising=False)  # so that all digests wait
    first = whole_night(nightly, judge, clock(NOON))
    assert first.due_next == NOON + timedelta(minutes=5, milliseconds=1)
    again = whole_night(nightly, judge, clock(NOON + timedelta(minutes=15)))
    assert [(one.night.gate, one.failed) for one in again.nights] == [("one", 2)], "who looks is told"
    assert "  tried again from 12:35 UTC" in lines(again.body)
    assert whole_night(nightly, judge, clock(NOON + timedelta(minutes=20))).nights == ()
    told = [[("one", 13, None, 1), ("two", 0, None, 0)]]
    assert digests_of(nightly) == told, "that it failed again is no news"
    for minutes in (45, 105):
        last = whole_night(nightly, judge, clock(NOON + timedelta(minutes=minutes)))
    assert "  tried 4 times, and no more until it is due again" in lines(last.body)
    assert last.due_next == datetime(2026, 11, 27, 2, tzinfo=UTC)
    assert digests_of(nightly) == (told := [*told, [("one", 13, 13, 4)]])
    tomorrow = NOON + timedelta(days=1)
    whole_night(nightly, judge, clock(tomorrow))
    whole_night(nightly, Judge(), clock(tomorrow + timedelta(minutes=5)))
    whole_night(nightly, Judge(), clock(tomorrow + timedelta(minutes=6)))
    assert digests_of(nightly) == [*told, [("one", 13, 13, 1), ("two", 0, 0, 0)], [("one", 0, 13, 0)]]


def test_a_failure_that_was_not_told_before_the_process_died_is_told_by_the_next_try(nightly, clock, monkeypatch):
    nightly.path.write_text(nightly.path.read_text() + "digest: {webhook: {url_env: HOOK}}\n")
    nightly, judge = load_nightly(nightly.path), Judge(one=InfrastructureError("the cluster is away"))
    monkeypatch.delenv("HOOK", raising=False)
    judge.codes["two"] = Interrupted("stopped")
    with pytest.raises(Interrupted):
        whole_night(nightly, judge, clock(NOON))
    judge.codes["two"] = Exit.APPROVE
    whole_night(nightly, judge, clock(NOON + timedelta(minutes=15)))
    assert digests_of(nightly) == [[("one", 13, None, 1), ("two", 0, None, 0)]]


def test_a_plan_says_when_what_failed_is_tried_again(nightly, clock):
    whole_night(nightly, Judge(one=InfrastructureError("away")), clock(NOON))
    assert [(one.does, one.why) for one in planned(nightly, NOON)] == [
        ("wait", "failed; tried again from 12:05 UTC"), ("wait", "not due"),
    ]  # fmt: skip
    assert [one.does for one in planned(nightly, NOON + timedelta(minutes=6))] == ["run", "wait"]


def test_a_gate_file_that_cannot_be_read_is_told_and_approves_nothing(nightly):
    nightly.gate_path("one").write_text("version: 1\nbaselin: {}\n")
    told = nights_of(nightly, Judge(), NOON)
    assert [one.night.exit for one in told] == [64, 0]
    assert "did you mean 'baseline'" in told[0].night.said
    assert code_of(nightly) is Exit.USAGE


HOUR = timedelta(hours=1)


@pytest.mark.parametrize("input", ["nightly.yaml", "one.yaml", "own.yaml", "own.jsonl", "model", "model/config.json"])
def test_what_was_refused_is_due_again_once_an_input_of_it_changed_and_not_before(nightly, clock, tmp_path, input):
    """The night begins in an hour, so that every file is older; the one that changes is dated after that."""
    (tmp_path / "model").mkdir()
    for name in ("own.yaml", "own.jsonl", "model/config.json"):
        (tmp_path / name).write_text("{}")
    gate = nightly.gate_path("one")
    gate.write_text(gate.read_text().replace("reference", "./model").replace("json_extract", "./own.yaml"))
    now = datetime.now(UTC)
    days = (now - timedelta(days=3)).strftime("%a").lower()  # so that nothing else becomes due within hours
    nightly.path.write_text(nightly.path.read_text().replace('02:00"', f'02:00", days: [{days}]'))
    nightly = load_nightly(nightly.path)
    clock(now + HOUR)
    judge = Judge(one=UsageError("gate.yaml: what is wrong"), two=Exit.BLOCK)
    assert [one.night.exit for one in nights_of(nightly, judge, now)] == [64, 10]
    assert nights_of(nightly, judge, now) == ()
    later = (now + 2 * HOUR).timestamp()
    os.utime(tmp_path / input, (later, later))
    judge.codes.clear()
    assert [one.does for one in planned(nightly, now + HOUR)] == ["wait", "wait"], "dated in the future"
    assert [one.does for one in planned(nightly, now + 3 * HOUR)] == ["run", "wait"]
    [told] = nights_of(nightly, judge, now + 3 * HOUR)
    assert (told.night.gate, told.night.exit, told.before) == ("one", 0, 64)


def test_what_a_note_names_makes_nothing_due_and_what_cannot_be_read_ends_no_night(
    nightly, clock, tmp_path, monkeypatch
):
    """The gate file is refused for its note; the folder there changes an hour after the night."""
    for name in ("model", "noted"):
        (tmp_path / name).mkdir()
    gate = nightly.gate_path("one")
    gate.write_text(gate.read_text().replace("reference", "./model") + f"note: see {tmp_path}/noted for more\n")
    now = datetime.now(UTC)
    days = (now - timedelta(days=3)).strftime("%a").lower()
    nightly.path.write_text(nightly.path.read_text().replace('02:00"', f'02:00", days: [{days}]'))
    nightly = load_nightly(nightly.path)
    clock(now + HOUR)
    assert [one.night.exit for one in nights_of(nightly, Judge(), now)] == [64, 0]
    later = (now + 2 * HOUR).timestamp()
    os.utime(tmp_path / "noted", (later, later))

    def refuse(path):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "listdir", refuse)
    assert [one.does for one in planned(nightly, now + 3 * HOUR)] == ["wait", "wait"]
    assert nights_of(nightly, Judge(), now + 3 * HOUR) == ()
    os.utime(tmp_path / "model", (later, later))
    assert [one.night.exit for one in nights_of(nightly, Judge(), now + 3 * HOUR)] == [64], "the folder itself changed"


def test_a_plan_exits_by_what_would_be_refused(nightly):
    assert exit_of_plan(planned(nightly, NOON)) is Exit.APPROVE
    nightly.gate_path("one").write_text("version: 1\nbaselin: {}\n")
    done = qualgate("nightly", str(nightly.path), "--plan")
    assert (done.returncode, "did you mean 'baseline'" in done.stdout) == (Exit.USAGE, True)
    away = replace(planned(nightly, NOON)[0], exit=Exit.INFRASTRUCTURE)
    assert exit_of_plan((*planned(nightly, NOON), away)) is Exit.INFRASTRUCTURE


def test_an_interrupted_night_keeps_what_is_done_and_the_rest_is_due_still(nightly):
    with pytest.raises(Interrupted):
        nights_of(nightly, Judge(two=Interrupted("stopped")), NOON)
    with open_store(nightly.store_url) as store:
        assert [one.gate for one in last_nights(store, nightly.name)] == ["one"]
    assert code_of(nightly) is Exit.UNDECIDED, "what has no word yet decides nothing"
    judge = Judge()
    told = nights_of(nightly, judge, NOON)
    assert judge.asked == ["two"]
    assert [one.night.gate for one in told] == ["one", "two"], "what was not told when it was interrupted is told now"
    assert nights_of(nightly, judge, NOON) == (), "and no night is told twice"


def test_two_nights_never_overlap_and_the_second_is_told_who_is_first(nightly):
    path = nightly.path.with_name("nightly.yaml.lock")
    with path.open("w") as held:
        held.write("process 7 on gpu-1 since 2026-11-26 02:00 UTC")
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        judge = Judge()
        with pytest.raises(InfrastructureError, match=r"a night is under way \(process 7 on gpu-1 since"):
            nights_of(nightly, judge, NOON)
    assert judge.asked == []
    assert len(nights_of(nightly, judge, NOON)) == 2, "a lock that nobody holds is none"
    assert path.read_text() == ""


@pytest.mark.proof
def test_two_machines_make_no_night_of_one_store_side_by_side(nightly):
    there = replace(nightly, store_url=server().new_database())
    judge = Judge()
    refused = pytest.raises(InfrastructureError, match="another qualgate process")
    with open_store(there.store_url) as other, other.sole(f"nights of {there.name}"), refused:
        nights_of(there, judge, NOON)
    assert judge.asked == []
    assert [one.night.exit for one in nights_of(there, judge, NOON)] == [0, 0]


def test_two_files_that_share_a_store_each_judge_by_their_own_rules_what_either_has_generated(nightly, tmp_path):
    assert len(nights_of(nightly, Judge(), NOON)) == 2
    (tmp_path / "other.yaml").write_text(nightly.path.read_text())
    judge = Judge()
    assert len(nights_of(load_nightly(tmp_path / "other.yaml"), judge, NOON)) == 2
    assert judge.asked == [], "the same answers, judged again by the file's own gates"
    assert nights_of(nightly, judge, NOON) == ()


def test_gates_that_share_a_run_are_each_told_with_what_their_own_rules_said(nightly, monkeypatch):
    made = make_plan(cases=4, wrong=SAME)
    monkeypatch.setattr(nights, "make_plan", lambda gate: replace(made, key="key of one"))
    strict = Verdict(variant="one", word="block", exit=Exit.BLOCK, reasons=("by the rules of two",))

    def decide(url, run_id, gate):
        with open_store(url) as store:
            runs.add_verdicts(store, run_id, [strict], made.policy)
        return Outcome(run_id=run_id, verdicts=(strict,), exit=Exit.BLOCK, resumed=False, failures=())

    monkeypatch.setattr(nights, "decide_again", decide)
    one, two = nights_of(nightly, judge := Judge(), NOON)
    assert judge.asked == ["one"]
    assert one.night.run_id == two.night.run_id
    assert [verdict.word for verdict in one.verdicts] != ["block"]
    assert len(one.verdicts) == 1
    assert two.verdicts == (strict,)


def test_what_waits_for_somebody_the_file_no_longer_names_tells_nobody_else(nightly):
    with open_store(nightly.store_url) as store:
        add_digests(store, nightly.name, {"webhook": {}}, 0)
        assert tell(store, nightly, (), 0, Exit.APPROVE, NOON)["undelivered"] == 0


def test_every_model_that_is_there_is_judged_and_one_that_is_new_the_next_time(nightly, tmp_path):
    for name in ("a", "b"):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "config.json").write_text("{}")
    (tmp_path / "models" / "notes").mkdir()
    nightly.path.write_text(
        'version: 1\nschedule: {at: "02:00"}\ngates: {one: {gate: one.yaml, models: ["models/*"]}}\n'
    )
    nightly, judge = load_nightly(nightly.path), Judge()
    nights_of(nightly, judge, NOON)
    assert judge.asked == ["a", "b"]
    (tmp_path / "models" / "c").mkdir()
    (tmp_path / "models" / "c" / "config.json").write_text("{}")
    assert code_of(nightly) is Exit.UNDECIDED
    nights_of(nightly, judge, NOON + timedelta(minutes=5))
    assert judge.asked == ["a", "b", "c"]
    (tmp_path / "models" / "deep" / "a").mkdir(parents=True)
    (tmp_path / "models" / "deep" / "a" / "config.json").write_text("{}")
    nightly.path.write_text(nightly.path.read_text().replace('"models/*"', '"models/*", "models/deep/*"'))
    [told] = nights_of(load_nightly(nightly.path), judge, NOON + timedelta(days=1))
    assert told.night.exit == 64
    assert "two folders are called 'a'" in told.night.said
    nightly.path.write_text(nightly.path.read_text().replace("models/", "modles/"))
    [told] = nights_of(load_nightly(nightly.path), judge, NOON + timedelta(days=2))
    assert "no folder with a model fits 'modles/*'" in told.night.said


def test_a_plan_says_what_would_be_done_and_does_nothing(nightly, tmp_path):
    assert [(one.does, one.why) for one in planned(nightly, NOON)] == [("run", "its first night")] * 2
    assert not (tmp_path / "nightly.db").exists()
    nights_of(nightly, Judge(), NOON)
    assert [one.does for one in planned(nightly, NOON)] == ["wait", "wait"]
    assert [one.does for one in planned(nightly, NOON + timedelta(days=1))] == ["repeat", "repeat"]
    nightly.gate_path("one").write_text("nothing\n")
    assert [one.does for one in planned(nightly, NOON, every=True)] == ["refuse", "repeat"]


def test_what_a_server_is_cannot_be_seen_so_it_is_asked_every_night(nightly):
    gate = nightly.gate_path("one")
    served = 'one: {endpoint: "http://127.0.0.1:9/v1", model: m}'
    gate.write_text(gate.read_text().replace("one: {quantize: int8}", served))
    assert load_gate_file(gate).variants[0].served is not None
    judge = Judge()
    for day in range(2):
        nights_of(nightly, judge, NOON + timedelta(days=day))
    assert judge.asked == ["one", "two", "one"]


def test_run_again_is_asked_for_by_the_file_or_by_an_age(nightly):
    nightly.path.write_text(nightly.path.read_text().replace("one.yaml", "one.yaml, unchanged: run"))
    gate = nightly.gate_path("two")
    gate.write_text(gate.read_text().replace("gate: {", "gate: {max_age: 1h, "))
    nightly, judge = load_nightly(nightly.path), Judge()
    for day in range(2):
        nights_of(nightly, judge, NOON + timedelta(days=day))
    assert judge.asked == ["one", "two", "one"], "a run of a moment ago is young enough"
