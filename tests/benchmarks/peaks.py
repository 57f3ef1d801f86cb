"""What generation holds in memory: each way in a process of its own, with a model that is large beside its libraries.

python -m tests.benchmarks.peaks ours|generate FOLDER ROWS
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.questions import MODEL

SHAPE = {
    "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 16, "num_attention_heads": 16,
    "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 8192, "tie_word_embeddings": True,
}  # fmt: skip
"""188 million numbers: 376 MB in bfloat16."""
NEW_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Resident bytes of a process above what it held with its libraries imported. loading, answering: the most while it
    did; loaded: in between."""

    loading: int
    loaded: int
    answering: int

    @property
    def most(self) -> int:
        """At any time."""
        return max(self.loading, self.answering)


def write_model(out: Path, **other: int) -> int:
    """A random bfloat16 Llama of SHAPE, but for what is `other`, in folder `out`; bytes of its weights' file."""
    import shutil

    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(MODEL)
    for key, value in {**SHAPE, **other}.items():
        setattr(config, key, value)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    shutil.copytree(MODEL, out, ignore=shutil.ignore_patterns("*.safetensors", "*.md", "config.json"))
    model.save_pretrained(out)
    return (out / "model.safetensors").stat().st_size


def peak(way: str, folder: Path, rows: int) -> Peak:
    """Of `way`, "ours" or "generate": so many prompts of the shipped sets, all at once. RuntimeError where it fails."""
    command = [sys.executable, "-m", "tests.benchmarks.peaks", way, str(folder), str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{way}: {done.stderr[-800:]}")
    return Peak(**json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """The child."""
    way, folder, rows = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    from dataclasses import replace

    import transformers.models.llama.modeling_llama  # noqa: F401  what a load would import is no part of a model

    from tests.benchmarks import ours, peers
    from tests.benchmarks.questions import asked

    every = [one for kind in asked(-(-rows // 7)).values() for one in kind][:rows]
    prompts = {"all": [replace(one, max_new_tokens=NEW_TOKENS) for one in every]}
    floor = _resident("VmRSS")
    _forget_peak()
    if way == "ours":
        arm = ours.load("baseline", folder, folder / "cache")
        answer = ours.plain(arm, prompts).answer
    else:
        model = peers.load_transformers(folder)
        answer = peers.Transformers(model, (), prompts).at("generate", {"all": rows}).answer
    loading, loaded = _resident("VmHWM"), _resident("VmRSS")
    _forget_peak()
    answer("all")
    found = {"loading": loading, "loaded": loaded, "answering": _resident("VmHWM")}
    print(json.dumps({name: size - floor for name, size in found.items()}))


def _resident(key: str) -> int:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status[key].split()[0]) * 1024


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins at what is resident now


if __name__ == "__main__":
    main()
