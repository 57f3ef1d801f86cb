"""Read unit tests of `assert` lines so that a candidate's values are compared out of its reach.

A name that the tests use is one of: the entry point (always the candidate's), bound by the tests themselves, a builtin,
a module of the standard library (`math.isclose`), defined by the prompt (which is the evalset's, so its helpers are
taken from there and not from the answer). So an answer that defines its own `abs`, `set` or `math` changes nothing.
Any other name makes the tests unusable where an entry point is declared: it would be the answer that compares. Where
none is, unknown names are the candidate's, and must not be handed one another's results (but for objects of a class).

Names used only as exception classes (`except ParseError`, `pytest.raises(ParseError)`) may be the answer's own: such
tests expect it to raise its own exception.

Tests of a simple form are evaluated here: asserts over literals, the candidate's calls, comparisons, arithmetic on
numbers and a few builtins, at the top or in HumanEval's `check(candidate)`. All others (loops, random inputs, methods,
classes, unittest's cases, `await`) run in a second sandbox, for which `read` leaves `steps` None.
"""

from qualgate.scoring.unit_tests.exam import Exam, program_start, read, sit
from qualgate.scoring.unit_tests.names import BadTests

__all__ = ["BadTests", "Exam", "program_start", "read", "sit"]
