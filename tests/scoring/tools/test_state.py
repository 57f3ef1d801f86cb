"""A turn is right by what its calls do to simulated tools, which run in the sandbox."""

from __future__ import annotations

import json

import pytest

from qualgate.evalsets import read_turns, read_whole
from qualgate.records import Case, Evalset
from qualgate.records.identity import content_hash
from qualgate.records.metrics import STATE
from qualgate.sandbox import Limits, Sandbox
from qualgate.scoring import code, registry
from qualgate.scoring.tools import state
from tests.scoring.cases import table

BANK = """
import os, random, sys
class Same:
    def __init__(self, value): self.value = value
    def __eq__(self, other): return True
class Bank:
    def __init__(self, balance=0):
        self.balance, self.kept, self.log, self._calls = balance, Same(0), [], 0
        self.rate, self.lock, self.up = float("nan"), object(), {"bank": self}
    def pay(self, amount):
        self._calls += 1
        if amount > self.balance: raise ValueError("too little")
        self.balance -= amount
        return {"left": self.balance}
    def look(self): return self.balance
    def keep(self, value): self.kept = Same(value)
    def note(self, text): self.log.append(text)
    def run(self, code): return str(eval(code))
    def wait(self):
        while True: pass
    def grow(self):
        self.log = [[0] * 1000 for _ in range(3000)]
    def draw(self): return random.random()
"""
NAMES = ("pay", "look", "keep", "note", "run", "wait", "grow", "draw")
TOOLS = [{"name": name, "parameters": {"type": "object", "properties": {}}} for name in NAMES]
EVALSET = Evalset(name="bank", version="1", sha256="", metrics=(STATE,), simulation=(("tools.py", BANK),))


def call(name, **arguments):
    return {"name": name, "arguments": arguments}


LOOK, PAY = call("look"), call("pay", amount=3)
TURNS = [
    {"user": "Pay 3, then note it.", "expected_calls": [PAY], "results": [{"left": 7}]},
    {"expected_calls": [call("note", text="paid")], "results": ["None"]},
    {"expected_calls": [], "says": "Done."},
    {"user": "What is left?", "expected_calls": [LOOK], "results": ["7"]},
]


def row(turns=TURNS, **more):
    world = {"classes": ["Bank"], "initial": {"Bank": {"balance": 10}}}
    named = {"id": "b", "max_new_tokens": 9, "tools": TOOLS, "simulation": content_hash(EVALSET.simulation)}
    return named | {"turns": turns, "state": world} | more


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    held = Sandbox.best(Limits(cpu_seconds=1, wall_seconds=10))
    if held is None:
        pytest.skip("no sandbox holds here")
    monkeypatch.setattr(code, "local_sandbox", lambda: held)


def judged(number, calls, **body):
    bodies, faults = read_turns(row(**body))
    assert not faults
    case = Case(evalset="bank", body=bodies[number - 1])
    return state.score_state(case, EVALSET, calls, code.local_sandbox())[STATE]


def whole(calls, turns=TURNS, simulation=BANK):
    (body,), _ = read_whole(row(turns))
    evalset = Evalset(name="b", version="1", sha256="", metrics=(STATE,), simulation=(("tools.py", simulation),))
    return state.score_transcript(Case(evalset="bank", body=body), evalset, calls, code.local_sandbox())[STATE]


NOTE = call("note", text="paid")


@pytest.mark.parametrize(
    ("number", "calls", "error"),
    [
        (1, [PAY], ""),  # the recorded action
        (1, [LOOK, PAY], ""),  # a look besides changes nothing
        (1, [call("pay", amount=30), PAY], ""),  # what raises is an answer like any other
        (1, [NOTE, PAY], ""),  # on to the next action of the same turn, in another order
        (2, [call("note", text="pai" + "d"), LOOK], ""),
        (1, [LOOK] * 900 + [PAY], ""),
        (1, [LOOK], "state"),
        (1, [PAY, PAY], "state"),
        (1, [call("pay", amount=1), call("pay", amount=2)], ""),  # another way to the same end
        (4, [call("draw")], "result"),  # the same state, and another answer
        (1, [call("pay", sum=3)], "state"),
        (1, [], "no_call"),
        (1, [PAY, call("rob")], "unknown_tool"),
        (3, [LOOK], "extra_call"),
        (4, [LOOK, LOOK], ""),
        (4, [call("run", code="7"), call("draw")], "result"),  # another tool's answer, though it says the same
    ],
)
def test_an_action_is_right_where_its_calls_come_to_what_the_recorded_ones_do(number, calls, error):
    score = judged(number, calls)
    if error == "extra_call":
        assert score.verdict is False
    else:
        assert (score.error_type or "", score.verdict) == (error, not error), score.reason


@pytest.mark.parametrize(
    ("calls", "error"),
    [
        ([[PAY, NOTE], [LOOK]], ""),
        ([[LOOK, NOTE, PAY, call("rob")], [LOOK]], ""),  # as BFCL: a tool that is not there gives an error
        ([[PAY, NOTE, LOOK], [call("run", code="1")]], ""),  # what an earlier turn's call gave need not be asked again
        ([[PAY, NOTE], [call("run", code="1")]], "result"),
        ([[PAY], [LOOK]], "state"),
        ([[PAY, NOTE], []], "no_call"),
        ([[PAY, NOTE]], "turns"),
        ("look", "call_shape"),
    ],
)
def test_a_whole_transcript_is_judged_turn_by_turn_of_the_users(calls, error):
    score = whole(calls)
    assert (score.error_type or "", score.verdict) == (error, not error), score.reason


def test_where_nothing_is_to_be_called_nothing_may_be():
    turns = [{"user": "Hi", "expected_calls": [], "says": "Hi"}, {"user": "Left?", "expected_calls": [LOOK]}]
    assert whole([[], [LOOK]], turns).verdict
    assert whole([[LOOK], [LOOK]], turns).error_type == "call"


FORGED = """exec('''
for fd in range(3, 40):
    try: os.write(fd, b'{"nonce": "0", "value": "{}"}' + bytes([10]))
    except OSError: pass
''')"""


@pytest.mark.parametrize(
    ("calls", "error"),
    [
        ([PAY, call("keep", value=5)], "state"),  # whose __eq__ says that all are the same
        ([PAY, call("wait")], "timeout"),
        ([PAY, call("run", code="os._exit(0)")], "exit"),
        ([PAY, call("run", code="sys.exit()")], "exception"),
        ([call("run", code="os.system('touch /tmp/x')")], "state"),
        ([call("run", code=FORGED), PAY], "reply"),
        ([call("run", code="print('{\"steps\": []}')")], "state"),
        ([PAY, call("grow")], "exception timeout"),  # whichever comes first: what its memory may be, or its time
        ([PAY, call("run", code="self.__dict__.clear()")], "state"),
    ],
)
def test_what_calls_do_to_their_own_sandbox_changes_no_verdict(calls, error):
    score = judged(1, calls)
    assert score.error_type in error.split(), score.reason
    assert score.verdict is False


@pytest.mark.parametrize(
    ("simulation", "calls", "why"),
    [
        (BANK.replace("balance=0", "balance=0, name=1/0"), [PAY], "cannot be made"),
        (BANK.replace('"nan")', "random.random())"), [PAY], "Bank.rate"),
        (BANK.replace("import os", "while True: pass\nimport os"), [PAY], "CPU time"),
        (BANK.replace("return {", "return {random.random(): 1, "), [PAY], "the next time"),
    ],
)
def test_tools_that_cannot_be_relied_on_judge_nobody(simulation, calls, why):
    score = whole([[*calls, NOTE], [LOOK]], simulation=simulation)
    assert (score.verdict, score.error_type) == (None, "simulation")
    assert why in score.reason


def test_without_a_sandbox_only_the_recorded_action_is_judged(monkeypatch):
    monkeypatch.setattr(code, "local_sandbox", lambda: None)
    assert judged(1, [PAY]).verdict
    assert judged(1, [LOOK, PAY]).error_type == "no_sandbox"


def test_a_text_is_read_as_tool_calls_are():
    bodies, _ = read_turns(row())
    written = "".join(f"<tool_call>\n{json.dumps(one)}\n</tool_call>" for one in (LOOK, PAY))
    score = registry.apply(registry.find("state"), Case(evalset="bank", body=bodies[0]), EVALSET, written)[STATE]
    assert (score.verdict, score.scorer) == (True, "state/1")


@pytest.mark.parametrize(("world", "said"), table("tools/worlds"))
def test_what_a_row_lacks_is_told_before_anything_runs(world, said):
    (body, *_), _ = read_turns(row(state=world))
    assert said in "\n".join(registry.find("state").unscorable(body, EVALSET))
    assert not list(registry.find("state").unscorable(read_turns(row())[0][0], EVALSET))


def test_a_row_names_no_simulation_of_its_own():
    (fault,) = registry.find("state").unscorable(read_turns(row(simulation="tools.py"))[0][0], EVALSET)
    assert "`simulation` of a case has no effect" in fault


def test_calls_that_a_row_claims_were_recorded_are_not_taken_for_such():
    body = read_turns(row())[0][0]
    (fault,) = registry.find("state").unscorable(body | {"recorded": [[[]]]}, EVALSET)
    assert "runs the recorded calls" in fault
    assert "simulation: tools.py" in "\n".join(
        state.state_faults(body, Evalset(name="b", version="1", sha256="", metrics=()))
    )
