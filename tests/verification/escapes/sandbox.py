"""Goals of the sandbox and of pass rate: the escape suite at 1, 8 and 32 at once, forgeries, real rows, overhead."""

from __future__ import annotations

import ast
import json
import os
import random
import re
import socket
import statistics
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from qualgate.sandbox import Ended, Limits, Sandbox, SandboxFailed, probe, tiers
from qualgate.scoring.code import METRIC, score_code
from tests.verification.escapes.hostile import ESCAPES, FORGERIES, FORGERY_TESTS, HONEST, HONEST_TESTS, TRIES
from tests.verification.goals import SANDBOX, SCORING

SECRET = "SECRET-OF-THE-HOST"


def rows(quick: bool, data: Path) -> list[dict[str, Any]]:
    """The goal rows. data: the folder that holds humaneval/ and mbpp/. quick: slices, which meet no goal."""
    sandbox = Sandbox.best()
    if sandbox is None:
        return [_row(id, None, reason=str(probe())) for id in SANDBOX]
    part = "a slice only" if quick else None
    found = [_escape_row(sandbox, count, part) for count in (1, 8, 32)]
    found.append(_overhead_row(sandbox, 5 if quick else 40, part))
    found.append(_mutants_row(sandbox, 100 if quick else 10_000, part))
    tried = tuple(FORGERIES)[:: 8 if quick else 1]
    forged = forgeries(sandbox, tried)
    found.append(_row("forgeries", f"{len(forged)} of {len(tried)} accepted", met=not forged, reason=part))
    step = 20 if quick else 1
    for name, path in (("humaneval", "humaneval/HumanEval.jsonl"), ("mbpp", "mbpp/mbpp.jsonl")):
        if not (data / path).exists():
            found += [_row(id, None, reason=f"no {path}") for id in SANDBOX if id.startswith(name)]
            continue
        read = [json.loads(line) for line in (data / path).read_text(encoding="utf-8").splitlines()][::step]
        failed = [row["task_id"] for row in read if not score_code(row, solution(row), sandbox=sandbox)[METRIC].verdict]
        said = f"{len(read) - len(failed)} of {len(read)} pass"
        found.append(_row(f"{name}.reference", said, met=not failed, reason=part))
        if name == "humaneval":
            faults = [fault for row in read for fault in broken(row, sandbox, random.Random(row["task_id"]))]
            found.append(
                _row("humaneval.broken", f"{len(faults)} misjudged: {faults[:3]}", met=not faults, reason=part)
            )
    return sorted(found, key=lambda row: list(SANDBOX).index(row["id"]))


def _row(
    id: str, measured: Any, *, met: bool | None = None, spread: Any = None, reason: str | None = None
) -> dict[str, Any]:
    return SCORING.row(id, measured, spread=spread, met=met, unmet_because=None if met is False else reason)


def _escape_row(sandbox: Sandbox, at_once: int, part: str | None) -> dict[str, Any]:
    faults = escapes(sandbox, at_once, names=tuple(ESCAPES)[:: 4 if part else 1], mutants=8 if part else 8 * at_once)
    return _row(f"escape.{at_once}", f"{len(faults)} faults: {faults[:3]}", met=not faults, reason=part)


def _mutants_row(sandbox: Sandbox, count: int, part: str | None) -> dict[str, Any]:
    if sandbox.tier.name != "A":
        return _row(
            "escape.mutants", None, reason="in tier B, which starts no processes, each takes a sandbox: escape.8"
        )
    tight = replace(sandbox, limits=replace(sandbox.limits, memory_bytes=2**28))
    faults: list[str] = []
    with ground() as (place, changed):
        for at in range(0, count, 50):
            faults += mutants(range(at, at + 50), tight, place)[1]
    faults += changed
    return _row("escape.mutants", f"{len(faults)} faults: {faults[:3]}", met=not faults, reason=part)


# -------------------------------------------------------------------------------------------- the escape suite


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What hostile programs reach for: a writable folder, listeners, this process, and a secret everywhere."""

    folder: str
    marker: str  # pid of this process - random - port


@contextmanager
def ground() -> Iterator[tuple[Ground, list[str]]]:
    """The ground, and a list that holds, after the with, everything that changed on it."""
    changed: list[str] = []
    descriptors = len(os.listdir("/proc/self/fd"))
    with (
        tempfile.TemporaryDirectory(prefix="qualgate-ground-") as folder,
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as path,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as abstract,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as abstract_datagrams,
    ):
        tcp.bind(("127.0.0.1", 0))
        udp.bind(("127.0.0.1", tcp.getsockname()[1]))
        marker = f"{os.getpid()}-{uuid.uuid4().hex}-{tcp.getsockname()[1]}"
        path.bind(f"{folder}/socket")
        abstract.bind(f"\0{marker}")
        datagrams.bind(f"{folder}/datagrams")
        abstract_datagrams.bind(f"\0{marker}-datagrams")
        for listener in (tcp, path, abstract):
            listener.listen()
        canary = Path(folder, "canary")
        canary.write_text(SECRET)
        for changeable in (folder, canary, f"{folder}/socket", f"{folder}/datagrams"):
            os.chmod(changeable, 0o777)
        before = _tree(folder)
        os.environ["QUALGATE_CANARY"] = SECRET
        try:
            yield Ground(folder=folder, marker=marker), changed
        finally:
            del os.environ["QUALGATE_CANARY"]
            changed += ["S3: the host's files changed"] if _tree(folder) != before else []
            listeners = {"tcp": tcp, "udp": udp, "unix": path, "abstract": abstract}
            for name, listener in (listeners | {"datagrams": datagrams, "abstract 2": abstract_datagrams}).items():
                listener.setblocking(False)
                try:
                    listener.recv(1) if listener.type == socket.SOCK_DGRAM else listener.accept()
                    changed.append(f"S5: {name} was reached")
                except BlockingIOError:
                    pass
            changed += [f"S11: process {pid} is left" for pid in _marked(marker)]
    if len(os.listdir("/proc/self/fd")) > descriptors:  # fewer: something of before was collected meanwhile
        changed.append(f"descriptors: {descriptors} before, {len(os.listdir('/proc/self/fd'))} after")


def _tree(folder: str) -> list[tuple[str, int, int, int]]:
    paths = [folder, *(str(path) for path in sorted(Path(folder).rglob("*")))]
    return [(path, at.st_mode, at.st_size, at.st_mtime_ns) for path in paths for at in [os.lstat(path)]]


def _marked(marker: str) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        try:
            if (
                name.isdigit()
                and int(name) != os.getpid()
                and marker.encode() in Path("/proc", name, "cmdline").read_bytes()
            ):
                found.append(int(name))
        except OSError:
            continue
    return found


def escapes(
    sandbox: Sandbox, at_once: int, *, names: Sequence[str] = tuple(ESCAPES), mutants: int = 0, wall: int = 0
) -> list[str]:
    """Every fault of the suite run `at_once`: hostile programs, forgeries (S12), their mutants (S16) and, beside them,
    honest programs (S17), which must not notice. wall: seconds that a hostile one may wait, 0: by `at_once`."""
    tight = Limits(cpu_seconds=2, wall_seconds=wall or max(4, 2 * at_once), memory_bytes=2**28)
    tight = replace(sandbox, limits=tight)
    honest = {name: text for name, text in HONEST.items() if sandbox.tier.name == "A" or "fork" not in text}
    patient = replace(sandbox, limits=replace(sandbox.limits, wall_seconds=60 + 10 * at_once))
    with ground() as (place, changed), ThreadPoolExecutor(at_once) as pool:
        waiting = []
        for name in names if at_once == 1 else (*names, *names):
            waits = "timeout" in ESCAPES[name][1]  # the others end by themselves, however busy the machine
            limits = tight.limits if waits else replace(tight.limits, wall_seconds=patient.limits.wall_seconds)
            waiting.append(pool.submit(attempt, name, replace(sandbox, limits=limits), place))
        waiting += [pool.submit(_honest, name, text, patient) for name, text in honest.items()]
        waiting += [pool.submit(_secret_test, patient)]
        waiting += [pool.submit(_mutant, seed, tight, place) for seed in range(mutants)]
        if at_once > 1:
            waiting += [pool.submit(forgeries, patient, (name,)) for name in tuple(FORGERIES)[::5]]
        faults = [fault for task in waiting for fault in task.result()]
    return faults + changed


def attempt(name: str, sandbox: Sandbox, place: Ground) -> list[str]:
    """The faults of one program of the suite."""
    text, may_end_by = ESCAPES[name]
    return _attacked(name, text, may_end_by, sandbox, place)


def _attacked(name: str, text: str, may_end_by: tuple[str, ...] | None, sandbox: Sandbox, place: Ground) -> list[str]:
    """may_end_by None: anything but a changed host, a secret or an overrun will do."""
    start, excused, ended, out = time.monotonic(), 0.0, "", ""
    try:
        with sandbox.interpreter() as inside:
            start = time.monotonic()
            try:
                reply = inside.ask({"op": "load", "args": [TRIES + text, []]})
                if "raised" not in reply:
                    reply = inside.ask({"op": "call", "name": "attack", "args": [place.folder, place.marker]})
                out = json.dumps(reply)
                ended = (
                    reply["raised"][0] if "raised" in reply else "" if reply.get("value") == ["l"] else f"did {reply}"
                )
            except Ended as error:
                ended = error.error_type
            out += inside.output
            excused = inside.paused + inside.starved
            if len(inside.output) > 4 * sandbox.limits.output_bytes:
                return [f"{name}: {len(inside.output)} characters of output kept"]
    except SandboxFailed as error:
        return [f"{name}: {error}"]
    over = time.monotonic() - start - excused - sandbox.limits.wall_seconds
    faults = [f"{name}: {over:.1f} s over its wall time"] if over > _crowd() else []
    faults += [f"{name}: a secret came out"] if SECRET in out else []
    if may_end_by is not None and ended and ended not in may_end_by:
        faults.append(f"{name}: {ended[:200]}")
    return faults


def _crowd() -> float:
    """How many threads of this machine want each of its CPUs, at least 1: what takes a second alone takes as many."""
    running = Path("/proc/loadavg").read_text().split()[3].partition("/")[0]
    return max(1.0, int(running) / (os.cpu_count() or 1), os.getloadavg()[0] / (os.cpu_count() or 1))


def _honest(name: str, text: str, sandbox: Sandbox) -> list[str]:
    score = score_code({"tests": HONEST_TESTS, "entry_point": "f"}, text, sandbox=sandbox)[METRIC]
    return [] if score.verdict else [f"S17 {name}: {score.error_type} {score.reason}"]


def _secret_test(sandbox: Sandbox) -> list[str]:
    """S13: what is expected is nowhere inside, however the program looks for it."""
    expected = uuid.uuid4().hex
    names = ("a search of memory", "a search of files", "a search of the command line", "reading ahead")
    faults = []
    for name in names:
        text = FORGERIES[name].replace("return 10 if b'10' in held else 0", "return held.decode(errors='replace')")
        tests = f"assert f(1) == {expected!r}\nassert {expected!r} not in str(f(2)) or f(3) == {expected!r}"
        score = score_code({"tests": tests, "entry_point": "f"}, text, sandbox=sandbox)[METRIC]
        if score.verdict or expected in score.reason.replace(f"'{expected}'", ""):
            faults.append(f"S13 {name}: it found what the tests expect")
    return faults


def _mutant(seed: int, sandbox: Sandbox, place: Ground) -> list[str]:
    return _attacked(f"S16 seed {seed}", _mutated(seed), None, sandbox, place)


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
                    args = [["l", *map(_mutated, left)], place.folder, place.marker, ["f", seconds.hex()]]
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


def _mutated(seed: int) -> str:
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


# -------------------------------------------------------------------------------------- forgeries and real rows


def forgeries(sandbox: Sandbox, names: Sequence[str] = tuple(FORGERIES)) -> list[str]:
    """The forgeries that were not called wrong, against every kind of test."""
    accepted = []
    for name in names:
        for kind, tests in FORGERY_TESTS.items():
            score = score_code({"tests": tests, "entry_point": "f"}, FORGERIES[name], sandbox=sandbox)[METRIC]
            if score.verdict is not False:
                accepted.append(f"{name}, {kind}: {score.verdict} {score.error_type}")
    return accepted


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


# -------------------------------------------------------------------------------------------------- overhead


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One sample, sandboxed less plain."""

    wall: float  # seconds
    busy: float  # CPUs of this machine at work meanwhile, ours among them

    @property
    def quiet(self) -> bool:
        """Whether there was a CPU for us: what is measured runs one process after the other."""
        return self.busy <= max(1.05, (os.cpu_count() or 1) - 0.7)


def _overhead_row(sandbox: Sandbox, count: int, part: str | None) -> dict[str, Any]:
    """The median wall time of `count` pairs taken while the machine was quiet, which may not come."""
    pairs: list[Pair] = []
    while sum(pair.quiet for pair in pairs) < count and len(pairs) < 10 * count:
        pairs.append(overhead(sandbox))
    walls = sorted(1000 * pair.wall for pair in pairs if pair.quiet)
    if len(walls) < count:
        reason = f"{len(walls)} of {len(pairs)} pairs found the machine quiet, {count} are needed"
        return _row("sandbox.overhead", None, reason=part or reason)
    median = statistics.median(walls)
    spread = [round(walls[count // 10]), round(walls[-1 - count // 10])]
    return _row("sandbox.overhead", round(median, 1), met=median <= 40, spread=spread, reason=part)


def overhead(sandbox: Sandbox) -> Pair:
    """Sandboxed: score_code of a one-line function against one assert, to its verdict and clean-up. Plain: the same
    Python (same options) started as a process with function and assert as its program."""
    text, tests = "def f(x):\n    return x + 1\n", "assert f(1) == 2"
    command = [*tiers.program(), text + tests]
    start, busy = time.perf_counter(), _busy()
    subprocess.run(command, env={}, check=True, stdin=subprocess.DEVNULL)
    middle = time.perf_counter()
    assert score_code({"tests": tests, "entry_point": "f"}, text, sandbox=sandbox)[METRIC].verdict
    end = time.perf_counter()
    return Pair(wall=(end - middle) - (middle - start), busy=(_busy() - busy) / (end - start))


def _busy() -> float:
    """CPU seconds that this machine has spent on anything, in user and kernel mode."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
