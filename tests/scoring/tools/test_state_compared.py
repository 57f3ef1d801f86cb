"""What of simulated tools is compared: states by what they hold, results by whose they are, and nothing on trust."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate.scoring.tools import state
from tests.scoring.tools.test_state import BANK, LOOK, NOTE, PAY, TURNS, call, judged, quick, whole  # noqa: F401

HOLDERS = """
import array, collections, datetime, decimal, email.message, enum, io, pathlib, random, re
Many = enum.Enum("Many", {f"m{at}": at for at in range(20)})
class Priced:
    currency = "EUR"
    def __init__(self, value): self._balance = value
class Kept:
    def __init__(self, value): self._value = value
class Own(list): pass
class Bank:
    kept = {}
    def __init__(self, balance=0): self.held = None
    def pay(self, amount): MAKES
"""
MADE = {
    "a queue of objects": "self.held = collections.deque([Kept(amount)])",
    "what is in an array": "self.held = array.array('d', [0] * 5000 + [amount] + [0] * 5000)",
    "what the class has": "self.kept['x'] = amount",
    "what a list of its own has beside": "self.held = Own([1]); self.held.more = amount",
    "bytes that are looked at": "self.held = memoryview(bytes([amount]))",
    "an object with fields of its own alone": "self.held = Kept(amount)",
    "a key that is an object": "self.held = {Kept(amount): 1}",
    "a date": "self.held = datetime.date(2026, 11, amount)",
    "a date within": "self.held = [{'on': datetime.datetime(2026, 11, amount)}]",
    "flags": "self.held = re.compile('a', amount)",
    "a decimal": "self.held = decimal.Decimal(amount) / 10",
    "a die": "self.held = random.Random(amount)",
    "an iterator": "self.held = iter([amount])",
    "a file in memory": "self.held = io.StringIO(str(amount))",
    "a mail": "self.held = email.message.EmailMessage(); self.held['x'] = str(amount)",
    "a constant of its class and a field of its own": "self.held = Priced(amount)",
    "one of many members": "self.held = Many(amount)",
    "a path": "self.held = pathlib.Path(str(amount))",
}
ONE = [{"user": "Pay 3.", "expected_calls": [PAY], "results": ["None"]}]


@pytest.mark.parametrize("makes", MADE.values(), ids=MADE)
def test_a_state_is_compared_by_all_that_it_holds(makes):
    tools = HOLDERS.replace("MAKES", makes)
    assert whole([[PAY]], ONE, tools).verdict
    other = whole([[call("pay", amount=4)]], ONE, tools)
    assert (other.verdict, other.error_type) == (False, "state")


@pytest.mark.parametrize(
    "makes",
    [
        "self.held = lambda amount=amount: amount",
        "self.held = (one for one in [amount])",
        "self.held = open('/dev/null')",
    ],
)
def test_what_does_not_tell_what_it_holds_judges_nobody(makes):
    score = whole([[PAY]], ONE, HOLDERS.replace("MAKES", makes))
    assert (score.verdict, score.error_type) == (None, "simulation")
    assert "Bank.held" in score.reason
    assert "begin its name with _" in score.reason


@pytest.mark.parametrize("made", ["float(amount)", "decimal.Decimal('3.00')", "fractions.Fraction(3)"])
def test_numbers_are_equal_as_python_says(made):
    tools = HOLDERS.replace("import array", "import fractions, array").replace("MAKES", f"self.held = {made}")
    turns = [{"user": "Pay 3.", "expected_calls": [call("pay", amount=3)], "results": ["None"]}]
    again = tools.replace(f"self.held = {made}", f"self.held = {made} if amount == 3 else 3")
    assert whole([[call("pay", amount=4)]], turns, again).verdict


def test_properties_are_not_looked_at():
    tools = HOLDERS.replace("MAKES", "self.held = amount\n    @property\n    def bad(self): raise ValueError")
    assert whole([[PAY]], ONE, tools).verdict


def test_tools_that_look_at_the_clock_call_nobody_wrong(monkeypatch):
    """The recorded calls ran earlier, in the same second twice."""
    tools = HOLDERS.replace("MAKES", "import time; self.held = time.time() // 1")
    played = state.World.play
    monkeypatch.setattr(state.World, "play", lambda world, steps, **how: _later(played(world, steps, **how)))
    seen = []

    def _later(steps):
        seen.append(steps)
        later = len(seen) > 2  # the first two are the recorded calls'
        told = ("later" if later else "early",) * 2
        return [replace(step, state={"Bank": {"held": told}}) for step in steps]

    score = whole([[call("pay", amount=4)]], ONE, tools)
    assert (score.verdict, score.error_type) == (None, "simulation")


def test_a_recorded_call_of_no_tool_is_the_sets_fault():
    score = whole([[call("pay", amount=4), NOTE], [LOOK]], simulation=BANK.replace("def pay", "def give"))
    assert (score.verdict, score.error_type) == (None, "simulation")
    assert "no class has a tool 'pay'" in score.reason


@pytest.mark.parametrize("kind", ["@staticmethod\n    def pay(amount)", "@classmethod\n    def pay(kind, amount)"])
def test_methods_of_the_class_are_tools_too(kind):
    tools = HOLDERS.replace("def pay(self, amount): MAKES", f"{kind}: Bank.kept['x'] = amount")
    assert whole([[PAY]], ONE, tools).verdict
    assert whole([[call("pay", amount=4)]], ONE, tools).verdict is False


def test_where_a_recorded_call_fails_nothing_but_itself_is_right():
    turns = [{"user": "Pay 30.", "expected_calls": [call("pay", amount=30)], "results": ["too little"]}, *TURNS]
    assert judged(1, [call("pay", amount=30)], turns=turns).verdict
    score = judged(1, [call("pay", amount=31)], turns=turns)
    assert (score.verdict, score.error_type) == (None, "simulation")
    assert "the recorded call itself fails" in score.reason


def test_what_a_tool_gave_in_an_earlier_turn_is_to_be_asked_again():
    """The note of the first turn gives None; in the last one a look is asked for."""
    turns = [*TURNS, {"user": "And now?", "expected_calls": [LOOK], "results": ["7"]}]
    assert judged(5, [LOOK, call("draw")], turns=turns).verdict
    assert judged(5, [call("draw")], turns=turns).error_type == "result"


def test_what_the_recorded_state_has_not_is_another_state():
    tools = HOLDERS.replace("MAKES", "pass\n    def mark(self, text): setattr(self, text, 1)")
    assert whole([[PAY, call("mark", text="more")]], ONE, tools).verdict  # as BFCL takes it
    score = judged(1, [PAY, call("run", code="setattr(self, 'more', 1)")])
    assert (score.verdict, score.error_type) == (False, "state")
