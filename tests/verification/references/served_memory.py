"""What a bfloat16 baseline holds when it answers as served, beside its file and beside what is counted for it.

python -m tests.verification.references.served_memory FOLDER: a process of its own says it as JSON.
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
from tests.benchmarks import peaks

LAYERS, NEW_TOKENS = 32, 16


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
    found = []
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "model"
        size = peaks.write_model(folder, num_hidden_layers=LAYERS)
        for _ in range(rounds):
            command = [sys.executable, "-m", "tests.verification.references.served_memory", str(folder)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"{' '.join(command)}: {done.stderr[-800:]}")
            found.append(replace(Held(**json.loads(done.stdout.splitlines()[-1])), file=size))
    return found


def main() -> None:
    """The child. What the first model brings along, libraries and their tables, is no part of the one that is measured,
    so a small one answers before."""
    from tests.benchmarks.questions import MODEL, asked

    every = [one for kind in asked(1).values() for one in kind]
    prompts = [replace(one, max_new_tokens=NEW_TOKENS) for one in every]
    answered(MODEL, prompts)
    gc.collect()
    floor = peaks._resident("VmRSS")
    loading, answering, counted = answered(Path(sys.argv[1]), prompts)
    print(json.dumps(asdict(Held(loading=loading - floor, answering=answering - floor, counted=counted))))


def answered(folder: Path, prompts: Sequence[Prompt]) -> tuple[int, int, int]:
    """(the most that the process held while the model was loaded, and while it answered, what is counted for it)."""
    from qualgate.engine.load import load_arm
    from tests.benchmarks.ours import plain

    peaks._forget_peak()
    spec = ArmSpec(name="baseline", model=str(folder), arithmetic="served")
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
