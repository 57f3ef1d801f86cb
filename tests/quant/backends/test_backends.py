"""Backends from the outside: environments, orders and answers, with a stand-in for the library's interpreter."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from qualgate.errors import InfrastructureError, Interrupted, UsageError
from qualgate.quant.backends import environment as environments
from qualgate.quant.backends.call import run_backend
from qualgate.quant.backends.environment import NAMES, Environment, find, requirements_hash, set_up
from qualgate.quant.backends.job import METHODS, backend_job
from qualgate.records import QuantizeRecipe

FINISHED = "qualgate-backend.json"


def ready(folder: Path, name: str = "gptqmodel", requirements: str | None = None, now: str = "2.13.0") -> Path:
    """A finished environment's files, made with torch 2.13.0; its interpreter says what it holds now, and no more."""
    (folder / name / "bin").mkdir(parents=True)
    python = folder / name / "bin" / "python"
    python.write_text(f"#!/bin/sh\necho '{json.dumps({'torch': now})}'\n")
    python.chmod(0o755)
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
    with pytest.raises(UsageError, match="unknown backend 'vllm'; known: gptqmodel, llmcompressor, auto-gptq, autoawq"):
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


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda python: python.write_text("#!/bin/sh\nexit 1\n"), "the interpreter in .* does not run"),
        (lambda python: python.chmod(0o644), "the interpreter in .* does not run"),
        (lambda python: python.write_text('#!/bin/sh\necho "{}"\n'), "no longer has the packages it was made with"),
    ],
    ids=["fails", "does not start", "lost packages"],
)
def test_what_is_damaged_is_made_again(tmp_path, monkeypatch, damage, said):
    """Or the command that every error names would do nothing."""
    damage(ready(tmp_path) / "gptqmodel" / "bin" / "python")
    monkeypatch.setattr(environments.venv, "create", lambda place, **_: ready(place.parent))
    monkeypatch.setattr(environments, "_pip", lambda *_: None)
    heard: list[str] = []
    set_up("gptqmodel", tmp_path, heard.append)
    assert re.search(said, heard[0])
    assert heard[-1] == "gptqmodel: ready, torch 2.13.0"


def test_pip_is_heard_package_by_package(tmp_path):
    pip = tmp_path / "python"
    pip.write_text("#!/bin/sh\necho 'Collecting torch==2.13.0 (from -r x)'\necho '  Using cached torch.whl'\n")
    pip.chmod(0o755)
    heard: list[str] = []
    environments._pip("gptqmodel", pip, [], heard.append)
    assert heard == ["gptqmodel: Collecting torch==2.13.0 (from -r"]


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
    recipe = gptq(bits=4, act_order="group", symmetric=False)
    order = backend_job("gptqmodel", tmp_path, recipe, [(1, 2)], tmp_path / "out", "gptq_v2", "cuda")
    assert json.loads(json.dumps(order.as_json())) == {
        "backend": "gptqmodel", "model": str(tmp_path), "out": str(tmp_path / "out"), "method": "gptq",
        "format": "gptq_v2", "bits": 4, "group_size": 64, "symmetric": False, "act_order": "group", "granularity": "",
        "activations": "", "device": "cuda", "texts": [[1, 2]],
    }  # fmt: skip
    fp8 = QuantizeRecipe(method="fp8", group_size=0, activations="fp8", granularity="block")
    tiles = backend_job("llmcompressor", tmp_path, fp8, [], tmp_path / "o")
    assert (tiles.group_size, tiles.texts, tiles.activations, tiles.granularity) == (-1, (), "fp8", "block")
    assert (tiles.format, tiles.device) == ("compressed-tensors", "cpu")


@pytest.mark.parametrize(
    ("backend", "recipe", "said"),
    [
        ("autoawq", gptq(), "makes awq, not gptq. gptq is made by: gptqmodel, llmcompressor, auto-gptq"),
        ("auto-gptq", QuantizeRecipe(method="int8", group_size=0), "not int8. Without --backend qualgate makes it"),
        ("gptqmodel", gptq(keep=(("*", "int8"),)), "does not support `keep`"),
        ("gptqmodel", gptq(clip="mse"), "does not support `clip`"),
        ("autoawq", QuantizeRecipe(method="awq", group_size=64, bits=3, symmetric=False),
         "autoawq makes only asymmetric 4-bit weights, not awq int3 g64"),
        ("autoawq", QuantizeRecipe(method="awq", group_size=64), "not awq g64 sym"),
        ("llmcompressor", gptq(act_order="group"), "only the act-order `static`"),
        ("llmcompressor", QuantizeRecipe(method="fp8", group_size=0, granularity="tensor"), "does not support `granul"),
        ("llmcompressor", QuantizeRecipe(method="nvfp4", group_size=16, calibration="./c.yaml"), "needs no data"),
        ("gptqmodel", gptq(), "gptq needs calibration data: give --calibration"),
    ],
)  # fmt: skip
def test_what_a_backend_cannot_make_is_refused_before_it_starts(tmp_path, backend, recipe, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        backend_job(backend, tmp_path, recipe, [], tmp_path / "out")


@pytest.mark.parametrize(
    ("backend", "method", "format"),
    [("gptqmodel", "awq", "gptq"), ("auto-gptq", "gptq", "gptq_v2"), ("llmcompressor", "gptq", "gptq")],
)
def test_a_format_that_a_backend_does_not_write_is_refused(tmp_path, backend, method, format):
    recipe = QuantizeRecipe(method=method, group_size=64)
    with pytest.raises(UsageError, match=f"Backend {backend} writes {method} as .*, not as {format}"):
        backend_job(backend, tmp_path, recipe, [(1,)], tmp_path / "out", format)


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
        ("print(json.dumps({'error': 'ImportError: libx'}))\nsys.exit(1)",
         "failed: ImportError: libx\nIts environment may be damaged. Make it with: qualgate quantize --setup-backend"),
        (WRITES + "os.abort()", "gptqmodel failed: it ended with"),
        ("print(json.dumps({'done': {}}))", "reported success, but wrote no safetensors file"),
    ],
    ids=["raises", "lacks a package", "dies", "writes nothing"],
)  # fmt: skip
def test_a_library_that_fails_is_quoted_and_leaves_no_folder(model, stand_in, tmp_path, code, said):
    with pytest.raises(InfrastructureError, match=re.escape(said)):
        run_backend(stand_in(code), job(model, tmp_path / "made"))
    assert not (tmp_path / "made").exists()
    assert not list(tmp_path.glob(".made-*"))


def test_a_model_the_library_cannot_take_is_the_users_to_change(model, stand_in, tmp_path):
    with pytest.raises(UsageError, match=r"gptqmodel: not this architecture"):
        run_backend(stand_in("print(json.dumps({'refused': 'not this architecture'}))"), job(model, tmp_path / "made"))


def test_an_interpreter_that_does_not_start_says_how_to_make_it(model, tmp_path):
    gone = Environment(name="gptqmodel", python=tmp_path / "gone", versions={}, folder=tmp_path)
    with pytest.raises(UsageError, match=rf"does not start .*--setup-backend gptqmodel --backend-dir {tmp_path}"):
        run_backend(gone, job(model, tmp_path / "made"))
    assert not list(tmp_path.glob(".made-*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_interruption_ends_the_library_too_and_leaves_nothing(model, stand_in, tmp_path, number, ctrl_c):
    """The stand-in waits for the end of its input, which only our own end would bring."""
    code = "print(json.dumps({'progress': str(os.getpid())}), flush=True)\nsys.stdin.buffer.read()\n" + WRITES
    process: list[int] = []

    def interrupt(line: str) -> None:
        process.append(int(line.rpartition(" ")[2]))
        signal.raise_signal(number)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted, match="nothing was written") as raised:
        run_backend(stand_in(code), job(model, tmp_path / "made"), interrupt)
    assert raised.value.exit == 128 + number
    assert signal.getsignal(signal.SIGTERM) == before
    with pytest.raises(ProcessLookupError):
        os.kill(process[0], 0)
    assert not list(tmp_path.glob("*made*"))


def test_the_script_ends_when_the_one_who_asked_is_gone(tmp_path):
    """The real script, kept busy by a library that never returns."""
    (tmp_path / "gptqmodel.py").write_text("import threading\nthreading.Event().wait()\n")
    (tmp_path / "order.json").write_text(json.dumps({"backend": "gptqmodel", "device": "cpu"}))
    script = Path(environments.__file__).with_name("inside.py")
    begin = (
        f"import sys, runpy; sys.path.insert(0, {str(tmp_path)!r}); runpy.run_path({str(script)!r}, {{}}, '__main__')"
    )
    with subprocess.Popen(
        [sys.executable, "-c", begin, str(tmp_path / "order.json")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.poll() is None
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=60) == 1
        assert process.stdout is not None
        assert process.stdout.read() == b""  # it had no word to say: an error of its own would be one


def test_a_folder_that_is_there_is_never_written_over(model, stand_in, tmp_path):
    (tmp_path / "made").mkdir()
    with pytest.raises(UsageError, match="already exists"):
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
