"""What a model holds when it answers, beside its file and beside what is counted for it.

python -m tests.verification.references.served_memory FOLDER OPTIONS: a process of its own says it as JSON.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from qualgate.records import ArmSpec, Prompt
from qualgate.records.arms import Arithmetic
from tests.benchmarks import peaks

LAYERS, NEW_TOKENS, SETS = 32, 16, 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Bytes. loading, answering: the most above the libraries at either time; counted: weights, and keys and values of
    every token that is held at once; file: its weights' on disk."""

    loading: int
    answering: int
    counted: int
    file: int = 0

    @property
    def to_file(self) -> float:
        """The peak, to the file."""
        return max(self.loading, self.answering) / self.file

    @property
    def off(self) -> float:
        """How far what is counted is from what was held while it answered, as a share of that."""
        return abs(self.counted / self.answering - 1)


def held(rounds: int) -> list[Held]:
    """Of a random model of 738 MB, asked a prompt of each shipped set at once; each round in a process of its own.

    RuntimeError where one fails.
    """
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "model"
        size = peaks.write_model(folder, num_hidden_layers=LAYERS)
        return [replace(held_by(folder), file=size) for _ in range(rounds)]


def held_by(folder: Path, *, arithmetic: Arithmetic = "served", rows: int = SETS, recipe: object = None) -> Held:
    """Of the model in `folder`, asked so many prompts of the shipped sets at once, in a process of its own.

    recipe: as in a gate file, packed there; None runs the folder as it is. RuntimeError where the process fails.
    """
    options = {"arithmetic": arithmetic, "rows": rows, "recipe": recipe}
    module = "tests.verification.references.served_memory"
    command = [sys.executable, "-m", module, str(folder), json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-800:]}")
    return Held(**json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """The child. What the first model brings along, libraries and their tables, is no part of the one that is measured,
    so a small one answers before."""
    from qualgate.quant.recipes import parse_recipe
    from tests.benchmarks.questions import MODEL, asked

    options = json.loads(sys.argv[2])
    recipe = options["recipe"] and parse_recipe(options["recipe"])
    rows = options["rows"]
    every = [one for kind in asked(-(-rows // SETS)).values() for one in kind][:rows]
    prompts = [replace(one, max_new_tokens=NEW_TOKENS) for one in every]
    spec = ArmSpec(name="baseline", model=str(MODEL), quantize=recipe, arithmetic=options["arithmetic"])
    answered(spec, prompts)
    gc.collect()
    floor = peaks._resident("VmRSS")
    loading, answering, counted = answered(replace(spec, model=sys.argv[1]), prompts)
    print(json.dumps(asdict(Held(loading=loading - floor, answering=answering - floor, counted=counted))))


def answered(spec: ArmSpec, prompts: Sequence[Prompt]) -> tuple[int, int, int]:
    """(the most that the process held while the model was loaded, and while it answered, what is counted for it)."""
    from qualgate.engine.load import load_arm
    from tests.benchmarks.ours import plain

    peaks._forget_peak()
    with tempfile.TemporaryDirectory() as cache:
        arm = load_arm(spec, cache, {}, device="cpu")
        loading = peaks._resident("VmHWM")
        peaks._forget_peak()
        plain(arm, {"all": prompts}).answer("all")
    tokens = sum(len(one.token_ids) + one.max_new_tokens for one in prompts)
    counted = int(arm.footprint.facts["memory.weights"]) + tokens * arm.choice.position_bytes
    return loading, peaks._resident("VmHWM"), counted


if __name__ == "__main__":
    main()
