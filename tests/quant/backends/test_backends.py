"""Backends from the outside: environments, orders and answers, with a stand-in for the library's interpreter."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from qualgate.errors import InfrastructureError, UsageError
from qualgate.quant.backends import environment as environments
from qualgate.quant.backends.call import run_backend
from qualgate.quant.backends.environment import NAMES, Environment, find, requirements_hash, set_up
from qualgate.quant.backends.job import METHODS, backend_job
from qualgate.records import QuantizeRecipe

FINISHED = "qualgate-backend.json"


def ready(folder: Path, name: str = "gptqmodel", requirements: str | None = None) -> Path:
    """A finished environment's files, with an interpreter that does nothing."""
    (folder / name / "bin").mkdir(parents=True)
    (folder / name / "bin" / "python").write_text("")
    noted = {"requirements": requirements or requirements_hash(name), "versions": {"torch": "2.13.0"}}
    (folder / name / FINISHED).write_text(json.dumps(noted))
    return folder


# ---------------------------------------------------------------------------------------- environments


def test_a_finished_environment_is_found_with_its_versions(tmp_path):
    found = find("gptqmodel", ready(tmp_path))
    assert found.python == tmp_path / "gptqmodel" / "bin" / "python"
    assert found.versions == {"torch": "2.13.0"}


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (lambda folder: None, "does not exist"),
        (lambda folder: (folder / "gptqmodel").mkdir(), "is not finished"),
        (lambda folder: ready(folder, requirements="other"), "has the packages of another version"),
        (lambda folder: (ready(folder) / "gptqmodel" / "bin" / "python").unlink(), "lost its interpreter"),
        (lambda folder: (ready(folder) / "gptqmodel" / FINISHED).write_text("{"), "cannot be read"),
    ],
    ids=["missing", "unfinished", "outdated", "no interpreter", "damaged"],
)
def test_an_environment_that_cannot_be_used_says_how_to_make_it(tmp_path, fault, said):
    fault(tmp_path)
    with pytest.raises(UsageError, match=said) as raised:
        find("gptqmodel", tmp_path)
    assert f"qualgate quantize --setup-backend gptqmodel --backend-dir {tmp_path}" in str(raised.value)


def test_an_unknown_backend_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(UsageError, match="no backend 'vllm'; known: gptqmodel, llmcompressor, auto-gptq, autoawq"):
        find("vllm", tmp_path)


def test_the_default_place_is_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert environments.default_folder() == tmp_path / "qualgate" / "backends"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert environments.default_folder() == Path.home() / ".cache" / "qualgate" / "backends"


def test_what_is_there_is_not_made_again(tmp_path):
    said: list[str] = []
    assert set_up("gptqmodel", ready(tmp_path), said.append) == find("gptqmodel", tmp_path)
    assert said == [f"gptqmodel: ready in {tmp_path / 'gptqmodel'}"]


def test_pips_refusal_is_passed_on_and_leaves_nothing_that_counts_as_finished(tmp_path, monkeypatch):
    monkeypatch.setattr(environments.venv, "create", lambda place, **_: place.mkdir(parents=True))
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho 'no such version' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(environments, "_python", lambda place: fake)
    with pytest.raises(InfrastructureError, match="pip could not install backend gptqmodel:\nno such version"):
        set_up("gptqmodel", tmp_path / "envs")
    with pytest.raises(UsageError, match="is not finished"):
        find("gptqmodel", tmp_path / "envs")


def test_auto_gptq_is_refused_on_a_python_it_has_no_wheels_for(tmp_path, monkeypatch):
    monkeypatch.setattr(environments, "LEGACY_PYTHON", (3, 8))
    with pytest.raises(UsageError, match=r"wheels up to Python 3\.8.*use gptqmodel"):
        set_up("auto-gptq", tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_every_backend_pins_what_decides_the_outcome(name):
    whole, alone = environments._requirements(name)
    lines = environments._lines(whole) + (environments._lines(alone) if alone.exists() else [])
    pinned = {line.partition("==")[0] for line in lines if "==" in line}
    assert {"torch", "transformers", name} <= pinned
    assert not any(re.match(r"(nvidia|-i|--index|--extra|https?:)", line) for line in lines)


# ----------------------------------------------------------------------------------------------- orders


def gptq(**more) -> QuantizeRecipe:
    return QuantizeRecipe(method="gptq", group_size=64, **more)


def test_an_order_says_in_plain_json_what_the_recipe_says(tmp_path):
    recipe = gptq(bits=4, act_order="static", symmetric=False)
    order = backend_job("gptqmodel", tmp_path, recipe, [(1, 2)], tmp_path / "out")
    assert json.loads(json.dumps(order.as_json())) == {
        "backend": "gptqmodel", "model": str(tmp_path), "out": str(tmp_path / "out"), "method": "gptq", "bits": 4,
        "group_size": 64, "symmetric": False, "act_order": True, "granularity": "", "texts": [[1, 2]],
    }  # fmt: skip
    whole_rows = backend_job("llmcompressor", tmp_path, QuantizeRecipe(method="fp8", group_size=0), [], tmp_path / "o")
    assert (whole_rows.group_size, whole_rows.texts) == (-1, ())


@pytest.mark.parametrize(
    ("backend", "recipe", "said"),
    [
        ("autoawq", gptq(), "makes awq, not gptq. gptq is made by: gptqmodel, llmcompressor, auto-gptq"),
        ("auto-gptq", QuantizeRecipe(method="int8", group_size=0), "not int8. Without --backend qualgate makes it"),
        ("gptqmodel", gptq(keep=(("*", "int8"),)), "cannot be told `keep`"),
        ("gptqmodel", gptq(clip="mse"), "cannot be told `clip`"),
        ("autoawq", QuantizeRecipe(method="awq", group_size=64, bits=3), "autoawq makes 4 bits, not 3"),
        ("gptqmodel", gptq(), "gptq learns from data: give --calibration"),
    ],
)
def test_what_a_backend_cannot_make_is_refused_before_it_starts(tmp_path, backend, recipe, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        backend_job(backend, tmp_path, recipe, [], tmp_path / "out")


def test_every_backend_makes_something():
    assert set(METHODS) == set(NAMES)


# ------------------------------------------------------------------------------------------------ calls


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "tokenizer.json").write_text("the baseline's own")
    return folder


@pytest.fixture
def stand_in(tmp_path: Path):
    """An environment whose interpreter runs the given Python instead of the library's script."""

    def make(code: str) -> Environment:
        script = tmp_path / "stand_in.py"
        script.write_text(
            "import json, os, sys\nfrom pathlib import Path\norder = json.load(open(sys.argv[1]))\n" + code
        )
        python = tmp_path / "python"
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I "{script}" "$3"\n')  # $1 -I, $2 inside.py, $3 order
        python.chmod(0o755)
        return Environment(name="gptqmodel", python=python, versions={"gptqmodel": "7.6.0"})

    return make


WRITES = (
    "out = Path(order['out'])\nout.mkdir()\n(out / 'model.safetensors').write_bytes(b'w')\n"
    "(out / 'tokenizer.json').write_text('the library own')\n"
)


def job(model: Path, out: Path):
    return backend_job("gptqmodel", model, gptq(), [(1, 2, 3)], out)


def test_the_folder_appears_whole_with_the_baselines_tokenizer(model, stand_in, tmp_path):
    said: list[str] = []
    code = (
        "print('a library talks')\nprint(json.dumps({'progress': 'layer 1/2'}), flush=True)\n" + WRITES
        + "print(json.dumps({'done': {'patches': ['a patch']}}))"
    )  # fmt: skip
    made = run_backend(stand_in(code), job(model, tmp_path / "made"), said.append)
    assert said == ["gptqmodel: layer 1/2"]
    assert (made.folder, made.versions, made.patches) == (tmp_path / "made", {"gptqmodel": "7.6.0"}, ("a patch",))
    assert sorted(path.name for path in made.folder.iterdir()) == ["model.safetensors", "tokenizer.json"]
    assert (made.folder / "tokenizer.json").read_text() == "the baseline's own"
    assert not list(tmp_path.glob(".made-*"))


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (WRITES + "print(json.dumps({'error': 'ValueError: bad'}))\nprint('why', file=sys.stderr)\nsys.exit(1)",
         "gptqmodel failed: ValueError: bad\nIts last lines:\nwhy"),
        (WRITES + "os.abort()", "gptqmodel failed: it ended with"),
        ("print(json.dumps({'done': {}}))", "said it was done and left no safetensors file"),
    ],
    ids=["raises", "dies", "writes nothing"],
)  # fmt: skip
def test_a_library_that_fails_is_quoted_and_leaves_no_folder(model, stand_in, tmp_path, code, said):
    with pytest.raises(InfrastructureError, match=re.escape(said)):
        run_backend(stand_in(code), job(model, tmp_path / "made"))
    assert not (tmp_path / "made").exists()
    assert not list(tmp_path.glob(".made-*"))


def test_a_folder_that_is_there_is_never_written_over(model, stand_in, tmp_path):
    (tmp_path / "made").mkdir()
    with pytest.raises(UsageError, match="is there already"):
        run_backend(stand_in(WRITES), job(model, tmp_path / "made"))


def test_our_packages_and_settings_do_not_reach_the_other_interpreter(model, stand_in, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/ours")
    code = (
        WRITES
        + "print(json.dumps({'done': {'patches': [os.environ.get('PYTHONPATH', '-'), os.environ['HF_HUB_OFFLINE']]}}))"
    )
    assert run_backend(stand_in(code), job(model, tmp_path / "made")).patches == ("-", "1")


def test_the_script_runs_in_any_interpreter_up_to_the_library_it_needs(model, tmp_path):
    """The real script in this interpreter, which has no gptqmodel: its error arrives as a word."""
    here = Environment(name="gptqmodel", python=Path(sys.executable), versions={})
    with pytest.raises(InfrastructureError, match="gptqmodel failed: ModuleNotFoundError: No module named 'gptqmodel'"):
        run_backend(here, job(model, tmp_path / "made"))
