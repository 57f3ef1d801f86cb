"""Loading an arm, and refusing model folders that cannot be judged."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from hashlib import file_digest
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file

from qualgate.engine.device import Device, choose_device
from qualgate.engine.identity import engine_version, identify
from qualgate.engine.job import run_job
from qualgate.engine.load import load_arm
from qualgate.errors import UsageError
from qualgate.quant.checkpoint import read_packed
from qualgate.quant.linear import QuantizedLinear
from qualgate.quant.model_folder import read_model_folder
from qualgate.quant.shards import weights_hash
from qualgate.records import ArmIdentity, ArmSpec, QuantizeRecipe, identity
from tests.engine.jobs import INT4, job, loaded, under
from tests.engine.tiny_architectures import tiny
from tests.tiny_models import END, PAD, START, save_byte_tokenizer


@pytest.fixture
def folder(model, tmp_path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(model, tmp_path / "model"))


def identified(spec: ArmSpec, sampling: dict, device: Device = "cpu") -> ArmIdentity:
    return identify(spec, read_model_folder(Path(spec.model)), sampling, engine_version(device, spec.arithmetic))


def edit(file: Path, **changes) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def truncate(folder: Path) -> None:
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[:-1000])


def only_pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def missing_shard(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def loop(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to("model.safetensors")


def template(folder: Path, value) -> None:
    (folder / "chat_template.jinja").unlink()
    edit(folder / "tokenizer_config.json", chat_template=value)


FAULTS = {
    "missing weights": (lambda f: (f / "model.safetensors").unlink(), "holds no weights"),
    "truncated weights": (truncate, r"model\.safetensors is truncated: tensor"),
    "pickled weights": (only_pickle, r"only pickled weights \(pytorch_model\.bin\)"),
    "missing shard": (missing_shard, "names the shard model-00001-of-00002.safetensors, which is missing"),
    "remote code": (lambda f: edit(f / "config.json", auto_map={"AutoModel": "modeling.X"}), "auto_map"),
    "remote tokenizer": (lambda f: edit(f / "tokenizer_config.json", auto_map={"AutoTokenizer": ["t.X"]}), "auto_map"),
    "missing config": (lambda f: (f / "config.json").unlink(), r"no config\.json"),
    "broken config": (lambda f: (f / "config.json").write_text("{"), "not valid JSON"),
    "config of another kind": (lambda f: (f / "config.json").write_text("[]"), "expected a JSON object"),
    "no model type": (lambda f: (f / "config.json").write_text("{}"), "model_type"),
    "another model's type": (lambda f: edit(f / "config.json", model_type="nonesuch"), "the model_type 'nonesuch'"),
    "too few layers": (lambda f: edit(f / "config.json", num_hidden_layers=3), r"num_hidden_layers is 3, .* 2 layers"),
    "too many layers": (lambda f: edit(f / "config.json", num_hidden_layers=1), r"num_hidden_layers is 1, .* 2 layers"),
    "missing tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "no tokenizer"),
    "deep config": (lambda f: (f / "config.json").write_text("[" * 100_000), "nested too deeply"),
    "quantization of another kind": (lambda f: edit(f / "config.json", quantization_config=["x"]), "is list, expected"),
    "text config of another kind": (lambda f: edit(f / "config.json", text_config="x"), "text_config is str, expected"),
    "looping link": (loop, r"cannot be read|holds no weights"),
    "template in another encoding": (lambda f: (f / "chat_template.jinja").write_bytes(b"\xff\xfe"), "not UTF-8"),
    "template is a number": (lambda f: template(f, 5), "chat_template is int"),
    "named template without text": (lambda f: template(f, [{"name": "default"}]), "chat_template is NoneType"),
    "infinity": (lambda f: edit(f / "tokenizer_config.json", x=float("inf")), "that JSON cannot"),
    "stop token is a text": (lambda f: edit(f / "generation_config.json", eos_token_id=["x"]), "expected token ids"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_of_a_model_folder_is_named_before_it_is_loaded(folder, fault):
    spoil, message = FAULTS[fault]
    spoil(folder)
    with pytest.raises(UsageError, match=message) as refused:
        identified(ArmSpec(name="a", model=str(folder)), {})
    assert str(folder) in str(refused.value)


def test_a_missing_folder_is_never_downloaded_and_a_whole_one_is_known_to_have_no_fault(model, tmp_path):
    with pytest.raises(UsageError, match="no model folder"):
        read_model_folder(tmp_path / "org" / "model")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(model)
    assert read_model_folder(model).parameters == sum(one.numel() for one in theirs.parameters())


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: edit(f / "config.json", vocab_size=300), r"lm_head\.weight holds 260 x 64 .* has 300 x 64"),
        (lambda f: edit(f / "config.json", intermediate_size=48), r"mlp\.\w+\.weight holds .*different models"),
        (lambda f: (f / "tokenizer.json").write_text("{}"), "tokenizer in .* cannot be loaded"),
    ],
)
def test_what_only_loading_shows_is_named_too(folder, tmp_path, spoil, message):
    spoil(folder)
    with pytest.raises(UsageError, match=message):
        loaded(folder, tmp_path)


def test_checking_and_identifying_load_no_torch(model):
    code = (
        "import sys; from pathlib import Path; from qualgate.engine.identity import identify;"
        "from qualgate.quant.model_folder import read_model_folder;"
        "from qualgate.engine.prompts import Renderer; from qualgate.records import ArmSpec, Case;"
        "path = sys.argv[1]; folder = read_model_folder(Path(path));"
        "identify(ArmSpec(name='a', model=path), folder, {}, 'engine');"
        "case = Case(evalset='e', body={'id': '1', 'messages': [{'role': 'user', 'content': 'x'}]});"
        "Renderer(folder.files).render([case]); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(model)], check=False).returncode == 0


def test_weights_are_rounded_to_the_dtype_and_computed_in_float32(saved, tmp_path):
    folder = saved(dtype="float32")
    arm, exact = loaded(folder, tmp_path), loaded(folder, tmp_path, dtype="float32")
    assert arm.choice.kind == exact.choice.kind == "plain"
    for one in (arm, under("padded", loaded(folder, tmp_path))):
        for name, values in load_file(folder / "model.safetensors").items():
            module, _, last = name.rpartition(".")
            held = getattr(one.model.get_submodule(module), last)
            assert held.dtype == torch.float32
            assert torch.equal(held, values.bfloat16().float())
    assert not torch.equal(exact.model.lm_head.weight, arm.model.lm_head.weight)
    with torch.inference_mode():
        logits = arm.model(torch.randint(256, (1, 9))).logits
    assert logits.dtype == torch.float32
    assert not torch.equal(logits, logits.bfloat16().float())


@pytest.mark.parametrize("method", ["int8", "int4"])
def test_a_variants_footprint_is_what_it_holds(model, tiny_arm, tmp_path, method):
    recipe = QuantizeRecipe(method=method, group_size=0 if method == "int8" else 32)
    arm = loaded(model, tmp_path, "v", recipe, kernels="torch")
    layers = [module for module in arm.model.modules() if isinstance(module, QuantizedLinear)]
    packed = sum(layer.packed.nbytes for layer in layers)
    quantized = sum(layer.in_features * layer.out_features for layer in layers)
    fused = loaded(model, tmp_path, "v", recipe)
    assert fused.footprint.quantized_bytes == packed
    assert fused.footprint.bytes_in_memory <= arm.footprint.bytes_in_memory + packed / 8  # scales of their own kind
    assert arm.footprint.quantized_bytes == packed
    floats = read_model_folder(model).parameters - quantized
    assert arm.footprint.bytes_in_memory == pytest.approx(packed + 4 * floats, abs=128)  # and the rotary frequencies
    assert arm.footprint.bytes_on_disk < tiny_arm.footprint.bytes_on_disk
    assert not any(isinstance(module, QuantizedLinear) for module in tiny_arm.model.modules())
    assert type(arm.model.get_output_embeddings()) is torch.nn.Linear


def test_a_bfloat16_model_takes_its_own_bytes_where_our_kernels_multiply_it(saved, tmp_path):
    wide = saved(width=256)
    arm, numbers = loaded(wide, tmp_path), read_model_folder(wide).parameters
    assert 2 * numbers <= arm.footprint.bytes_in_memory < 1.05 * 2 * numbers  # rows are filled up to whole tiles
    assert arm.footprint.effective_bits == 8 * arm.footprint.bytes_in_memory / numbers


def test_a_model_without_a_parameter_of_its_own_is_measured_and_runs(tmp_path):
    """OLMo's norms have no weights, so that none is left where all others are laid out."""
    tiny("olmo", bos_token_id=START, eos_token_id=END).save_pretrained(tmp_path / "olmo")
    save_byte_tokenizer(tmp_path / "olmo")
    arm = loaded(tmp_path / "olmo", tmp_path)
    assert arm.choice.kind == "packed"
    assert not list(arm.model.parameters())
    assert arm.footprint.facts["device.memory"] > arm.footprint.bytes_in_memory > 0
    assert run_job(arm, job(arm, "", count=2)).completions[0].token_ids


def test_what_a_rule_may_ask_of_a_loaded_arm_is_measured(model, tiny_arm, tmp_path):
    baseline, int4 = tiny_arm, loaded(model, tmp_path, "v", INT4)
    config, stored = baseline.model.config, baseline.footprint.bytes_on_disk
    heads = config.num_key_value_heads * (config.hidden_size // config.num_attention_heads)
    for arm in (baseline, int4):
        assert arm.footprint.facts["memory.cache_token"] == 2 * 2 * config.num_hidden_layers * heads
    assert baseline.footprint.facts["memory.weights"] == pytest.approx(stored, rel=0.02)  # as bfloat16, not as held
    numbers = sum(m.in_features * m.out_features for m in int4.model.modules() if isinstance(m, QuantizedLinear))
    saved = 2 * numbers - int4.footprint.quantized_bytes
    assert baseline.footprint.facts["memory.weights"] - int4.footprint.facts["memory.weights"] == saved
    assert baseline.footprint.facts.keys() == {"memory.weights", "memory.cache_token", "device.memory"}
    steady = read_packed(next(tmp_path.glob("int4*"))).stability.values()
    assert int4.footprint.facts["stability.steady"] == sum(one.steady for one in steady) / len(steady)
    assert int4.footprint.facts["stability.sqnr"] == min(one.sqnr for one in steady)
    saturated = sum(one.saturated for one in steady) / sum(one.elements for one in steady)
    assert int4.footprint.facts["stability.saturated"] == saturated > 0
    assert int4.identity == identified(int4.spec, {"temperature": 0}), "the loaded identity is the planned one"


def test_an_identity_follows_content_not_names(folder, tmp_path):
    spec = ArmSpec(name="a", model=str(folder))
    identity = identified(spec, {"seed": 0})
    copy = shutil.copytree(folder, tmp_path / "renamed")
    assert identified(replace(spec, name="b", model=str(copy)), {"seed": 0}) == identity
    assert identified(replace(spec, quantize=INT4), {"seed": 0}).weights != identity.weights
    assert identified(replace(spec, dtype="float16"), {"seed": 0}).weights != identity.weights
    assert identified(spec, {"seed": 1}).sampling != identity.sampling
    for file, field in (
        ("config.json", "config"),
        ("generation_config.json", "config"),
        ("tokenizer_config.json", "tokenizer"),
        ("chat_template.jinja", "template"),
    ):
        kept = (copy / file).read_text()
        if file.endswith("json"):
            edit(copy / file, something="else")
        else:
            (copy / file).write_text(kept + " ")
        changed = identified(replace(spec, model=str(copy)), {"seed": 0})
        assert [name for name in ("weights", "config", "tokenizer", "template", "sampling", "engine")
                if getattr(changed, name) != getattr(identity, name)] == [field]  # fmt: skip
        (copy / file).write_text(kept)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_file_that_may_not_be_read_is_named(folder, monkeypatch, file):
    """As root nothing is forbidden, so the refusal is acted."""
    whole = Path.open

    def refuse(self, *args, **kwargs):
        if self.name == file:
            raise PermissionError(13, "Permission denied", str(self))
        return whole(self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(UsageError, match=rf"{file} cannot be read \(Permission denied\)"):
        identified(ArmSpec(name="a", model=str(folder)), {})


def test_a_librarys_notes_beside_the_same_tokenizer_change_nothing(folder):
    spec = ArmSpec(name="a", model=str(folder))
    before = identified(spec, {})
    edit(
        folder / "tokenizer_config.json", padding_side="left", pad_to_multiple_of=None, max_length=None,
        name_or_path="elsewhere", local_files_only=False, backend="tokenizers", added_tokens_decoder={},
        extra_special_tokens={}, tokenizer_class="TokenizersBackend", eos_token={"content": "<|end|>", "special": True},
        additional_special_tokens=["<|start|>", {"content": "<|end|>"}], add_bos_token=False, pad_token="<|end|>",
        mask_token="<|pad|>", errors="replace", vocab_size=1, legacy=False, add_prefix_space=False,
    )  # fmt: skip
    adds_none = {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}]}
    steps = {"type": "Sequence", "processors": [{"type": "ByteLevel"}, adds_none]}
    edit(folder / "tokenizer.json", padding={"strategy": "BatchLongest"}, truncation=None, post_processor=steps)
    (folder / "special_tokens_map.json").write_text('{"eos_token": "<|end|>"}')
    assert identified(spec, {}) == before


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("tokenizer_config.json", {"add_bos_token": True}),
        ("tokenizer_config.json", {"extra_special_tokens": ["<|new|>"]}),
        (
            "tokenizer.json",
            {"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|start|>"}}]}},
        ),
        ("tokenizer_config.json", {"clean_up_tokenization_spaces": True}),
        ("tokenizer_config.json", {"tokenizer_class": "LlamaTokenizer"}),  # it adds a bos token in transformers 4
        ("tokenizer_config.json", {"tokenizer_class": "Qwen2Tokenizer"}),
        ("tokenizer_config.json", {"pad_token": "<|new|>"}),
        ("tokenizer_config.json", {"bos_token": "<|pad|>"}),
        ("tokenizer.json", {"normalizer": {"type": "Lowercase"}}),
        ("tokenizer.json", {"added_tokens": []}),
    ],
)
def test_what_changes_a_token_changes_the_tokenizer(folder, file, changes):
    spec = ArmSpec(name="a", model=str(folder))
    before = identified(spec, {})
    edit(folder / file, **changes)
    assert identified(spec, {}).tokenizer != before.tokenizer


def test_unequal_stop_tokens_make_unequal_sampling(folder, tmp_path):
    spec = ArmSpec(name="a", model=str(folder))
    identity = identified(spec, {})
    edit(folder / "generation_config.json", eos_token_id=[END, 3])
    assert identified(spec, {}).sampling != identity.sampling
    assert read_model_folder(folder).stop_ids == loaded(folder, tmp_path).stop_ids == (3, END)
    edit(folder / "tokenizer_config.json", eos_token="<|pad|>")
    assert read_model_folder(folder).stop_ids == (3, PAD, END)


def test_the_engine_names_what_computes(model):
    engine = identified(ArmSpec(name="a", model=str(model)), {}, "cuda").engine
    for part in ("qualgate", f"torch {version('torch')}", f"transformers {transformers.__version__}", "cuda float32"):
        assert part in engine


def test_cpu_is_chosen_by_word_and_a_gpu_that_torch_cannot_use_says_so(model, tmp_path, monkeypatch):
    assert choose_device("cpu") == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match=r"workers: \{devices: cpu\}"):
        load_arm(ArmSpec(name="a", model=str(model)), tmp_path, {}, device="cuda")


def test_weights_are_hashed_once_until_they_change(folder, monkeypatch):
    read = []
    monkeypatch.setattr(identity, "_MOMENT", 0)  # the folder was written just now
    monkeypatch.setattr(identity.hashlib, "file_digest", lambda *what: read.append(what) or file_digest(*what))
    first = weights_hash(folder)
    assert weights_hash(folder) == first
    assert len(read) == 1
    raw = bytearray((folder / "model.safetensors").read_bytes())
    raw[-1] ^= 1
    (folder / "model.safetensors").write_bytes(raw)
    assert weights_hash(folder) != first
