"""Many mutants of hostile programs to a sandbox."""

from __future__ import annotations

import ast
import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace

from qualgate.sandbox import Ended, Sandbox, SandboxFailed
from tests.verification.escapes.ground import SECRET, Ground
from tests.verification.escapes.hostile import ESCAPES, TRIES

# Each in a process of its own, then everything it left is killed (tier A: kill(-1) reaches this namespace alone).
_BATCH = """
def batch(texts, outside, marker, seconds):
    for number, text in enumerate(texts):
        os.write(1, b'\\nbegun %d\\n' % number)
        pid = os.fork()
        if pid == 0:
            try:
                scope = dict(globals())
                exec(text, scope)
                print(scope['attack'](outside, marker), flush=True)
            finally:
                os._exit(0)
        end = time.monotonic() + seconds
        while time.monotonic() < end and os.waitpid(pid, os.WNOHANG) == (0, 0):
            time.sleep(0.002)
        try: os.kill(-1, 9)
        except OSError: pass
        try:
            while True: os.waitpid(-1, 0)
        except OSError: pass
    return len(texts)
"""


def mutants(seeds: Sequence[int], sandbox: Sandbox, place: Ground, seconds: float = 0.25) -> tuple[int, list[str]]:
    """S16 with many mutants to a sandbox (tier A): how many sandboxes it took, and the faults.

    seconds: what a mutant may take. One that ends the sandbox itself is judged as ever; those after it get another.
    """
    started, faults, left = 0, [], list(seeds)
    wall = replace(sandbox, limits=replace(sandbox.limits, wall_seconds=10 + 2 * len(seeds), cpu_seconds=60))
    while left:
        started, out, done = started + 1, "", len(left)
        try:
            with wall.interpreter() as inside:
                try:
                    inside.ask({"op": "load", "args": [TRIES + _BATCH, []]})
                    args = [["l", *map(mutated, left)], place.folder, place.marker, ["f", seconds.hex()]]
                    out = json.dumps(inside.ask({"op": "call", "name": "batch", "args": args}))
                except Ended:
                    begun = [int(word) for word in re.findall(r"\nbegun (\d+)\n", inside.output)]
                    done = min(max(begun, default=0) + 1, len(left))
                out += inside.output
        except SandboxFailed as error:
            faults.append(f"S16 seed {left[0]}: {error}")
        faults += [f"S16 seeds {left[0]} to {left[done - 1]}: a secret came out"] if SECRET in out else []
        left = left[done:]
    return started, faults


def mutated(seed: int) -> str:
    """Statements of three hostile programs in one, repeated, reordered, each caught, with other numbers; of one in
    five, lines torn and shuffled, most of which is no Python."""
    rng = random.Random(seed)
    texts = rng.sample([text for name, (text, _) in ESCAPES.items() if not name.startswith(("S9", "S10"))], 3)
    if rng.random() < 0.2:
        lines = [line for text in texts for line in text.splitlines() if line.strip()]
        for _ in range(rng.randint(1, 12)):
            at = rng.randrange(len(lines))
            lines[at] = "".join(rng.sample(lines[at], len(lines[at]))) if rng.random() < 0.2 else rng.choice(lines)
        return "\n".join(lines)
    nodes = [node for text in texts for node in ast.parse(text).body]
    attacks = [node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == "attack"]
    body = rng.choices([node for attack in attacks for node in attack.body], k=rng.randint(3, 12))
    caught = ast.parse("try: pass\nexcept BaseException: pass").body[0]
    assert isinstance(caught, ast.Try)
    attacks[0].body = [ast.Try([node], caught.handlers, [], []) for node in body]
    tree = ast.Module([*(node for node in nodes if node not in attacks), attacks[0]], [])
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) is int and rng.random() < 0.2:
            node.value = rng.choice([0, 1, -1, node.value + 1, node.value * 1000, 2**31, rng.randrange(1000)])
    return ast.unparse(ast.fix_missing_locations(tree))
