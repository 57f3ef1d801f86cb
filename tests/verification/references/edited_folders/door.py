"""The front door: what `qualgate plan` and the loading of a run say about a folder, in this process."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers.initialization import no_init_weights

from qualgate.config import load_gate_file
from qualgate.engine.load import load_arm
from qualgate.engine.quantized import load_quantized
from qualgate.errors import Exit, UsageError
from qualgate.pipeline.plan import make_plan
from qualgate.quant.model_folder import read_folders
from qualgate.records import Plan
from tests.command_line import qualgate
from tests.gated_model import write_evalset
from tests.verification.references.edited_folders.adapters import merged
from tests.verification.references.edited_folders.made import Folder, decoded, plain

GATE = """\
version: 1
baseline: {{model: ./{base}, dtype: float32}}
variants:
  v: {{{variant}, dtype: float32{more}}}
evalsets: [./echo.yaml]
gate:
  max_unfinished: 1.0
  rules:
    - {{metric: exact_match, max_drop: 0.10}}
    - {{metric: drift.kl_mean, max: 0.5, tier: critical}}
store: sqlite:///qualgate.db
workers: {{backend: local, count: 1}}
"""
IDS = torch.tensor([[1, 20, 41, 99, 300, 5, 701, 640, 12, 88, 2, 1, 33, 250, 760, 9]])


@cache
def baseline(tied: bool = False) -> Folder:
    """The folder that variants are held against; not to be edited."""
    return plain(tied)


@dataclass(frozen=True, slots=True)
class Answer:
    """outcome: "refused" (a UsageError), "traceback" (any other error) or "accepted"; message: the error's text, or
    the notes that a plan gives."""

    outcome: str
    message: str
    plan: Plan | None = None

    @property
    def judged(self) -> tuple[Any, ...]:
        """What the variant is asked, and what ends its answers, template and tokens included."""
        assert self.plan is not None
        jobs = [job for job in self.plan.jobs if job.arm.name == "v"]
        return tuple(prompt.token_ids for job in jobs for prompt in job.prompts), self.plan.identities["v"].sampling


class Door:
    """A user's folder of work: gate files over a baseline that is written once, and variants that come and go."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.left_out = ""
        self._bases: list[Folder] = []
        self._write_cases(1)

    def _write_cases(self, times: int) -> None:
        rows = [{"id": "a", "task": "echo", "prompt": "hello", "max_new_tokens": 4, "answer": "x"},
                {"id": "b", "task": "echo", "messages": [{"role": "user", "content": "ten cats"}],
                 "max_new_tokens": 4, "answer": "x"}]  # fmt: skip
        again = [{**row, "id": f"{row['id']}{time}", **({"prompt": f"hello {time}"} if "prompt" in row else {
                     "messages": [{"role": "user", "content": f"ten cats {time}"}]})}
                 for time in range(times) for row in rows]  # fmt: skip
        write_evalset(self.path, again)

    def gate_file(self, variant: Folder, base: Folder | None = None, more: str = "") -> Path:
        """Write both folders, and a gate file that names them."""
        base = base or baseline()
        if not any(base is one for one in self._bases):
            base.write(self.path / f"base-{len(self._bases)}")
            self._bases.append(base)
        key = f"base-{next(at for at, one in enumerate(self._bases) if one is base)}"
        variant.write(self.path / "variant")
        named = f"model: ./{key}, adapter: ./variant" if variant.format == "adapter" else "model: ./variant"
        file = self.path / "gate.yaml"
        file.write_text(GATE.format(base=key, variant=named, more=more))
        return file

    def ask(self, variant: Folder, base: Folder | None = None, more: str = "") -> Answer:
        """What planning says of the variant beside this baseline, and loading where planning accepts it."""
        file = self.gate_file(variant, base, more)
        notes: list[str] = []
        try:
            with no_init_weights():  # drawing numbers that are never looked at takes half of the time
                plan = make_plan(load_gate_file(file), tell=notes.append)
        except UsageError as error:
            return Answer("refused", str(error).replace(str(self.path), "").replace("/variant", "VARIANT"))
        except Exception as error:
            return Answer("traceback", f"{type(error).__name__}: {error}")
        return Answer("accepted", "\n".join(notes), plan)

    def shown(self) -> str:
        """What `qualgate plan` prints of the gate file written last, errors and notes included."""
        done = qualgate("plan", "gate.yaml", cwd=self.path)
        return done.stdout + done.stderr

    def verdict(self) -> tuple[str, str]:
        """The exit of `qualgate run` of the gate file written last, as a word, and the variant's reasons."""
        (self.path / "qualgate.db").unlink(missing_ok=True)
        self._write_cases(40)
        done = qualgate("run", "gate.yaml", "--json", cwd=self.path)
        self._write_cases(1)
        words = {Exit.APPROVE: "accepted", Exit.BLOCK: "blocked", Exit.USAGE: "refused"}
        if not done.stdout.startswith("{"):
            return words.get(Exit(done.returncode), "traceback"), done.stderr
        (verdict,) = json.loads(done.stdout)["verdicts"]
        said = json.dumps([verdict["cause"], *verdict["reasons"]])
        return words.get(Exit(done.returncode), f"exit {done.returncode}"), said

    def logits(self, plan: Plan, *, alone: bool = False) -> torch.Tensor | str:
        """The variant's logits as a worker would compute them, or why it cannot be loaded. What loading leaves out, as
        a run's report has it, is in `left_out` then. alone: without the choice of an engine, which takes longest."""
        spec = next(arm for arm in plan.arms if arm.name == "v")
        try:
            folder = read_folders([spec])[spec.model]
            if alone and folder.format is not None:
                with no_init_weights():
                    model = load_quantized(folder, torch.float32).model.eval()
            else:
                arm = load_arm(spec, self.path, {}, device="cpu")
                model, self.left_out = arm.model, " ".join(arm.footprint.left_out)
            with torch.inference_mode():
                return model(IDS).logits
        except UsageError as error:
            return f"refused: {error}"
        except Exception as error:
            return f"traceback: {type(error).__name__}: {error}"


def truth(folder: Folder) -> torch.Tensor:
    """The logits that transformers computes with the weights that the folder means, and with its config."""
    from transformers import AutoConfig, AutoModelForCausalLM

    weights = merged(folder) if folder.format == "adapter" else decoded(folder)
    weights = {name: one for name, one in weights.items() if not name.endswith(("k_scale", "v_scale"))}
    said = plain().config if folder.format == "adapter" else folder.config
    said = {key: value for key, value in said.items() if key not in ("quantization_config", "dtype", "torch_dtype")}
    config = AutoConfig.for_model(**said)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    if config.tie_word_embeddings:
        weights.setdefault("lm_head.weight", weights["model.embed_tokens.weight"])
    model.load_state_dict(weights, strict=True)
    with torch.inference_mode():
        return model.eval()(IDS).logits


def theirs(path: Path) -> torch.Tensor | None:
    """The logits that transformers' own loading of a full-precision folder comes to; None where it raises."""
    from transformers import AutoModelForCausalLM

    try:
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, local_files_only=True)
    except Exception:  # whatever: no answer is one
        return None
    with torch.inference_mode():
        return model.eval()(IDS).logits


def divergence(one: torch.Tensor, other: torch.Tensor) -> float:
    """The mean KL of one's distributions from the other's, in nats; infinite where a number is none."""
    p, q = one.double().log_softmax(-1), other.double().log_softmax(-1)
    found = float((p.exp() * (p - q)).sum(-1).mean())
    return found if math.isfinite(found) else math.inf
