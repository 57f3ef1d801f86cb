"""`qualgate quantize --backend`: what the command makes of a library's folder, with a stand-in for its interpreter."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from qualgate.engine.calibration import calibration_prompts
from qualgate.errors import Exit, InfrastructureError, UsageError
from qualgate.evalsets.calibration_sets import with_calibration
from qualgate.pipeline.quantize.folder import Order, quantize
from qualgate.pipeline.quantize.provenance import EVIDENCE
from qualgate.pipeline.quantize.with_library import Outsourced, quantize_with
from qualgate.quant.backends.environment import requirements_hash
from qualgate.quant.readers import read_quantized
from qualgate.quant.recipes import parse_recipe
from qualgate.quant.shards import weights_hash
from tests.command_line import qualgate
from tests.tiny_models import save_tiny_model
from tests.tiny_sets import CALIBRATION, write_set

GPTQ: dict[str, Any] = {"method": "gptq", "group_size": 32, "calibration": "./mine.yaml"}
SAYS_DONE = "print(json.dumps({'done': {'patches': ['no pinned memory']}}), flush=True)\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def library_folder(model, tmp_path_factory) -> Path:
    """A GPTQ folder as a library would leave it: its own tokenizer files, no card, no evidence."""
    out = tmp_path_factory.mktemp("library") / "made"
    quantize(
        Order(model=model, recipe=parse_recipe({"method": "int4"}), out=out, format="gptq", relative_to=out.parent)
    )
    for name in ("README.md", EVIDENCE):
        (out / name).unlink()
    (out / "tokenizer_config.json").write_text('{"the library": "wrote this"}')
    return out


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """A calibration set, and an evalset of other words."""
    write_set(tmp_path, "mine", ["A first text.", "A second one.", "A third, and longer."], CALIBRATION)
    write_set(tmp_path, "exam", ["Something else.", "And more!"])
    write_set(tmp_path, "leaky", ["A second one."])
    return tmp_path


def backends(room: Path, code: str, name: str = "gptqmodel") -> Path:
    """A folder of environments whose `name` is finished; its interpreter runs `code` with the order in `order`."""
    place = room / "environments" / name
    (place / "bin").mkdir(parents=True, exist_ok=True)
    script, python = place / "stand_in.py", place / "bin" / "python"
    script.write_text(
        "import json, os, shutil, sys\nfrom pathlib import Path\norder = json.load(open(sys.argv[1]))\n"
        f"Path({str(place)!r}, 'order.json').write_text(json.dumps(order))\n{code}"
    )
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I "{script}" "$3"\n')
    python.chmod(0o755)
    noted = {"requirements": requirements_hash(name), "versions": {"gptqmodel": "7.6.0", "torch": "2.13.0"}}
    (place / "qualgate-backend.json").write_text(json.dumps(noted))
    return place.parent


def copies(folder: Path) -> str:
    return f"shutil.copytree({str(folder)!r}, order['out'])\n{SAYS_DONE}"


def outsourced(room: Path, model: Path, code: str, words: dict[str, Any] = GPTQ, **more: Any) -> Outsourced:
    name = more.pop("backend", "gptqmodel")
    heard = more.pop("progress", lambda line: None)
    out = more.pop("out", room / "out")
    order = Order(model=model, recipe=parse_recipe(words), out=out, relative_to=room, **more)
    return quantize_with(name, order, backends(room, code, name), heard)


def test_a_librarys_folder_appears_with_card_evidence_and_the_baselines_tokenizer(model, library_folder, room):
    heard: list[str] = []
    made = outsourced(
        room, model, copies(library_folder), against=("./exam.yaml",), date="1 January 2027", progress=heard.append
    )
    out = room / "out"
    assert (made.folder, made.backend, made.format, made.layers) == (str(out), "gptqmodel", "gptq", {"int4 g32": 14})
    assert made.versions == {"gptqmodel": "7.6.0", "torch": "2.13.0"}
    assert made.written_bytes == sum(file.stat().st_size for file in out.iterdir())
    assert (out / "tokenizer_config.json").read_bytes() == (model / "tokenizer_config.json").read_bytes()
    theirs, found = read_quantized(library_folder), read_quantized(out)
    assert all(torch.equal(found.layers[name].weight.codes, theirs.layers[name].weight.codes) for name in theirs.layers)
    card = (out / "README.md").read_text()
    for said in (
        "# tiny, gptq int4 g32", "by gptqmodel", "on 1 January 2027", f"`{weights_hash(model)}`",
        "layers in int4 g32 | 14", "calibration cases | 3", "| gptqmodel | 7.6.0 |",
        "run here | no pinned memory |", "coverage of | exam v1 |",
    ):  # fmt: skip
        assert said in card, card
    assert str(room) not in card
    evidence = json.loads((out / EVIDENCE).read_text())
    assert evidence == made.evidence
    assert evidence["coverage"]["status"] == evidence["stability"]["status"] == "measured"
    assert len(evidence["stability"]["layers"]) == 14
    assert 10 < evidence["stability"]["sqnr_min"] < 40
    assert heard == ["measuring coverage"]
    json.dumps(made.as_json())


def test_the_library_gets_the_calibration_cases_as_token_ids_and_the_model_as_it_lies(model, library_folder, room):
    outsourced(room, model, copies(library_folder), {**GPTQ, "act_order": True, "bits": 8}, format="gptq_v2")
    order = json.loads((room / "environments" / "gptqmodel" / "order.json").read_text())
    recipe = with_calibration(parse_recipe(GPTQ), room)
    assert order.pop("texts") == [list(row) for row in calibration_prompts(model, recipe)]
    out = Path(order.pop("out"))
    assert (out.parent.parent, out.name) == (room, "made")
    assert order == {
        "backend": "gptqmodel", "model": str(model), "method": "gptq", "format": "gptq_v2", "bits": 8,
        "group_size": 32, "symmetric": True, "act_order": "group", "granularity": "", "activations": "",
        "device": "cpu",
    }  # fmt: skip


def test_a_method_that_folds_scales_has_no_stability_and_says_why(model, library_folder, room):
    words = {"method": "awq", "group_size": 32, "calibration": "./mine.yaml"}
    made = outsourced(room, model, copies(library_folder), words, backend="autoawq")
    assert made.evidence["stability"]["status"] == "not_measured"
    assert "autoawq does not say how" in (room / "out" / "README.md").read_text()
    assert made.evidence["coverage"]["status"] == "not_measured"  # no evalset was named


def test_a_direct_cast_needs_no_data(model, library_folder, room):
    made = outsourced(room, model, copies(library_folder), {"method": "mxfp4"}, backend="llmcompressor")
    assert made.evidence["coverage"]["status"] == "not_applicable"
    assert "calibration cases | 0" in (room / "out" / "README.md").read_text()


def damaged(folder: Path, library_folder: Path) -> Path:
    """The library's folder, one of its tensors cut short."""
    tensors = load_file(library_folder / "model.safetensors")
    name = next(name for name in tensors if name.endswith(".qzeros"))
    tensors[name] = tensors[name][:1].contiguous()
    bad = folder / "bad"
    bad.mkdir()
    for file in library_folder.iterdir():
        if file.name != "model.safetensors":
            (bad / file.name).write_bytes(file.read_bytes())
    save_file(tensors, bad / "model.safetensors")
    return bad


def test_a_folder_that_cannot_be_read_here_never_appears(model, library_folder, room):
    bad = damaged(room, library_folder)
    for folder, said in ((bad, "gptqmodel wrote a folder that qualgate cannot read: .*qzeros"),
                         (model, "is not a quantized checkpoint")):  # fmt: skip
        with pytest.raises(InfrastructureError, match=said):
            outsourced(room, model, copies(folder))
        assert not list(room.glob("*out*"))


@pytest.mark.parametrize(
    ("out", "source", "words", "against", "said"),
    [
        (".", None, {}, (), "already exists"),
        ("out", None, {"group_size": 48}, (), "not a multiple of the group size 48"),
        ("out", None, {"calibration": "./gone.yaml"}, (), "gone.yaml"),
        ("out", None, {"keep": {"down_proj": "bf16"}}, (), "does not support `keep`"),
        ("out", None, {}, ("./leaky.yaml",), "leaky"),
        ("out", "library_folder", {}, (), "quantized already"),
    ],
)
def test_what_cannot_work_is_refused_before_the_library_starts(model, room, request, out, source, words, against, said):
    heard: list[str] = []
    folder = request.getfixturevalue(source) if source else model
    with pytest.raises(UsageError, match=said):
        outsourced(room, folder, "sys.exit(1)", {**GPTQ, **words}, out=room / out, against=against,
                   progress=heard.append)  # fmt: skip
    assert heard == (["measuring coverage"] if against else [])
    assert not (room / "environments" / "gptqmodel" / "order.json").exists()


# -------------------------------------------------------------------------------------------- the command


def words(room: Path, model: Path) -> list[str]:
    how = ["--method", "gptq", "--group-size", "32", "--calibration", "./mine.yaml", "--out", "out"]
    told = ["--backend", "gptqmodel", "--backend-dir", str(room / "environments"), "--devices", "cpu"]
    return ["quantize", str(model), *how, *told]


def test_the_command_says_what_came_out(model, library_folder, room):
    backends(room, copies(library_folder))
    done = qualgate(*words(room, model), cwd=room)
    assert done.returncode == Exit.APPROVE, done.stderr
    assert "made by gptqmodel (gptqmodel 7.6.0, torch 2.13.0)" in done.stdout
    assert "14 int4 g32; gptq format" in done.stdout
    assert "changed for it to run here: no pinned memory" in done.stdout


@pytest.mark.parametrize(
    ("code", "exit", "said"),
    [
        ("print('the reason', file=sys.stderr)\nraise SystemExit(3)", Exit.INFRASTRUCTURE,
         "gptqmodel failed: it ended with 3 and no word\nIts last lines:\nthe reason"),
        ("print(json.dumps({'refused': 'it does not know llama'}))", Exit.USAGE, "gptqmodel: it does not know llama"),
        (None, Exit.USAGE, "does not exist. Make it with: qualgate quantize --setup-backend gptqmodel --backend-dir"),
    ],
    ids=["fails", "refuses", "missing"],
)  # fmt: skip
def test_the_commands_exit_code_says_whose_fault_it_was(model, room, code, exit, said):
    if code is not None:
        backends(room, code)
    done = qualgate(*words(room, model), cwd=room)
    assert (done.returncode, done.stdout) == (exit, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(room.glob("*out*"))
