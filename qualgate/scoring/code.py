"""Does the answer's code pass the case's unit tests: pass@1 and the unbiased pass@k.

The candidate runs in a sandbox and returns plain values; this process, or a second sandbox that the candidate has not
touched, compares them with what the tests expect. No expected value ever enters the candidate's interpreter, so there
is nothing there to read, patch or forge a verdict with. What comes back may be made to exhaust whoever reads it, so a
child of this process does, within bounds of its own.

The program: an answer to a prompt that is itself the start of a program (HumanEval) continues that prompt, character by
character; any other answer is the program. `lenient: [code_fence]` takes the first fenced block instead of the raw
answer, if there is one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from math import prod
from typing import Any

from qualgate.records import Score
from qualgate.sandbox import Ended, Interpreter, Limits, Sandbox, SandboxFailed, Tier, killable
from qualgate.sandbox.inside.far import BadReply, CannotCross, Far
from qualgate.sandbox.process import PATIENCE, START_SECONDS
from qualgate.scoring import unit_tests
from qualgate.scoring.outcome import cannot_say, found, right, wrong
from qualgate.scoring.unit_tests import BadTests, Exam

METRIC, SCORER = "code.pass", "code/5"
# Libraries that are real and in no sandbox, so that an answer which imports one is not the model's fault. A name that
# is none of them may be made up, and is.
LIBRARIES = frozenset({
    "numpy", "pandas", "scipy", "sympy", "sklearn", "matplotlib", "networkx", "torch", "tensorflow", "requests", "yaml",
    "dateutil", "pytz", "regex", "nltk", "gmpy2", "sortedcontainers", "more_itertools", "bs4", "lxml", "PIL", "cv2",
    "seaborn", "statsmodels", "numba", "pydantic", "attr", "pytest", "hypothesis", "tqdm", "psutil", "Crypto",
})  # fmt: skip
JUDGE_BYTES = 2**28  # of whoever reads what an answer gives: several times the longest reply as Python has it
_KILLED: dict[str, tuple[bool | None, str]] = {"timeout": (False, "timeout"), "memory": (False, "memory"),
                                               "depth": (False, "reply")}  # fmt: skip
_ABSENT = re.compile(r"ModuleNotFoundError: No module named '([^'.]+)")

_FENCE = re.compile(
    r"^[ \t]*```[ \t]*(?:python3?|py)?[ \t]*\r?\n(.*?)^[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE | re.IGNORECASE
)


def score_code(
    case_body: Mapping[str, Any], text: str, *, sandbox: Sandbox | None, lenient: Sequence[str] = ()
) -> dict[str, Score]:
    """`code.pass` of an answer. sandbox None: undecided ("no_sandbox"), never run.

    case_body: `tests` (assert lines, one text or a list of them; HumanEval's `test` and MBPP's `test_list` are read
    too), `entry_point`, `prompt`, `test_setup_code`. Wrong has the error types no_code, syntax, missing, exception,
    wrong_value, timeout, memory, output, files, reply, exit; undecided has no_sandbox, sandbox, tests, no_library.
    """
    if sandbox is None:
        return {METRIC: cannot_say(METRIC, SCORER, "no_sandbox", "no sandbox holds on this machine: qualgate doctor")}
    if not text.strip():
        return {METRIC: wrong(METRIC, SCORER, "no_code", "the answer is empty")}
    entry_point = case_body.get("entry_point")
    prompt = case_body.get("prompt") or ""
    program = program_of(prompt, text, entry_point, lenient)
    try:
        program.encode("utf-8")
        tests = tests_of(case_body)
        asked = program, tests, entry_point, prompt, asdict(sandbox)
        said = killable.run(judge, *asked, within=_bounds(sandbox.limits))
    except UnicodeEncodeError as error:
        return {METRIC: wrong(METRIC, SCORER, "syntax", f"the program is not text: {error.reason}", program)}
    except BadTests as error:
        said = None, "tests", str(error)
    except killable.Killed as ended:
        said = (*_KILLED.get(ended.kind, (None, "sandbox")), f"what the answer gave was too much to judge: {ended}")
    verdict, error_type, reason = said
    if verdict is None:
        return {METRIC: cannot_say(METRIC, SCORER, error_type, reason)}
    if not verdict and (absent := _absent(program, reason)):
        return {METRIC: absent}
    score = right(METRIC, SCORER, program) if verdict else wrong(METRIC, SCORER, error_type, reason, program)
    return {METRIC: score}


def _bounds(limits: Limits) -> killable.Bounds:
    """Of whoever judges an answer: as much time as the answer has, and memory for one reply."""
    return killable.Bounds(
        cpu_seconds=limits.cpu_seconds,
        wall_seconds=2 * START_SECONDS + PATIENCE * 2 * limits.wall_seconds,
        memory_bytes=JUDGE_BYTES,
        tree_bytes=limits.memory_bytes + JUDGE_BYTES,
    )


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that at least one of k samples, drawn from n of which c pass, passes: 1 - C(n-c, k) / C(n, k).

    Unbiased for the pass rate of k tries; ValueError unless 0 <= c <= n and 1 <= k <= n. Chen et al., 2021.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"pass@k needs 0 <= c <= n and 1 <= k <= n, found n={n}, c={c}, k={k}")
    return 1.0 if n - c < k else 1.0 - prod(1.0 - k / i for i in range(n - c + 1, n + 1))


def program_of(prompt: str, text: str, entry_point: str | None, lenient: Sequence[str] = ()) -> str:
    """The candidate's program in an answer."""
    fenced = _FENCE.search(text) if "code_fence" in lenient else None
    code = fenced.group(1) if fenced else text
    starts = entry_point is not None and unit_tests.program_start(prompt, entry_point) is not None
    return prompt + code if starts else code


def tests_of(body: Mapping[str, Any]) -> str:
    """A case's unit tests as one text, whichever way its set writes them. BadTests when it has none."""
    written = body.get("tests") or body.get("test") or body.get("test_list")
    if isinstance(written, list) and all(isinstance(line, str) for line in written):
        written = "\n".join(written)
    if not isinstance(written, str):
        key = next((key for key in ("tests", "test", "test_list") if key in body), "tests")
        raise BadTests(
            "the case has none. They are assert lines, a text or a list of texts, as `assert f(1) == 2`; `test` and "
            f"`test_list` are read too, as HumanEval and MBPP have them; {found(body, key)}"
        )
    return f"{body['test_setup_code']}\n{written}" if body.get("test_setup_code") else written


def judge(
    program: str, tests: str, entry_point: str | None, prompt: str, within: dict[str, Any]
) -> tuple[bool | None, str, str]:
    """(verdict, error type, reason) of a program under these tests."""
    sandbox = Sandbox(tier=Tier(**within["tier"]), limits=Limits(**within["limits"]))
    try:
        exam = unit_tests.read(tests, entry_point, prompt)
        with sandbox.interpreter("answer") as candidate:
            match candidate.ask({"op": "load", "args": [program, []]}):
                case {"raised": [str(kind), str(message)]}:
                    error_type = {"SyntaxError": "syntax", "IndentationError": "syntax", "MemoryError": "memory"}
                    return False, error_type.get(kind, "exception"), f"{kind}: {message}"
                case {"value": _}:
                    return (_sat_here if exam.steps is not None else _witnessed)(exam, candidate, sandbox)
                case _:
                    return False, "reply", "not a reply"
    except BadTests as error:
        return None, "tests", str(error)
    except SandboxFailed as error:
        return None, "sandbox", str(error)
    except Ended as error:
        return False, error.error_type, str(error)


def _absent(program: str, reason: str) -> Score | None:
    """That the program failed for a real library which it imports and the sandbox lacks; None where it did not."""
    found = _ABSENT.match(reason)
    if not found or found[1] not in LIBRARIES or found[1] not in set(_imported(program)):
        return None
    why = f"the answer imports {found[1]}, which is in no sandbox: ask for the standard library alone in the prompt"
    return cannot_say(METRIC, SCORER, "no_library", why)


def _imported(program: str) -> Iterator[str]:
    """Top-level names of the modules that a program, which compiles, imports anywhere."""
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").partition(".")[0]


def _sat_here(exam: Exam, candidate: Interpreter, sandbox: Sandbox) -> tuple[bool | None, str, str]:
    far = Far(candidate.ask)
    try:
        unit_tests.sit(exam, far)
    except AssertionError as error:
        own = f"; a {far.unequal} of the answer's own equals no value of the tests" if far.unequal else ""
        return False, "wrong_value", (str(error)[:300] or "an assertion failed") + own
    except CannotCross as error:
        return None, "tests", str(error)
    except BadReply as error:
        return False, "reply", str(error)
    except Ended:
        raise
    except BaseException as error:  # the candidate's own exception, or a value that does not fit the test
        if isinstance(error, KeyboardInterrupt) and error is not far.raised:
            raise
        kind = "memory" if isinstance(error, MemoryError) else "exception"
        return False, kind, f"{type(error).__name__}: {str(error)[:300]}"
    return (True, "", "") if far.questions else (None, "tests", "as they ran, the tests ask the answer nothing")


def _witnessed(exam: Exam, candidate: Interpreter, sandbox: Sandbox) -> tuple[bool | None, str, str]:
    """The tests run in a second sandbox; what they ask the candidate passes through here, and its answers back."""
    task = {"tests": exam.source, "support": exam.support, "remote": exam.remote, "errors": exam.errors}
    with sandbox.interpreter("witness") as witness:
        message = witness.exchange(task)
        while "ask" in message:
            message = witness.exchange(candidate.ask(message["ask"]))
    return message["verdict"], message["error_type"] or "", message["reason"]
