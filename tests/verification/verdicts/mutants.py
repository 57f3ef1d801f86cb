"""What `planted_runs` plants: defects of real arms of the reference model, and sound arms beside them.

A mutant is a change of the model's folder, a recipe, or a worker that does one thing wrong. Nothing here is a hook of
the product: whatever a worker does wrong is patched around the product's own functions, for the length of one job.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

from qualgate.errors import InfrastructureError, UsageError
from qualgate.records import TWIN, ArmSpec, Job, JobFailure, JobResult, QuantizeRecipe
from qualgate.refmodel import PATH
from qualgate.workers.pool import run_jobs
from qualgate.workers.unit import WorkerSettings

ANSWERS, CALLS = ("json_extract",), ("tool_calls",)  # evalsets of short answers
KV, PLAIN = "@kv", "@plain"  # arms without the part: no mutated cache, no draft

Outcome = JobResult | JobFailure


class Worker:
    """What `workers.unit.serve` does with a job, in this process."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings, self.arm = settings, None

    def load(self, spec: ArmSpec) -> None:
        from qualgate.engine.load import load_arm

        if self.arm is None or self.arm.spec != spec:
            sampling = self.settings.sampling
            self.arm = load_arm(spec, self.settings.cache_dir, sampling, device=self.settings.device)

    def run(self, job: Job) -> Outcome:
        from qualgate.engine.job import run_job

        try:
            self.load(job.arm)
            assert self.arm is not None
            return run_job(self.arm, job)
        except UsageError:
            raise
        except (InfrastructureError, RuntimeError) as error:
            keys = tuple(prompt.key for prompt in job.prompts)
            return JobFailure(index=job.index, arm=job.arm.name, keys=keys, error=str(error))


Serve = Callable[[Worker, Job], Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    what: str
    cause: str = ""  # the word for what is planted; "" = nothing is
    broken: bool = False  # an invariant is, whatever the answers are worth; else the answers of other seeds tell
    edit: Callable[[Path], None] | None = None  # of a copy of the model's folder
    recipe: QuantizeRecipe | None = None
    dtype: str = "bfloat16"
    serve: Serve = Worker.run
    witness: str = ""  # the arm beside it that lacks the part; runs by `serve_witness`
    serve_witness: Serve | None = None
    sets: tuple[str, ...] = ANSWERS


def folder_of(mutant: Mutant, into: Path) -> Path:
    """The model's folder: the shipped one, or a copy with the edit."""
    if mutant.edit is None:
        return PATH
    into.mkdir(parents=True)
    for file in PATH.iterdir():
        if file.suffix == ".safetensors":
            (into / file.name).symlink_to(file)  # replaced, never written through
        elif file.suffix in (".json", ".jinja"):
            shutil.copy(file, into / file.name)
    mutant.edit(into)
    return into


# --------------------------------------------------------------------------------------------- edits of the folder


def _tensor(name: str, change: Callable[[Any, Any], Any], seed: int = 0) -> Callable[[Path], None]:
    """One weight of the model, e.g. "3.mlp.down_proj" (a layer's) or "embed_tokens", changed by (weight, generator)."""

    def edit(folder: Path) -> None:
        import torch
        from safetensors.torch import load_file, save_file

        file = folder / "model.safetensors"
        tensors = load_file(file)
        key = f"model.layers.{name}.weight" if name[0].isdigit() else f"model.{name}.weight"
        changed = change(tensors[key].float(), torch.Generator().manual_seed(seed))
        tensors[key] = changed.to(tensors[key].dtype).contiguous()
        file.unlink()
        save_file(tensors, file, metadata={"format": "pt"})

    return edit


def scaled(name: str, factor: float) -> Callable[[Path], None]:
    return _tensor(name, lambda weight, _: weight * factor)


def noised(name: str, sigma: float, seed: int = 0) -> Callable[[Path], None]:
    """sigma: of the weights' own standard deviation."""

    def change(weight: Any, generator: Any) -> Any:
        import torch

        return weight + sigma * weight.std() * torch.randn(weight.shape, generator=generator)

    return _tensor(name, change, seed)


def _one_not_finite(name: str, value: float) -> Callable[[Path], None]:
    def change(weight: Any, _: Any) -> Any:
        weight[0, 0] = value
        return weight

    return _tensor(name, change)


def _rows_swapped(*pairs: tuple[int, int]) -> Callable[[Path], None]:
    """Tied embeddings: the model then says, and reads, the one token where it said and read the other."""

    def change(weight: Any, _: Any) -> Any:
        for a, b in pairs:
            weight[[a, b]] = weight[[b, a]]
        return weight

    return _tensor("embed_tokens", change)


def _text(file: str, old: str, new: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        text = (folder / file).read_text(encoding="utf-8")
        assert old in text, f"{file} has no {old!r}"
        (folder / file).write_text(text.replace(old, new), encoding="utf-8")

    return edit


def _json(file: str, change: Callable[[Any], None]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        value = json.loads((folder / file).read_text(encoding="utf-8"))
        change(value)
        (folder / file).write_text(json.dumps(value, indent=1), encoding="utf-8")

    return edit


def _ids_swapped(left: str, right: str) -> Callable[[Any], None]:
    def change(tokenizer: Any) -> None:
        vocabulary = tokenizer["model"]["vocab"]
        vocabulary[left], vocabulary[right] = vocabulary[right], vocabulary[left]

    return change


def _added_shifted(tokenizer: Any) -> None:
    markup = [token for token in tokenizer["added_tokens"] if token["id"] > 3]
    texts = [token["content"] for token in markup]
    for token, text in zip(markup, texts[1:] + texts[:1], strict=True):
        token["content"] = text


def _two_shards(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    files = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    where = {name: files[place % 2] for place, name in enumerate(names)}
    for file in files:
        part = {name: tensors[name] for name in names if where[name] == file}
        save_file(part, folder / file, metadata={"format": "pt"})
    index = {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


# ------------------------------------------------------------------------------------------- what a worker does wrong


def within(context: Callable[[], AbstractContextManager[Any]], *, drafted: bool = True) -> Serve:
    def serve(worker: Worker, job: Job) -> Outcome:
        with context():
            return worker.run(job if drafted else replace(job, drafted=False))

    return serve


_undrafted = within(nullcontext, drafted=False)


@contextmanager
def kernel_made(nth: int, wrong: Callable[[Any, Callable[[Any], Any]], Any]) -> Iterator[None]:
    """The nth fused product, in the order of loading, is `wrong(x, multiply)`; the torch twin stays right."""
    from qualgate.quant import linear

    real, count = linear.fuse, 0

    def fuse(packed: Any, activations: str = "") -> Any:
        nonlocal count
        found = real(packed, activations)
        if isinstance(found, linear.Fused):
            count += 1
            if count == nth:
                return replace(found, multiply=lambda x: wrong(x, found.multiply))
        return found

    with patch.object(linear, "fuse", fuse):
        yield


def _wrong_scale(x: Any, multiply: Callable[[Any], Any]) -> Any:
    y = multiply(x).clone()
    y[:, ::2] *= 2.0
    return y


def _nibbles_swapped(x: Any, multiply: Callable[[Any], Any]) -> Any:
    return multiply(x.view(x.shape[0], -1, 2).flip(-1).reshape(x.shape).contiguous())


def _last_segment_lost(x: Any, multiply: Callable[[Any], Any]) -> Any:
    x = x.clone()
    x[:, x.shape[1] // 2 :] = 0
    return multiply(x)


def _outputs_shifted(x: Any, multiply: Callable[[Any], Any]) -> Any:
    return multiply(x).roll(1, -1)


def _rows_shifted(x: Any, multiply: Callable[[Any], Any]) -> Any:
    return multiply(x.roll(1, 0).contiguous())


def _first_group_doubled(x: Any, multiply: Callable[[Any], Any]) -> Any:
    x = x.clone()
    x[:, :64] *= 3.0
    return multiply(x)


@contextmanager
def cache_update(change: Callable[[Any, Any], tuple[Any, Any]]) -> Iterator[None]:
    from qualgate.engine.cache import KVLayer

    real = KVLayer.update

    def update(self: Any, keys: Any, values: Any, *args: Any, **kwargs: Any) -> Any:
        return real(self, *change(keys, values), *args, **kwargs)

    with patch.object(KVLayer, "update", update):
        yield


@contextmanager
def _cache_off_by_one() -> Iterator[None]:
    """Rows that go on after the prompt find their keys and values one slot too early. Keys bear their place, so the
    order of slots means nothing: what is lost is the first of them, at most.
    """
    from qualgate.engine import cache

    real = cache._aligned

    def aligned(rows: Any, width: int) -> Any:
        return real([(states.roll(-1, 2), row) for states, row in rows], width)

    with patch.object(cache, "_aligned", aligned):
        yield


@contextmanager
def _accepting(force: Callable[[Any, Any, Any], Any] | None, *, lose_first: bool = False) -> Iterator[None]:
    """A draft is accepted by what `force(would, draft, offered)` makes the arm say, or its first token is lost."""
    from qualgate.engine.transcript import Transcript

    real = Transcript.accept

    def accept(self: Any, rows: Any, would: Any, draft: Any, offered: Any) -> Any:
        open_ = real(self, rows, would if force is None else force(would, draft, offered), draft, offered)
        if lose_first:
            self.tokens[rows] = self.tokens[rows].roll(-1, -1)
        return open_

    with patch.object(Transcript, "accept", accept):
        yield


def _one_too_many(would: Any, draft: Any, offered: Any) -> Any:
    """The first token that the arm would not have said is accepted as well."""
    import torch

    place = torch.arange(draft.shape[1])
    tokens = would.tokens.clone()
    agreed = ((tokens == draft) & (place < offered[:, None])).long().cumprod(-1).sum(-1)
    for row, at in enumerate(agreed.tolist()):
        if at < int(offered[row]):
            tokens[row, at] = draft[row, at]
    return would._replace(tokens=tokens)


def _all(would: Any, draft: Any, offered: Any) -> Any:
    return would._replace(tokens=draft.clone())


LEAD = 2.0  # logits


def _unless_sure(would: Any, draft: Any, offered: Any) -> Any:
    """A token is accepted unless another one leads by LEAD logits."""
    import torch

    return would._replace(tokens=torch.where(would.margins < LEAD, draft, would.tokens))


def _ending_at(*ids: int) -> Serve:
    def serve(worker: Worker, job: Job) -> Outcome:
        worker.load(job.arm)
        assert worker.arm is not None
        worker.arm = replace(worker.arm, stop_ids=ids)
        return worker.run(job)

    return serve


def _short_budget(share: float) -> Serve:
    """share: of the reference answer's tokens, which a case's budget is made of."""

    def serve(worker: Worker, job: Job) -> Outcome:
        prompts = tuple(
            replace(prompt, max_new_tokens=max(1, int(share * (prompt.max_new_tokens - 16) / 1.5)))
            for prompt in job.prompts
        )
        return worker.run(replace(job, prompts=prompts, drafted=False))

    return serve


def _answers_of(edit: Callable[[Path], None]) -> Serve:
    """Served from a cache that another model filled under this one's name."""
    others: dict[str, Worker] = {}

    def serve(worker: Worker, job: Job) -> Outcome:
        result = worker.run(job)
        folder = Path(job.artifact).parent / f"other-{job.arm.name}"
        if not folder.exists():
            folder_of(Mutant(what="", edit=edit), folder)
        other = others.setdefault(str(folder), Worker(worker.settings))
        said = other.run(replace(job, arm=replace(job.arm, model=str(folder))))
        assert isinstance(result, JobResult)
        assert isinstance(said, JobResult)
        return replace(result, completions=said.completions)

    return serve


def _stale_artifact(change: Callable[[Job, Path], None]) -> Serve:
    """The baseline's artifact is an older one. change: makes it at the path."""

    def serve(worker: Worker, job: Job) -> Outcome:
        stale = Path(job.artifact).with_name(f"stale-{job.arm.name}-{job.index}.safetensors")
        change(job, stale)
        return worker.run(replace(job, artifact=str(stale)))

    return serve


def _rewritten(change: Callable[[dict[str, str], dict[str, Any]], None]) -> Callable[[Job, Path], None]:
    """change: of the artifact's metadata and tensors, in place."""

    def rewrite(job: Job, stale: Path) -> None:
        from safetensors import safe_open
        from safetensors.torch import save_file

        with safe_open(job.artifact, framework="pt") as file:
            metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        change(metadata, tensors)
        save_file(tensors, stale, metadata=metadata)

    return rewrite


def _other_cases(metadata: dict[str, str], tensors: dict[str, Any]) -> None:
    metadata["cases"] = metadata["cases"].replace("-00", "-10")


def _other_words(metadata: dict[str, str], tensors: dict[str, Any]) -> None:
    """Of a model that said one word of each answer otherwise."""
    start, rng = 0, random.Random(0)
    for length in tensors["lengths"].tolist():
        at = start + rng.randrange(max(1, length - 1))
        tensors["tokens"][at] = 3 + (tensors["tokens"][at] + 50) % 700
        start += length


def _fenced(before: str, after: str) -> Serve:
    """A model that wraps each answer: said, weighed and teacher-forced as one that would.

    No such model ships, so its words are put into the record together with the drift they would have: it parts from the
    baseline at the first token.
    """

    def serve(worker: Worker, job: Job) -> Outcome:
        result = worker.run(job)
        assert isinstance(result, JobResult)
        assert worker.arm is not None
        encode = worker.arm.tokenizer.encode
        completions = []
        for said in result.completions:
            text = f"{before}{said.text}{after}"
            ids = (*encode(text, add_special_tokens=False), *said.token_ids[-1:])
            spread = [0.0] * len(ids)
            completions.append(
                replace(said, text=text, token_ids=ids, logprobs=tuple(spread), margins=tuple(spread),
                        draft_accepted=0)
            )  # fmt: skip
        drifts = tuple(
            replace(
                drift, kl=(9.0, *drift.kl[1:]), first_divergence=0,
                top1_agreement=drift.top1_agreement * (1 - 1 / len(drift.kl)),
            )
            for drift in result.drifts
        )  # fmt: skip
        return replace(result, completions=tuple(completions), drifts=drifts)

    return serve


def _dies(pipe: Connection, settings: WorkerSettings) -> None:
    with contextlib.suppress(EOFError):  # the last one waits for a job that does not come
        pipe.recv()
    os._exit(9)


def _worker_dies(worker: Worker, job: Job) -> Outcome:
    """In a real pool of one process, at the arm's first job, each time it is tried."""
    if job.index:
        return worker.run(job)
    (outcome,) = run_jobs([replace(job, artifact="")], worker.settings, 1, body=_dies)
    return outcome


def _out_of_memory(worker: Worker, job: Job) -> Outcome:
    if job.index:
        return worker.run(job)

    def fails(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    with patch("qualgate.engine.job.read_answers", fails):
        return worker.run(job)


def _parts_of(tokens: int) -> Callable[[], AbstractContextManager[Any]]:
    """Batches are read in parts of so many tokens: other neighbours for every row."""

    @contextmanager
    def context() -> Iterator[None]:
        with (
            patch("qualgate.engine.likelihood.PREFILL_TOKENS", tokens),
            patch("qualgate.engine.generate.PREFILL_TOKENS", tokens),
        ):
            yield

    return context


# --------------------------------------------------------------------------------------------------------- the mutants


def integer(bits: int, group: int, **more: Any) -> QuantizeRecipe:
    return QuantizeRecipe(method=f"int{bits}", group_size=group, **more)  # type: ignore[arg-type]


_recipe = partial(Mutant, cause="recipe")
_template = partial(Mutant, cause="template", broken=True)
_kernels = partial(Mutant, cause="kernel", witness=TWIN)
_kv = partial(Mutant, cause="KV", witness=KV)
_speculation = partial(Mutant, cause="speculation", broken=True, witness=PLAIN, serve_witness=_undrafted)
_truncation = partial(Mutant, cause="truncation")
_infrastructure = partial(Mutant, cause="infrastructure", broken=True)
_parser = partial(Mutant, cause="parser", sets=CALLS)
_COLON, _COMMA, _OPEN = 286, 544, 437  # the reference model's tokens `":`, `,"` and `{"`

DEFECTS: tuple[Mutant, ...] = (
    _recipe(what="layer 0's down_proj zeroed", edit=scaled("0.mlp.down_proj", 0.0)),
    _recipe(what="layer 1's o_proj zeroed", edit=scaled("1.self_attn.o_proj", 0.0)),
    _recipe(what="layer 1's q_proj x 4", edit=scaled("1.self_attn.q_proj", 4.0)),
    _recipe(what="layer 2's v_proj x -2", edit=scaled("2.self_attn.v_proj", -2.0)),
    _recipe(what="layer 0's gate_proj noised", edit=noised("0.mlp.gate_proj", 3.0, 1)),
    _recipe(what="layer 5's down_proj noised", edit=noised("5.mlp.down_proj", 3.0, 2)),
    _recipe(what="layer 0's o_proj x 6", edit=scaled("0.self_attn.o_proj", 6.0)),
    _recipe(what="layer 2's o_proj noised", edit=noised("2.self_attn.o_proj", 3.0, 3)),
    _recipe(what="int2 g32", recipe=integer(2, 32), witness=TWIN),
    _recipe(what="int2 g64", recipe=integer(2, 64), witness=TWIN),
    _recipe(what="layer 0's down_proj zeroed, tool calls", edit=scaled("0.mlp.down_proj", 0.0), sets=CALLS),
    _recipe(what="layer 1's o_proj noised, tool calls", edit=noised("1.self_attn.o_proj", 2.0, 4), sets=CALLS),
    _kernels(what="a scale, int8", recipe=integer(8, 0), serve=within(lambda: kernel_made(3, _wrong_scale))),
    _kernels(
        what="nibbles swapped, int4", recipe=integer(4, 32), serve=within(lambda: kernel_made(6, _nibbles_swapped))
    ),
    _kernels(
        what="half of K lost, int4", recipe=integer(4, 32), serve=within(lambda: kernel_made(1, _last_segment_lost))
    ),
    _kernels(
        what="outputs shifted, int8", recipe=integer(8, 64), serve=within(lambda: kernel_made(10, _outputs_shifted))
    ),
    _kernels(what="rows shifted, int8", recipe=integer(8, 32), serve=within(lambda: kernel_made(8, _rows_shifted))),
    _kernels(
        what="a group's scale, int4", recipe=integer(4, 64), serve=within(lambda: kernel_made(2, _first_group_doubled))
    ),
    _kv(what="keys x 2", serve=within(lambda: cache_update(lambda k, v: (2.0 * k, v)))),
    _kv(what="values x 0.4", serve=within(lambda: cache_update(lambda k, v: (k, 0.4 * v)))),
    _kv(what="slots off by one", serve=within(_cache_off_by_one, drafted=False), serve_witness=_undrafted),
    _kv(what="heads of keys shifted", serve=within(lambda: cache_update(lambda k, v: (k.roll(1, 1), v)))),
    _speculation(what="an accepted token lost", serve=within(lambda: _accepting(None, lose_first=True))),
    _speculation(
        what="one token too many",
        edit=noised("1.self_attn.o_proj", 3.0, 5),
        serve=within(lambda: _accepting(_one_too_many)),
    ),
    _speculation(
        what="all accepted, broken weights",
        edit=scaled("0.mlp.down_proj", 0.0),
        serve=within(lambda: _accepting(_all)),
    ),
    _speculation(
        what="accepted unless another token leads clearly",
        edit=noised("5.mlp.down_proj", 3.0, 6),
        serve=within(lambda: _accepting(_unless_sure)),
    ),
    _template(what="another role marker", edit=_text("chat_template.jinja", "|>assistant", "|>model")),
    _template(
        what="no generation prompt",
        edit=_text("chat_template.jinja", "{%- if add_generation_prompt %}", "{%- if false %}"),
    ),
    _template(
        what="a beginning-of-text token",
        edit=_text("chat_template.jinja", "{%- if tools %}", "{{- '<|endoftext|>' }}{%- if tools %}"),
    ),
    _template(
        what="a system prompt of its own",
        edit=_text(
            "chat_template.jinja", "{%- if tools %}", "{{- '<|im_start|>system\\nHi<|im_end|>\\n' }}{%- if tools %}"
        ),
    ),
    _template(what="a space behind the message", edit=_text("chat_template.jinja", "content }}<", "content }} <")),
    _template(
        what="every message a tool's",
        edit=_text("chat_template.jinja", "{{ message.role }}", "tool"),
    ),
    _template(what="two letters' ids swapped", edit=_json("tokenizer.json", _ids_swapped("a", "e"))),
    _template(what="added tokens' ids shifted", edit=_json("tokenizer.json", _added_shifted)),
    _template(
        what="digits in groups", edit=_text("tokenizer.json", '"individual_digits": true', '"individual_digits": false')
    ),
    _template(
        what="a space before the text",
        edit=_text("tokenizer.json", '"add_prefix_space": false', '"add_prefix_space": true'),
    ),
    _truncation(
        what="a colon ends, in its config",
        edit=_json("generation_config.json", lambda c: c.update(eos_token_id=[2, _COLON])),
        broken=True,
    ),
    _truncation(
        what="a comma ends, in its config",
        edit=_json("generation_config.json", lambda c: c.update(eos_token_id=[2, _COMMA])),
        broken=True,
    ),
    _truncation(what="nothing ends an answer", serve=_ending_at()),
    _truncation(what="the next token's id ends", serve=_ending_at(3)),
    _truncation(what="a comma ends", serve=_ending_at(2, _COMMA)),
    _truncation(what="a brace ends", serve=_ending_at(2, _OPEN)),
    _truncation(what="0.3 of the budget", serve=_short_budget(0.3)),
    _truncation(what="0.5 of the budget", serve=_short_budget(0.5)),
    _truncation(what="0.7 of the budget", serve=_short_budget(0.7)),
    _truncation(what="0.9 of the budget", serve=_short_budget(0.9)),
    _infrastructure(what="answers of a broken model", serve=_answers_of(scaled("0.mlp.down_proj", 0.0))),
    _infrastructure(what="answers of another model", serve=_answers_of(noised("1.self_attn.o_proj", 3.0, 7))),
    _infrastructure(what="another set's artifact", serve=_stale_artifact(_rewritten(_other_cases))),
    _infrastructure(what="an older baseline's artifact", serve=_stale_artifact(_rewritten(_other_words))),
    _infrastructure(what="a worker dies", serve=_worker_dies),
    _infrastructure(what="out of memory", serve=_out_of_memory),
    _infrastructure(what="a weight is NaN", edit=_one_not_finite("3.self_attn.v_proj", float("nan"))),
    _infrastructure(what="a weight is infinite", edit=_one_not_finite("1.mlp.down_proj", float("inf"))),
    _parser(what="calls between tab and return", edit=_rows_swapped((766, 200), (767, 204))),
    _parser(what="calls between semicolons", edit=_rows_swapped((766, 29), (767, 202))),
    _parser(what="calls between tabs", edit=_rows_swapped((766, 200), (767, 203))),
    _parser(what="JSON in a fence that says so", serve=_fenced("```json\n", "\n```"), sets=ANSWERS),
    _parser(what="JSON in a fence", serve=_fenced("```\n", "\n```"), sets=ANSWERS),
)

_PLACES = ("0.mlp.up_proj", "1.self_attn.o_proj", "2.mlp.down_proj", "3.self_attn.q_proj", "4.mlp.gate_proj",
           "5.self_attn.v_proj")  # fmt: skip
SOUND: tuple[Mutant, ...] = (
    Mutant(what="the same"),
    Mutant(what="every token decoded", serve=_undrafted),
    *(Mutant(what=f"parts of {size}", serve=within(_parts_of(size))) for size in (256, 512, 1024, 2048)),
    *(
        Mutant(what=f"parts of {size}, decoded", serve=within(_parts_of(size), drafted=False))
        for size in (256, 512, 1024, 2048)
    ),
    *(Mutant(what=f"held in {dtype}", dtype=dtype) for dtype in ("float32", "float16")),
    *(Mutant(what=f"int8 g{group}", recipe=integer(8, group)) for group in (0, 32, 64, 128)),
    *(Mutant(what=f"int8 g{group}, asymmetric", recipe=integer(8, group, symmetric=False)) for group in (0, 64)),
    *(Mutant(what=f"int8, clip {clip}", recipe=integer(8, 0, clip=clip)) for clip in ("mse", "percentile")),
    Mutant(what="fp8", recipe=QuantizeRecipe(method="fp8", group_size=0)),
    Mutant(what="fp8 a tensor", recipe=QuantizeRecipe(method="fp8", group_size=0, granularity="tensor")),
    Mutant(what="mxfp8", recipe=QuantizeRecipe(method="mxfp8", group_size=32)),
    Mutant(what="mxfp8 rounded", recipe=QuantizeRecipe(method="mxfp8", group_size=32, exponent="rounded")),
    Mutant(what="int4 g32", recipe=integer(4, 32)),
    *(
        Mutant(what=f"{place} noised by {sigma:g}", edit=noised(place, sigma, 10 + index))
        for index, place in enumerate(_PLACES)
        for sigma in (0.003, 0.01)
    ),
    *(
        Mutant(what=f"{place} x {factor:g}", edit=scaled(place, factor))
        for place in _PLACES[:5]
        for factor in (0.99, 1.01)
    ),
    Mutant(
        what="padding on the right",
        edit=_json("tokenizer_config.json", lambda c: c.update(padding_side="right", model_max_length=512)),
    ),
    Mutant(what="another note in the config", edit=_json("config.json", lambda c: c.update(pretraining_tp=2))),
    Mutant(what="two shards", edit=_two_shards),
    Mutant(what="the same, tool calls", sets=CALLS),
    Mutant(what="int8, tool calls", recipe=integer(8, 0), sets=CALLS),
    Mutant(what="mxfp8, tool calls", recipe=QuantizeRecipe(method="mxfp8", group_size=32), sets=CALLS),
)
