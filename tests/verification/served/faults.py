"""The row `faults`: twelve faults of servers, planted before our own, judged by whole runs; and sound pairs.

A fault is caught where the run does not end with 0, or its report names it; it is named where the report's own words
do. Of four sound pairs three are twins, of which nothing may be named, and one wavers a little, each side on its own.
"""

from __future__ import annotations

import json
import random
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from qualgate.errors import Exit
from qualgate.quant.recipes import parse_recipe
from qualgate.records import ArmSpec
from tests.command_line import qualgate
from tests.gated_model import write_evalset
from tests.served.server.answering import Answering
from tests.tiny_models import END, save_tiny_model
from tests.verification.goals import SERVED
from tests.verification.served import faulty
from tests.verification.served.faulty import Fault, answering, serving

ALPHA = 0.05
PLAIN, CALLED = 44, 12  # cases that are answered, and answered by a call
MOST = 16  # tokens
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
CHATS = "gate: {rules: [{metric: exact_match, max_drop: 0.10}]}\n"
DRAWN = "generation: {temperature: 0.8}\n" + CHATS
DRIFTS = (
    "gate: {noise_floor: false, rules: [{metric: exact_match, max_drop: 0.10}, {metric: drift.kl_mean, max: 0.0001}]}\n"
)
TOKENS = "gate: {noise_floor: false, rules: [{metric: exact_match, max_drop: 0.10}, {metric: parity.tokens, min: 1}]}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """arm: which engine answers; plant: a fresh fault; gate: the rules; named: words of the report, any of them."""

    name: str
    named: Sequence[str]
    arm: str = "sound"
    plant: Callable[[], Fault] = lambda: faulty.none
    gate: str = CHATS


PLANTED = (
    Planted(name="other weights", arm="other", gate=DRIFTS, named=("drift.kl_mean",)),
    Planted(name="another quantization", arm="int4", gate=DRIFTS, named=("drift.kl_mean",)),
    Planted(name="fp8 keys and values", arm="fp8", gate=DRIFTS, named=("drift.kl_mean",)),
    Planted(name="another template", plant=lambda: faulty.another_template, named=("another chat template",)),
    Planted(name="tool parser off", plant=lambda: faulty.parser_off, named=("its tool parser is off",)),
    Planted(name="temperature ignored", plant=lambda: faulty.draws_always, named=("does not say the same twice",)),
    Planted(name="silently greedy", plant=lambda: faulty.draws_never, gate=DRAWN, named=("ignores `temperature`",)),
    Planted(name="context truncated", plant=faulty.Cut, named=("reads a long prompt in part",)),
    Planted(name="stop texts ignored", plant=lambda: faulty.stops_never, named=("it ignores `stop`",)),
    Planted(name="a stale cache", plant=faulty.Cached, named=("it answers different questions alike",)),
    Planted(name="answers of others", plant=faulty.Crossed, named=("the answer to another one",)),
    Planted(name="speculation that changes answers", plant=faulty.Misdrafted, gate=TOKENS, named=("parity.tokens",)),
)


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rounds and the row: 12 faults in 5 models each and 100 sound pairs. quick: of one model 3 faults and a pair."""
    rounds: list[dict[str, Any]] = []
    models, pairs = (1, 1) if quick else (5, 20)
    for seed in range(models):
        with tempfile.TemporaryDirectory() as folder, trying(Path(folder), seed) as bench:
            of_model = PLANTED[3::4] if quick else PLANTED
            rounds += [{"seed": seed, **asdict(bench.judged(one))} for one in of_model]
            rounds += [{"seed": seed, **asdict(bench.sound(number))} for number in range(pairs)]
    faults = [one for one in rounds if one["fault"]]
    sound = [one for one in rounds if not one["fault"]]
    caught = sum(one["caught"] for one in faults)
    named = sum(one["named"] for one in faults)
    blocked = sum(one["exit"] == Exit.BLOCK for one in sound)
    accused = sum(one["named"] for one in sound)
    told = {"faults": len(faults), "caught": caught, "named": named, "sound pairs": len(sound), "blocked": blocked,
            "accused of a fault": accused}  # fmt: skip
    met = named >= 0.95 * len(faults) and caught >= 0.95 * len(faults) and not accused and blocked <= ALPHA * len(sound)
    few = f"{len(faults)} faults and {len(sound)} sound pairs" if quick else None
    return rounds, [SERVED.row("faults", told, met=met, few=few)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What a run said of a fault, "" for a sound pair."""

    fault: str
    exit: int
    caught: bool
    named: bool
    said: str


@contextmanager
def trying(folder: Path, seed: int) -> Iterator[Bench]:
    """A model drawn by the seed, four engines that answer with it or with what is made of it, and its cases."""
    model = save_tiny_model(
        folder / "model", seed=seed, context=8192, dtype="float32", eos_token_ids=[END, *range(0, 256, 9)]
    )
    other = save_tiny_model(folder / "other", seed=seed, context=8192, dtype="float32",
                            eos_token_ids=[END, *range(0, 256, 9)])  # fmt: skip
    weights = load_file(other / "model.safetensors")
    torch.manual_seed(seed)
    moved = {name: one + 0.05 * one.std() * torch.randn(one.shape) if one.dim() > 1 else one
             for name, one in weights.items()}  # fmt: skip
    save_file(moved, other / "model.safetensors", metadata={"format": "pt"})
    specs = {
        "sound": ArmSpec(name="sound", model=str(model), dtype="float32"),
        "other": ArmSpec(name="other", model=str(other), dtype="float32"),
        "int4": ArmSpec(name="int4", model=str(model), dtype="float32", quantize=parse_recipe("int4")),
        "fp8": ArmSpec(name="fp8", model=str(model), dtype="float32", kv_cache="fp8"),
    }
    with ExitStack() as stack:
        engines = {name: stack.enter_context(answering(spec, folder / "cache")) for name, spec in specs.items()}
        bench = Bench(folder, engines, str(model))
        bench.write_cases(seed)
        yield bench


class Bench:
    """Runs of one model's servers."""

    def __init__(self, folder: Path, engines: dict[str, Answering], root: str) -> None:
        self._folder, self._engines, self._root = folder, engines, root

    def judged(self, planted: Planted) -> Judged:
        """A run of the sound server against one with the fault."""
        with (
            serving(self._engines["sound"], faulty.none, self._root) as one,
            serving(self._engines[planted.arm], planted.plant(), self._root) as other,
        ):
            code, said = self._run(one, other, planted.gate)
        by_rule = planted.gate in (DRIFTS, TOKENS)  # whose report has the rule's name whatever came of it
        named = any(words in said for words in planted.named) and (code == Exit.BLOCK or not by_rule)
        caught = named or code != Exit.APPROVE
        return Judged(fault=planted.name, exit=code, caught=caught, named=named, said="" if named else said[-1500:])

    def sound(self, number: int) -> Judged:
        """A run of two sound servers, of every four one of two that waver; by all kinds of rules."""
        share, gate = ((0.0, CHATS), (3.0, CHATS), (0.0, DRIFTS), (0.0, TOKENS))[number % 4]
        noises = [faulty.Noisy(share, random.Random(f"{self._root} {number} {side}")) for side in range(2)]
        with (
            serving(self._engines["sound"], noises[0], self._root) as one,
            serving(self._engines["sound"], noises[1], self._root) as other,
        ):
            code, said = self._run(one, other, gate)
        words = [word for planted in PLANTED if planted.gate in (CHATS, DRAWN) for word in planted.named]
        named = not share and any(word in said for word in words)
        return Judged(fault="", exit=code, caught=code != Exit.APPROVE, named=named, said=said[-1500:] if named else "")

    def _run(self, one: str, other: str, gate: str) -> tuple[int, str]:
        tokens = ""
        if gate in (DRIFTS, TOKENS):
            tokens = ", tokenizer: ./model, engine: vllm" + (", prompt_logprobs: 4" if gate == DRIFTS else "")
        (self._folder / "gate.yaml").write_text(
            f"version: 1\nbaseline: {{endpoint: '{one}', model: m, stream: false{tokens}}}\n"
            f"variants: {{v: {{endpoint: '{other}', model: m, stream: false{tokens}}}}}\n"
            f"evalsets: [{'./texts.yaml' if tokens else './chats.yaml'}]\n{gate}"
            "workers: {count: 1}\nstore: sqlite:///qualgate.db\n"
        )
        (self._folder / "qualgate.db").unlink(missing_ok=True)
        done = qualgate("run", "gate.yaml", cwd=self._folder)
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    def write_cases(self, seed: int) -> None:
        """Chats, whose references are what the sound server says to them; and texts, without calls."""
        drawn, rows = random.Random(seed), list[dict[str, Any]]()
        with serving(self._engines["sound"], faulty.none, self._root) as address:
            while len(rows) < PLAIN + CALLED:
                if row := _case(address, drawn, len(rows)):
                    rows.append(row)
        write_evalset(self._folder, rows, "chats")
        write_evalset(self._folder, [row for row in rows if "tools" not in row], "texts")


def _case(address: str, drawn: random.Random, number: int) -> dict[str, Any] | None:
    """A question with the answer to it; None where that is cut off. Questions begin alike in fours."""
    begins = f"case {number // 4:03d} of them: "
    text = begins + "".join(drawn.choice("abcdefghijklmnopqrstuvwxyz ") for _ in range(drawn.randint(5, 30)))
    asked: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": MOST}
    row: dict[str, Any] = {"id": f"c-{number:03d}", "messages": asked["messages"], "max_new_tokens": MOST}
    if number >= PLAIN:
        row |= {"tools": [TOOL], "task": "calls"}
        answer = f'<tool_call>\n{{"name": "look", "arguments": {{"order": {json.dumps(text[-6:])}}}}}\n</tool_call>'
        return row | {"answer": answer}
    said, finish = _said(address, asked)
    if finish != "stop" or len(said.strip()) < 3:
        return None
    return row | {"task": "plain", "answer": said}


def _said(address: str, asked: dict[str, Any]) -> tuple[str, str]:
    request = urllib.request.Request(
        f"{address}/chat/completions", json.dumps(asked).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=3600) as reply:
        [choice] = json.load(reply)["choices"]
    return choice["message"]["content"], choice["finish_reason"]
