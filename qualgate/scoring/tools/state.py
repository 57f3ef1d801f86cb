"""Judge one turn of a trajectory by the effect of its calls: the set's simulated tools must reach the same state.

BFCL's multi-turn verdict (`multi_turn_checker`): after each turn of the user's, the model's tools have the state of the
reference's, attribute by attribute, and the results of the reference's calls are among those of the model's. The model
must call something exactly if the reference does.

A case is one action, requested with the recorded history. So the model's own calls run behind the recorded ones; right
is the state of the recorded calls at this action, or at a later one of the same turn of the user's. Each side runs in
its own sandbox. The recorded calls run twice: if the results differ, there is no verdict.
"""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from qualgate.errors import close_names
from qualgate.records import Case, Evalset, Score, turn_of
from qualgate.records.identity import content_hash
from qualgate.records.metrics import STATE
from qualgate.sandbox import Ended, Sandbox, SandboxFailed
from qualgate.sandbox.packages import NoPackages
from qualgate.scoring import code
from qualgate.scoring.outcome import actual, cannot_say, quote, right, wrong
from qualgate.scoring.scorer import Scorer, in_dialect_first
from qualgate.scoring.tools import strict
from qualgate.scoring.tools.dialects import BadCall, Call
from qualgate.scoring.tools.turns import turn_faults
from qualgate.scoring.unit_tests import BadTests

SCORER, COMPAT = "state/1", "state.compat/1"
EXAMPLE = '{"classes": ["Bank"], "initial": {"Bank": {"balance": 10}}}'
KEYS = ("classes", "initial", "long_context")
ABSENT = ("", "absent")
FAILED = "Error during execution: "
_DRIVER = "from inside.simulated import play"
Calls = Sequence[Sequence[Any]]  # of [name, arguments]
Digested = tuple[str, str]  # a value's digest, and its beginning


class BadSimulation(Exception):
    """The set's own tools, not an answer, are at fault."""


class Broken(Exception):
    """The model's calls end the simulation. `error_type` as in its score."""

    def __init__(self, error_type: str, reason: str) -> None:
        super().__init__(reason)
        self.error_type = error_type


@dataclass(frozen=True, slots=True)
class Step:
    """Results of some calls, and the tools' state after them."""

    results: tuple[Digested, ...]
    state: dict[str, dict[str, Digested]]  # class → attribute → value


@dataclass(frozen=True, slots=True)
class World:
    """Simulated tools, and where they run."""

    sandbox: Sandbox
    sources: tuple[tuple[str, str], ...]  # path, text
    state: str  # a row's `state`, as JSON

    def play(self, steps: Sequence[Calls], *, recorded: bool = False) -> list[Step]:
        """Return each step's results and the state after it, in a fresh sandbox. recorded: a call of an unknown tool is
        the simulation's fault.

        Raises BadSimulation, Broken, SandboxFailed.
        """
        known = json.loads(self.state)
        question = {"sources": dict(self.sources), "classes": known["classes"], "initial": known.get("initial", {}),
                    "long_context": known.get("long_context", False), "steps": steps,
                    "recorded": recorded}  # fmt: skip
        try:
            with self.sandbox.interpreter() as inside:
                inside.ask({"op": "load", "args": [_DRIVER, []]})
                reply = inside.ask({"op": "call", "name": "play", "args": [json.dumps(question)]})
        except Ended as error:
            raise Broken(error.error_type, str(error)) from None
        match reply:
            case {"raised": [str(kind), str(message)]}:
                raise Broken("exception", f"{kind}: {message}")
            case {"value": str(text)}:
                return _steps(text, steps)
        raise Broken("reply", "what the tools came to is more than is read")


def _steps(text: str, requested: Sequence[Calls]) -> list[Step]:
    """Read the sandbox's reply into steps. It is not trusted, since any code inside may have written it.

    BadSimulation if the tools cannot be made, Broken for anything else that is not one result for each call.
    """
    try:
        reply = json.loads(text)
        if "unmade" in reply:
            raise BadSimulation(f"the simulation: {reply['unmade']}")
        if "incomparable" in reply:
            raise Broken("state", str(reply["incomparable"]))
        steps = [
            Step(
                tuple((str(digest), str(text)) for digest, text in step["results"]),
                {kind: {name: (str(value[0]), str(value[1])) for name, value in attributes.items()}
                 for kind, attributes in step["state"].items()},
            )
            for step in reply["steps"]
        ]  # fmt: skip
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError):
        raise Broken("reply", "what the tools came to cannot be read") from None
    if [len(step.results) for step in steps] != [len(calls) for calls in requested]:
        raise Broken("reply", "not every call has a result")
    return steps


@lru_cache(maxsize=64)
def _recorded(world: World, steps: str) -> list[Step] | str:
    """Return the steps of the recorded calls, or why there are none: they fail, or differ when run twice."""
    calls = json.loads(steps)
    try:
        first, second = world.play(calls, recorded=True), world.play(calls, recorded=True)
    except (BadSimulation, Broken) as error:
        return str(error)
    return _unlike(first, second) or first


def _unlike(first: Sequence[Step], again: Sequence[Step]) -> str:
    """Return where a second run of the recorded calls differs; "" if it does not."""
    for earlier, later in zip(first, again, strict=True):
        for result, second_result in zip(earlier.results, later.results, strict=True):
            if result[0] != second_result[0]:
                return f"a recorded call gives {quote(result[1])} once and {quote(second_result[1])} the next time"
        if fault := state_fault(earlier, later):
            return f"run twice, the recorded calls end differently: {fault}"
    return ""


def _check_steady(world: World, steps: Sequence[Calls], known: Sequence[Step]) -> None:
    """Run the recorded calls again before an answer is called wrong. Raises BadSimulation if they now differ, as with
    tools that look at the clock; SandboxFailed."""
    try:
        fault = _unlike(known, world.play(steps, recorded=True))
    except Broken as error:
        fault = str(error)
    if fault:
        raise BadSimulation(f"the recorded calls cannot be run: {fault}")


def reference(world: World, steps: Sequence[Calls]) -> list[Step]:
    """Return the steps of the recorded calls, run twice. Raises BadSimulation, SandboxFailed."""
    recorded_steps = _recorded(world, json.dumps(steps))
    if isinstance(recorded_steps, str):
        raise BadSimulation(f"the recorded calls cannot be run: {recorded_steps}")
    return recorded_steps


def state_fault(step: Step, recorded: Step, *, whole: bool = True) -> str:
    """Return where the model's state differs from the recorded one, else "". whole: extra attributes count too."""
    for kind, attributes in recorded.state.items():
        own_attributes = step.state.get(kind, {})
        for name in attributes | own_attributes if whole else attributes:
            due, value = attributes.get(name, ABSENT), own_attributes.get(name, ABSENT)
            if value[0] != due[0]:
                return f"{kind}.{name} is {quote(value[1])}, and the recorded calls leave {quote(due[1])}"
    return ""


def result_fault(results: Sequence[tuple[str, Digested]], recorded: Sequence[tuple[str, Digested]]) -> str:
    """Return the recorded result that is not among the `results`, each of which counts once; "" if all are. Results
    come with the name of their tool."""
    unused = Counter((tool, digest) for tool, (digest, _) in results)
    for tool, (digest, text) in recorded:
        if not unused[tool, digest]:
            return f"no call{f' of {quote(tool)}' if tool else ''} gave {quote(text)}, as a recorded one did"
        unused[tool, digest] -= 1
    return ""


def _of_tools(calls: Calls, results: Sequence[Digested]) -> list[tuple[str, Digested]]:
    return [(str(call[0]), result) for call, result in zip(calls, results, strict=True)]


def first_fault(world: World, recorded: Sequence[Calls], transcript: Sequence[Calls]) -> tuple[str, str] | None:
    """Judge a whole transcript, calls by turn of the user's, as BFCL does. Return (error type, why) of the first fault,
    or None. Raises BadSimulation, SandboxFailed."""
    if len(transcript) != len(recorded):
        return "turns", f"the transcript has {len(transcript)} turns of the user's, the case {len(recorded)}"
    for turn, (calls, made_calls) in enumerate(zip(recorded, transcript, strict=True), start=1):
        if bool(calls) != bool(made_calls):
            return (
                ("no_call", f"turn {turn}: no call is made") if calls else ("call", f"turn {turn}: no call may be made")
            )
    ends, results = reference(world, recorded), []
    try:
        for turn, (end, step) in enumerate(zip(ends, world.play(transcript), strict=True), start=1):
            results += [("", result) for result in step.results]  # whichever tool's, as BFCL takes it
            kind, fault = "state", state_fault(step, end, whole=False) if recorded[turn - 1] else ""
            if not fault:
                kind, fault = "result", result_fault(results, [("", result) for result in end.results])
            if fault:
                _check_steady(world, recorded, ends)
                return kind, f"turn {turn}: {fault}"
    except Broken as error:
        return error.error_type, str(error)
    return None


def action_fault(world: World, turns: Sequence[Sequence[Calls]], number: int, answer: Calls) -> tuple[str, str] | None:
    """Judge one action behind the recorded ones before it, more strictly: the same tool must give the result in one
    turn of the user's; and if a recorded call fails, nothing but itself is known to be right.

    turns: the recorded calls by turn of the user's and action; number: of the action in all turns, from 1.
    """
    actions = [calls for turn in turns for calls in turn]
    begins = max(action for action in _begins(turns) if action < number)
    ends = min((action for action in _begins(turns) if action >= number), default=len(actions))
    recorded = reference(world, actions)
    if failed := next((text for _, text in recorded[number - 1].results if text.startswith(FAILED)), ""):
        raise BadSimulation(f"the recorded call itself fails: {failed}")
    before = [call for calls in actions[: number - 1] for call in calls]
    try:
        history, step = world.play([before, answer])
    except Broken as error:
        return error.error_type, str(error)
    results = [*_of_tools(before, history.results)[sum(map(len, actions[:begins])) :], *_of_tools(answer, step.results)]
    faults: list[tuple[str, str]] = []
    for end in (action for action in range(number - 1, ends) if actions[action]):
        due = [
            result
            for action in range(begins, end + 1)
            for result in _of_tools(actions[action], recorded[action].results)
        ]
        if fault := state_fault(step, recorded[end]):
            faults.append(("state", fault))
        elif fault := result_fault(results, due):
            faults.append(("result", fault))
        else:
            return None
    _check_steady(world, actions, recorded)
    return faults[0]


def _begins(turns: Sequence[Sequence[Calls]]) -> list[int]:
    """Return the index of each turn's first action among all actions."""
    return [sum(map(len, turns[:place])) for place in range(len(turns))]


def score_state(
    case: Case, evalset: Evalset, answer: Any, sandbox: Sandbox | None, written_in: str | None = None
) -> dict[str, Score]:
    """Score `turns.state` of one turn's answer: text, or decoded calls. The recorded action itself needs no run."""
    equipment = _equipped(case, sandbox, SCORER)  # first: whatever the answer, the version names its packages
    if isinstance(equipment, Score):
        return {STATE: equipment}
    try:
        text = isinstance(answer, str)
        calls = strict.calls_or_scores(case, answer, written_in) if text else strict.read_calls(answer)
    except BadCall as error:
        return {STATE: wrong(STATE, equipment[1], error.error_type, str(error))}
    scores = calls if isinstance(calls, dict) else strict.score_calls(case, calls)
    score = replace(scores[strict.FLAGS[-1]], metric=STATE, scorer=equipment[1])
    if isinstance(calls, dict) or score.verdict or not calls or not case.body["expected_calls"]:
        return {STATE: score}
    if outside := next((call for call in calls if call.name not in strict.parameters(case.body["tools"])), None):
        return {STATE: wrong(STATE, equipment[1], "unknown_tool", f"no tool is called {quote(outside.name)}")}
    if (turn := turn_of(case.id)) is None:
        return {
            STATE: cannot_say(
                STATE, equipment[1], "turn", "the case is no turn of a conversation, so none is before it"
            )
        }

    def fault(world: World) -> tuple[str, str] | None:
        return action_fault(world, case.body["recorded"], turn[1], _plain(calls))

    return {STATE: _judged(case, evalset, equipment, fault, score.extracted)}


def score_transcript(case: Case, evalset: Evalset, turns: Any, sandbox: Sandbox | None) -> dict[str, Score]:
    """Score `turns.state` of a whole transcript, decoded calls for each turn of the user's, as BFCL judges it."""
    equipment = _equipped(case, sandbox, COMPAT)
    if isinstance(equipment, Score):
        return {STATE: equipment}
    try:
        if not isinstance(turns, list):
            raise BadCall(
                "call_shape", f"a transcript is a list of calls for each turn of the user's; found {quote(turns)}"
            )
        calls_by_turn = [_plain(strict.read_calls(calls)) for calls in turns]
    except BadCall as error:
        return {STATE: wrong(STATE, equipment[1], error.error_type, str(error))}
    recorded_calls = [[call for calls in turn for call in calls] for turn in case.body["recorded"]]
    return {
        STATE: _judged(case, evalset, equipment, lambda world: first_fault(world, recorded_calls, calls_by_turn), None)
    }


def _plain(calls: Sequence[Call]) -> list[list[Any]]:
    return [[call.name, call.arguments] for call in calls]


def _equipped(case: Case, sandbox: Sandbox | None, scorer: str) -> tuple[Sandbox | None, str] | Score:
    """Return the sandbox with the case's packages, None without a sandbox, and the scorer's version with their names.

    Returns a score instead if the packages cannot be used.
    """
    try:
        return code.equipped(case.body, sandbox, scorer) if sandbox else (None, scorer)
    except NoPackages as error:
        return cannot_say(STATE, scorer, "no_packages", str(error))
    except BadTests as error:
        return cannot_say(STATE, scorer, "simulation", str(error))


def _judged(
    case: Case,
    evalset: Evalset,
    equipment: tuple[Sandbox | None, str],
    fault: Callable[[World], tuple[str, str] | None],
    extracted: str | None,
) -> Score:
    """Return the score of a case in its world. fault: finds error type and reason in a world; None: it is right.

    extracted: the answer's calls, for the score.
    """
    sandbox, scorer = equipment
    if sandbox is None:
        return cannot_say(STATE, scorer, "no_sandbox", "no sandbox holds on this machine: qualgate doctor")
    try:
        problem = fault(World(sandbox, evalset.simulation, json.dumps(case.body["state"])))
    except SandboxFailed as error:
        return cannot_say(STATE, scorer, "sandbox", str(error))
    except BadSimulation as error:
        return cannot_say(STATE, scorer, "simulation", str(error))
    return wrong(STATE, scorer, *problem, extracted) if problem else right(STATE, scorer, extracted)


def state_faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Yield why a turn cannot be scored: faults of `turns.correct`, of the set's `simulation`, and of `state`."""
    yield from turn_faults(body, evalset)
    if not isinstance(body.get("recorded"), tuple):  # a list is a row's own
        yield f"{STATE} runs the recorded calls: give the row `turns`; {actual(body, 'turns')}"
    yield from _world_faults(body, evalset)


def transcript_faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Yield why a row with `turns`, whose transcripts are judged whole, cannot be scored."""
    if not isinstance(body.get("recorded"), tuple):  # a list is a row's own
        yield f"{STATE} runs the recorded calls: give the row `turns`; {actual(body, 'turns')}"
    yield from _world_faults(body, evalset)


def _world_faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Yield what is wrong with a case's `state`, or with the set's simulation."""
    if not evalset.simulation:
        yield f"{STATE} needs `simulation: tools.py` in the set's YAML, the file or folder with its simulated tools"
        return
    if body.get("simulation", "") != _identity(evalset.simulation):
        yield f"`simulation` of a case has no effect, the set's YAML names it; {actual(body, 'simulation')}"
    state = body.get("state")
    classes = state.get("classes") if isinstance(state, dict) else None
    if not isinstance(state, dict) or not isinstance(classes, list) or not classes:
        yield f"{STATE} needs `state`, the simulated classes and how they begin, as {EXAMPLE}; {actual(body, 'state')}"
        return
    if unknown := [key for key in state if key not in KEYS]:
        yield f"`state` has an unknown key {quote(unknown[0])}; it has {', '.join(KEYS)}"
    initial = state.get("initial", {})
    if not isinstance(initial, dict) or not all(isinstance(value, dict) for value in initial.values()):
        yield f"state.initial must be an object, class → how it begins, an object too; {actual(state, 'initial')}"
    elif unknown_classes := [name for name in initial if name not in classes]:
        yield f"state.initial[{quote(unknown_classes[0])}] is of no class of state.classes"
    if not isinstance(state.get("long_context", False), bool):
        yield f"state.long_context must be true or false; {actual(state, 'long_context')}"
    known = _classes(evalset.simulation)
    for index, name in enumerate(classes):
        if name not in known:
            near = close_names(name, known) if isinstance(name, str) else ()
            hint = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(known[:5]) or 'none'}"
            yield f"state.classes[{index}]: the simulation has no class {quote(name)}{hint}"


@lru_cache(maxsize=8)
def _identity(sources: tuple[tuple[str, str], ...]) -> str:
    return content_hash(sources)


@lru_cache(maxsize=8)
def _classes(sources: tuple[tuple[str, str], ...]) -> list[str]:
    """Return the name of every class that the modules define, as `state.classes` writes it.

    That is `module.Bank`, and also `Bank` if there is one file.
    """
    names = []
    for path, text in sources:
        module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        class_names = [node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
        names += [*(class_names if len(sources) == 1 else ()), *(f"{module}.{name}" for name in class_names)]
    return names


def _score(case: Case, evalset: Evalset, answer: Any, dialect: str | None = None) -> dict[str, Score]:
    return score_state(case, evalset, answer, code.local_sandbox(), dialect)


def _score_transcript(case: Case, evalset: Evalset, calls: Any) -> dict[str, Score]:
    return score_transcript(case, evalset, calls, code.local_sandbox())


SCORERS = (
    Scorer(
        name="state",
        version=SCORER,
        metrics=(STATE,),
        function=_score,
        faults=state_faults,
        decoded=_score,
        written_in=in_dialect_first(_score),
    ),
    Scorer(
        name="state",
        mode="compat",
        version=COMPAT,
        metrics=(STATE,),
        function=_score_transcript,
        faults=transcript_faults,
        decoded=_score_transcript,
        transcripts=True,
    ),
)
