"""Real rows: a reference solution passes, a broken one fails, a mutant as it does beside its tests."""

from __future__ import annotations

import ast
import random
from typing import Any

from qualgate.sandbox import Ended, Sandbox
from qualgate.scoring.code import METRIC, score_code


def solution(row: dict[str, Any]) -> str:
    """The reference answer of a HumanEval, MBPP or own row."""
    return row.get("canonical_solution") or row.get("code") or row["answer"]


def broken(row: dict[str, Any], sandbox: Sandbox, rng: random.Random, mutants: int = 2) -> list[str]:
    """Faults of judging a HumanEval row's broken solutions: one that returns something else must fail; of mutants the
    verdict must be that of running program and tests together, inside a sandbox, by plain Python."""
    program = row["prompt"] + row["canonical_solution"]
    name = row["entry_point"]
    case = {"tests": row["test"], "entry_point": name, "prompt": row["prompt"]}  # tests may use the prompt's helpers
    other = f"{program}\n\n_right = {name}\n\n\ndef {name}(*args):\n    return ['wrong', _right(*args)]\n"
    faults = []
    if score_code(case, other, sandbox=sandbox)[METRIC].verdict is not False:
        faults.append(f"{row['task_id']}: a wrapped value passes")
    for _ in range(mutants):
        mutant = mutate(program, name, rng)
        got = score_code(case, mutant, sandbox=sandbox)[METRIC].verdict
        if got is not beside(f"{mutant}\n{row['test']}\ncheck({name})\n", sandbox):
            faults.append(f"{row['task_id']}: verdict {got} on a mutant")
    return faults


def beside(text: str, sandbox: Sandbox) -> bool:
    """Whether program and tests run through together, as the peers run them; the program must be an honest one."""
    try:
        with sandbox.interpreter() as inside:
            return "value" in inside.ask({"op": "load", "args": [text, []]})
    except Ended:
        return False


def mutate(program: str, name: str, rng: random.Random) -> str:
    """`program` with one constant, comparison or operator changed in its function `name`."""
    tree = ast.parse(program)
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    places = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Compare | ast.BinOp)
        or (isinstance(node, ast.Constant) and type(node.value) in (int, bool))
    ]
    match rng.choice(places) if places else None:
        case ast.Compare() as node:
            node.ops[0] = rng.choice([ast.Lt(), ast.GtE(), ast.NotEq(), ast.Eq()])
        case ast.BinOp() as node:
            node.op = rng.choice([ast.Add(), ast.Sub()])
        case ast.Constant(value=bool(value)) as node:
            node.value = not value
        case ast.Constant(value=int(value)) as node:
            node.value = value + rng.choice([-1, 1, 2])
    return ast.unparse(tree)
