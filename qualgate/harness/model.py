"""`lm_eval --model qualgate --model_args pretrained=FOLDER,quantize=int4`: our engine behind lm-eval's tasks.

Texts, log-likelihoods and tokenization equal those of lm-eval's own `hf` model on the same weights. The engine differs:
packed weights, our kernels, and batches in which a row's result does not depend on its neighbours.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model

from qualgate.engine import loglikelihood_windows
from qualgate.engine.answers import Answers
from qualgate.engine.chat_template import render_chat
from qualgate.engine.choice import open_engine
from qualgate.engine.loglikelihood import read_windows, weighed
from qualgate.engine.prompts import LONGEST_WINDOW
from qualgate.engine.request import Request
from qualgate.engine.sampling import Draws, noise_numbers
from qualgate.engine.schedule import Limits
from qualgate.engine.stopping import Stops
from qualgate.errors import InfrastructureError, UsageError
from qualgate.harness.generation import Generation, generation_settings
from qualgate.records import GREEDY, ArmSpec, Window

DTYPES = ("bfloat16", "float16", "float32")
BATCH = 64  # rows generated or read together
SAMPLING = {**GREEDY.content, "seed": 0, "repeats": 1}


@register_model("qualgate")
class QualgateLM(LM):
    """One arm as a model for lm-eval. Tasks may sample with temperature, top-k, top-p and min-p."""

    def __init__(
        self,
        pretrained: str = "reference",
        quantize: str | dict[str, Any] | None = None,
        dtype: str = "auto",
        kernels: str = "fused",
        cache_dir: str | None = None,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        device: str | None = None,
        seed: int = 0,
    ) -> None:
        """pretrained: a model folder, quantized or not, or `reference`. quantize: a recipe as in a gate file, by name
        or as JSON. dtype: of the unquantized weights; auto: that of the folder's config, as in lm-eval's hf model, else
        float32. kernels: fused or torch. cache_dir: folder for packed weights. batch_size: rows per batch; 64 if absent
        or `auto`. seed: of the noise for sampling.
        """
        from qualgate import refmodel
        from qualgate.engine.device import choose_device
        from qualgate.engine.load import load_arm
        from qualgate.quant.recipes import parse_recipe

        super().__init__()
        if dtype not in ("auto", *DTYPES):
            raise UsageError(f"dtype {dtype!r}: not one of auto, {', '.join(DTYPES)}.")
        if kernels not in ("fused", "torch"):
            raise UsageError(f"kernels {kernels!r}: not one of fused, torch.")
        if device is not None and device.partition(":")[0] not in ("cpu", "cuda", "auto"):
            raise UsageError(f"device {device!r}: not one of auto, cpu, cuda.")
        folder = refmodel.PATH if pretrained == "reference" else Path(pretrained)
        recipe = quantize
        if isinstance(recipe, str) and recipe.lstrip().startswith("{"):
            recipe = json.loads(recipe)
        spec = ArmSpec(
            name="lm_eval",
            model=str(folder),
            dtype=cast("Any", _stated_dtype(folder) if dtype == "auto" else dtype),
            quantize=parse_recipe(recipe) if recipe else None,
            kernels=cast("Any", kernels),
        )
        # lm-eval's default is cuda:0, used only if there is a GPU.
        chosen_device = "cpu" if device == "cpu" else choose_device("auto")
        self.arm = load_arm(spec, cache_dir or _cache(), SAMPLING, device=chosen_device)
        self.tokenizer = self.arm.tokenizer
        self._rows = max(1, int(batch_size)) if batch_size is not None and str(batch_size).isdigit() else BATCH
        self._device, self._seed = chosen_device, seed  # pyrefly: ignore[bad-override-mutable-attribute]
        self.max_length = self.arm.context_length or LONGEST_WINDOW
        self._folder = folder

    # ------------------------------------------------------------------------------------------- requests

    def generate_until(self, requests: list[Any]) -> list[str]:
        """Return the answers, without the text that ended them. UsageError for unsupported settings."""
        prompts = [self._generation(*request.args) for request in requests]
        texts = [""] * len(prompts)
        names = _numbered([json.dumps(request.args, sort_keys=True, default=str) for request in requests])
        stops = Stops(self.tokenizer, [generation.until for _, generation in prompts])
        with open_engine(self.arm.model, self.arm.choice, limits=Limits(sequences=self._rows)) as engine:
            for sampling in dict.fromkeys(generation.sampling for _, generation in prompts):
                indices = [index for index, (_, generation) in enumerate(prompts) if generation.sampling == sampling]
                draws = None
                if sampling.drawn:
                    cases = noise_numbers([names[index] for index in indices], torch.device("cpu"))
                    draws = Draws(seed=self._seed, cases=cases, sampling=sampling)
                answers = Answers(len(indices))
                engine.run([self._request(prompts[index], stops, index) for index in indices], None, answers, draws)
                if answers.broken:
                    raise InfrastructureError(f"{self._folder}: the model's logits are NaN or infinite.")
                for row, index in enumerate(indices):
                    tokens = answers.tokens[row]  # their last one is the stop token if that ended the answer
                    texts[index] = stops.text(index, tokens[:-1] if answers.reasons[row] == "eos" else tokens)
                    self.cache_hook.add_partial("generate_until", requests[index].args, texts[index])
        return texts

    def _request(self, prompt: tuple[tuple[int, ...], Generation], stops: Stops, index: int) -> Request:
        """Return the engine's request for one prompt. index: of the prompt in `stops`, which see its text grow."""
        token_ids, generation = prompt
        return Request(
            prompt=token_ids,
            max_new_tokens=generation.limit,
            stop_ids=frozenset(self.arm.stop_ids),
            stops=partial(stops.reached, index) if stops.watches(index) else None,
        )

    def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
        """Return (log-likelihood in nats, whether greedy decoding gives it) of each (context, continuation)."""
        windows = [
            (self._fitting(loglikelihood_windows.continuation_window(self.tokenizer, *request.args)),)
            for request in requests
        ]
        answers = self._weigh(windows)
        for request, answer in zip(requests, answers, strict=True):
            self.cache_hook.add_partial("loglikelihood", request.args, answer)
        return answers

    def loglikelihood_rolling(self, requests: list[Any]) -> list[float]:
        """Return the log-likelihood in nats of each whole text, read in windows of the context length."""
        windows = [
            loglikelihood_windows.rolling_windows(self.tokenizer, request.args[0], self.max_length)
            for request in requests
        ]
        answers = [likelihood for likelihood, _ in self._weigh(windows)]
        for request, answer in zip(requests, answers, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, answer)
        return answers

    def _weigh(self, texts: Sequence[tuple[Window, ...]]) -> list[tuple[float, bool]]:
        """Return (log-likelihood in nats, whether greedy decoding gives it) of each text, whose windows are read
        together."""
        windows = [window for text in texts for window in text]
        with open_engine(self.arm.model, self.arm.choice, limits=Limits(sequences=self._rows)) as engine:
            weighed_windows = read_windows(engine, windows)
        if not all(window.finite for window in weighed_windows):
            raise InfrastructureError(f"{self._folder}: the model's logits are NaN or infinite.")
        remaining = iter(weighed_windows)
        return [weighed([next(remaining) for _ in text]) for text in texts]

    def _generation(self, context: str, settings: dict[str, Any]) -> tuple[tuple[int, ...], Generation]:
        """Return the context's tokens, and the settings of its answer."""
        generation = generation_settings(settings)
        token_ids = loglikelihood_windows.encoded(self.tokenizer, context)
        if generation.limit >= self.max_length:
            raise UsageError(
                f"max_gen_toks {generation.limit} leaves no room for a prompt in a context of {self.max_length}"
            )
        if not token_ids:
            raise UsageError("a prompt without a token cannot be answered")
        # Cut on the left, as lm-eval's hf model does.
        return token_ids[-(self.max_length - generation.limit) :], generation

    def _fitting(self, window: Window) -> Window:
        """Cut a window on the left to fit the context, as lm-eval's hf model does."""
        before, after = window
        if len(after) > self.max_length:
            raise UsageError(f"a continuation of {len(after)} tokens does not fit a context of {self.max_length}")
        return before[-(self.max_length + 1 - len(after)) :], after

    # ------------------------------------------------------------------------------------- what lm-eval asks

    @property
    def tokenizer_name(self) -> str:
        """The key of lm-eval's request cache."""
        return str(self._folder).replace("/", "__")

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """Return the folder's template, whatever name is requested; None if it has none or none is requested."""
        template = self.tokenizer.chat_template
        return template if chat_template and isinstance(template, str) else None

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Render a conversation as text, open for an answer or for the continuation of its last message."""
        return render_chat(self.tokenizer, chat_history, answers=add_generation_prompt)

    def get_model_info(self) -> dict[str, Any]:
        """Return what lm-eval writes beside its results: weights, arithmetic, and the format of keys and values."""
        return {
            "model_dtype": self.arm.spec.weights_label,
            "model_sha": self.arm.identity.weights,
            "qualgate_engine": self.arm.identity.engine,
            "qualgate_kernel": self.arm.kernel,
            "qualgate_kv_cache": self.arm.identity.kv_cache or "float32",
        }


def _numbered(names: Sequence[str]) -> list[str]:
    """Number equal requests as repeats: lm-eval sends a request as often as its task has `repeats`."""
    counts: Counter[str] = Counter()
    numbered = []
    for name in names:
        numbered.append(f"{name}\0{counts[name]}")
        counts[name] += 1
    return numbered


def _stated_dtype(folder: Path) -> str:
    """Return the dtype that a folder's config states, else float32. UsageError for one that the engine lacks."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        stated = config.get("dtype") or config.get("torch_dtype") or "float32"
    except (OSError, ValueError, AttributeError):
        return "float32"  # loading the folder reports its fault
    if stated not in DTYPES:
        raise UsageError(f"{folder}/config.json says dtype {stated!r:.60}; give dtype={', '.join(DTYPES)} yourself")
    return stated


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qualgate" / "packed"
