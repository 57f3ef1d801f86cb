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
import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache, lru_cache
from math import prod
from typing import Any

from qualgate.records import Case, Evalset, Score
from qualgate.sandbox import Interpreter, Limits, Sandbox, killable, packages
from qualgate.sandbox.packages import NoPackages
from qualgate.sandbox.process import PATIENCE, START_SECONDS
from qualgate.scoring import unit_tests
from qualgate.scoring.outcome import actual, cannot_say, quote, right, wrong
from qualgate.scoring.scorer import Scorer
from qualgate.scoring.unit_tests import BadTests, Exam, examples, reference
from qualgate.scoring.unit_tests.sitting import RIGHT, Said, examine, load, outcome_of, sandbox_of

METRIC, SCORER = "code.pass", "code/7"
# Libraries that are real and in no sandbox, so that an answer which imports one is not the model's fault. A name that
# is none of them may be made up, and is.
LIBRARIES = frozenset({
    "numpy", "pandas", "scipy", "sympy", "sklearn", "matplotlib", "networkx", "torch", "tensorflow", "requests", "yaml",
    "dateutil", "pytz", "regex", "nltk", "gmpy2", "sortedcontainers", "more_itertools", "bs4", "lxml", "PIL", "cv2",
    "seaborn", "statsmodels", "numba", "pydantic", "attr", "pytest", "hypothesis", "tqdm", "psutil", "Crypto",
})  # fmt: skip
MOST_PACKAGES = 50
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
    version = SCORER
    try:
        equipped_with, version = equipped(case_body, sandbox)  # first: whatever the answer, the version names them
        if not text.strip():
            return {METRIC: wrong(METRIC, version, "no_code", "the answer is empty")}
        program = program_of(case_body.get("prompt") or "", text, case_body.get("entry_point"), lenient)
        if (fault := _no_text(program)) is not None:
            return {METRIC: wrong(METRIC, version, "syntax", f"the program is not text: {fault}", program)}
        verdict, error_type, reason = _run_tests(case_body, program, equipped_with)
    except BadTests as error:
        return {METRIC: cannot_say(METRIC, version, "tests", str(error))}
    except NoPackages as error:
        return {METRIC: cannot_say(METRIC, SCORER, "no_packages", str(error))}
    if verdict is None:
        return {METRIC: cannot_say(METRIC, version, error_type, reason)}
    if not verdict and not equipped_with.packages and (absent := _absent(program, reason)):
        return {METRIC: absent}
    score = right(METRIC, version, program) if verdict else wrong(METRIC, version, error_type, reason, program)
    return {METRIC: score}


def _no_text(program: str) -> str | None:
    try:
        program.encode("utf-8")
    except UnicodeEncodeError as error:
        return error.reason
    return None


def equipped(body: Mapping[str, Any], sandbox: Sandbox, scorer: str = SCORER) -> tuple[Sandbox, str]:
    """The sandbox with the packages that the case declares, and the scorer's version, which names them.

    Raises BadTests for packages that cannot be read, NoPackages.
    """
    if not body.get("packages"):
        return sandbox, scorer
    if wrong_ones := list(package_faults(body)):
        raise BadTests(wrong_ones[0])
    with_packages, installed = packages.equipped(sandbox, body["packages"])
    return with_packages, f"{scorer} {installed.identity}"


def today(scorer: str, version: str) -> str:
    """Return `version` with the packages that the stored `scorer` ran programs with."""
    mark = next((word for word in scorer.split(" ") if word.startswith(packages.MARK)), "")
    return f"{version} {mark}" if version and mark else version


def package_faults(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a case's `packages`."""
    requested = body.get("packages", [])
    if not isinstance(requested, list):
        yield f"`packages` must be a list of packages, as [numpy]; {actual(body, 'packages')}"
        return
    if len(requested) > MOST_PACKAGES:
        yield f"`packages` names {len(requested)} packages; at most {MOST_PACKAGES} are installed for a set"
        return
    names: list[str] = []
    for package in requested:
        if why := packages.fault(package):
            yield f"`packages`: {quote(package)} {why}"
        elif (name := packages.name_of(package)) in names:
            yield f"`packages`: {quote(name)} twice"
        else:
            names.append(name)


def held_packages(wanted: Sequence[str]) -> str:
    """Return the identity of these packages, installed if need be; "" on a machine without a sandbox. NoPackages if one
    cannot be installed."""
    sandbox = Sandbox.best()
    return packages.equipped(sandbox, wanted)[1].identity if sandbox else ""


def _run_tests(body: Mapping[str, Any], program: str, sandbox: Sandbox) -> Said:
    """Run a program under the case's tests, of whichever kind, and return the verdict. BadTests for unusable tests."""
    if examples.written(body):
        return _of_examples(body, program, sandbox)
    if reference.written(body):
        return _beside_reference(body, program, sandbox)
    entry_point, prompt = body.get("entry_point"), body.get("prompt") or ""
    return _killable(judge, program, tests_of(body), entry_point, prompt, within=sandbox)


def _of_examples(body: Mapping[str, Any], program: str, sandbox: Sandbox) -> Said:
    """Run a program on each example of the case, until one fails; return that verdict with its place, else RIGHT."""
    name, prelude = body.get("fn_name", ""), body.get("prelude", "")
    for index, example in enumerate(examples.read(body)):
        limited = replace(sandbox, limits=example.limits(sandbox.limits))
        verdict, error_type, reason = _killable(
            examples.judge, program, prelude, name, example.given, example.due, within=limited
        )
        if not verdict:
            return verdict, error_type, f"{reason} (tests[{index}])"
    return RIGHT


def _beside_reference(body: Mapping[str, Any], program: str, sandbox: Sandbox) -> Said:
    case_json = json.dumps({key: body[key] for key in reference.KEYS if key in body})
    due, fault = _of_reference(case_json, sandbox)
    if due is None:
        return None, "tests", fault
    limited = replace(sandbox, limits=reference.limits(sandbox.limits))
    return _killable(reference.judge, program, json.loads(case_json), due, within=limited)


@lru_cache(maxsize=8)  # the arms' answers to a case come one after the other
def _of_reference(case_json: str, sandbox: Sandbox) -> tuple[list[Any] | None, str]:
    """Run a case's reference solution in a child process.

    Returns (its values for the case's inputs, ""), or (None, why there are none). case_json: the case's body.
    """
    try:
        due, fault = killable.run(
            reference.expected, json.loads(case_json), asdict(sandbox), within=_bounds(sandbox.limits)
        )
    except killable.Killed as ended:
        return None, f"what the reference gives is too much to judge: {ended}"
    return due, fault


def _killable(judged: Callable[..., Said], *arguments: Any, within: Sandbox) -> Said:
    try:
        verdict, error_type, reason = killable.run(judged, *arguments, asdict(within), within=_bounds(within.limits))
    except killable.Killed as ended:
        return (*_KILLED.get(ended.kind, (None, "sandbox")), f"what the answer gave was too much to judge: {ended}")
    return verdict, error_type, reason


def _bounds(limits: Limits) -> killable.Bounds:
    """Return the bounds of the process that judges an answer: the answer's own CPU time, and memory for one reply."""
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
            f"`test_list` are read too, as HumanEval and MBPP have them; {actual(body, key)}"
        )
    return f"{body['test_setup_code']}\n{written}" if body.get("test_setup_code") else written


def judge(program: str, tests: str, entry_point: str | None, prompt: str, within: dict[str, Any]) -> Said:
    """(verdict, error type, reason) of a program under these tests. within: the sandbox, made plain."""

    def run_exam() -> Said:
        """Load the program in a sandbox, and let the tests run here or in a second sandbox."""
        sandbox = sandbox_of(within)
        exam = unit_tests.read(tests, entry_point, prompt)
        with sandbox.interpreter("answer") as candidate:
            load(candidate, program)
            if exam.steps is not None:
                return examine(candidate, lambda far: unit_tests.sit(exam, far))
            return _witnessed(exam, candidate, sandbox)

    return outcome_of(run_exam)


def _absent(program: str, reason: str) -> Score | None:
    """Return "cannot say" if the program failed because the sandbox lacks a real library that it imports, else None."""
    missing = _ABSENT.match(reason)
    if not missing or missing[1] not in LIBRARIES or missing[1] not in set(_imported(program)):
        return None
    why = f"the answer imports {missing[1]}, which is in no sandbox: declare it in the set's `packages`, or ask for "
    why += "the standard library alone in the prompt"
    return cannot_say(METRIC, SCORER, "no_library", why)


def _imported(program: str) -> Iterator[str]:
    """Yield the top-level name of every module that a program imports anywhere. The program must compile."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what the model wrote
        tree = ast.parse(program)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").partition(".")[0]


def _witnessed(exam: Exam, candidate: Interpreter, sandbox: Sandbox) -> Said:
    """Run the tests in a second sandbox, and pass their questions to the candidate's sandbox and its answers back.

    Returns verdict, error type ("" if right) and reason.
    """
    task = {"tests": exam.source, "support": exam.support, "remote": exam.remote, "errors": exam.errors}
    with sandbox.interpreter("witness") as witness:
        message = witness.exchange(task)
        while "ask" in message:
            message = witness.exchange(candidate.ask(message["ask"]))
    return message["verdict"], message["error_type"] or "", message["reason"]


def faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Check that `tests` can be read and assert something, and `entry_point` if they need one."""
    for key in ("entry_point", "prompt", "test_setup_code"):
        if not isinstance(body.get(key) or "", str):
            yield f"`{key}` must be a text; {actual(body, key)}"
            return
    yield from package_faults(body)
    if examples.written(body) or reference.written(body):
        yield from (examples if examples.written(body) else reference).faults(body)
        return
    try:
        unit_tests.read(tests_of(body), body.get("entry_point"), body.get("prompt") or "")
    except unit_tests.BadTests as error:
        yield f"code needs `tests`: {error}"


@cache
def local_sandbox() -> Sandbox | None:
    """Return this machine's sandbox, probed when the first program runs."""
    return Sandbox.best()


def _score(case: Case, evalset: Evalset, text: str) -> dict[str, Score]:
    return score_code(case.body, text, sandbox=local_sandbox(), lenient=evalset.lenient)


SCORERS = (
    Scorer(
        name="code",
        version=SCORER,
        metrics=(METRIC,),
        function=_score,
        faults=faults,
        lenient=("code_fence",),
    ),
)
