"""An installed wheel alone carries everything: command line, demo, evalsets, migrations, dashboard."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.house.imports import SOURCES
from tests.verification.escapes.hostile import ESCAPES, FORGERIES

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """As where there is no C compiler: the kernels alone take longer than all the rest."""
    return unpacked(tmp_path_factory.mktemp("wheel"), CC="/bin/false")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> Path:
    return unpacked(tmp_path_factory.mktemp("compiled"))


def unpacked(folder: Path, **environment: str) -> Path:
    """The wheel, built from a copy of what git would ship and unpacked into a folder of its own."""
    source = folder / "source"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    for name in filter(None, listed):
        origin = ROOT / os.fsdecode(name)
        if origin.is_file() and not name.startswith(b"tests/"):
            (source / os.fsdecode(name)).parent.mkdir(parents=True, exist_ok=True)
            (source / os.fsdecode(name)).write_bytes(origin.read_bytes())
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index",
         "--wheel-dir", str(folder), str(source)],
        check=True, capture_output=True, env={**os.environ, **environment},
    )  # fmt: skip
    [wheel] = folder.glob("*.whl")
    site = folder / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def isolated(installed: Path, *code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run Python with the unpacked wheel in front of everything else, far from the checkout."""
    return subprocess.run(
        [sys.executable, *code],
        capture_output=True, text=True, cwd=cwd, check=False, env={**os.environ, "PYTHONPATH": str(installed)},
    )  # fmt: skip


def test_every_package_of_the_checkout_is_declared():
    declared = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    found = {
        ".".join((package, *path.parent.relative_to(folder).parts))
        for package, folder in SOURCES.items()
        for path in folder.rglob("*.py")
    }
    makers = {f"qualgate_evalsets.{name}" for name in ("families", "languages", "making")}
    assert found - declared == {"qualgate.refmodel.training", *makers}


def test_the_wheel_holds_no_proof_and_no_attack(installed):
    assert not (installed / "tests").exists()
    assert not [*installed.rglob("making"), *installed.rglob("training")]
    whole = "".join(path.read_text(encoding="utf-8") for path in installed.rglob("*.py"))
    attacks = [*FORGERIES.values(), *(text for text, _ in ESCAPES.values())]
    assert not [text for text in attacks if len(text) > 60 and text.strip() in whole]


def test_the_wheel_plans_the_demo_from_its_own_files(installed, tmp_path):
    code = (
        "import qualgate, qualgate_evalsets, qualgate_app, qualgate_migrations, qualgate_kernels, pathlib, sys;"
        "from qualgate import refmodel; from qualgate.cli import main;"
        f"root = pathlib.Path({str(installed)!r});"
        "modules = (qualgate, qualgate_evalsets, qualgate_app, qualgate_migrations, qualgate_kernels);"
        "assert all(root in pathlib.Path(next(iter(m.__path__))).parents for m in modules);"
        "assert root in pathlib.Path(refmodel.PATH).parents; sys.argv = ['qualgate', 'plan', 'gate.yaml']; main()"
    )
    demo = (installed / "qualgate" / "refmodel" / "demo.yaml").read_bytes()
    (tmp_path / "gate.yaml").write_bytes(demo)
    planned = isolated(installed, "-c", code, cwd=tmp_path)
    assert planned.returncode == 0, planned.stderr
    assert "int2-g32" in planned.stdout


@pytest.mark.proof
def test_the_wheel_runs_a_gate_file_and_its_dashboard_starts(compiled, tmp_path):
    lines = (compiled / "qualgate" / "refmodel" / "demo.yaml").read_text().splitlines()
    kept = [line for line in lines if not line.startswith(("  int4-g32:", "  mxfp4:", "  int2-g32:"))]
    kept = ["evalsets: [json_extract]" if line.startswith("evalsets:") else line for line in kept]
    kept = [line for line in kept if "tool_call" not in line]
    (tmp_path / "gate.yaml").write_text("\n".join(kept) + "\n")
    done = isolated(compiled, "-m", "qualgate", "run", "gate.yaml", cwd=tmp_path)
    assert done.returncode in (0, 12), done.stdout + done.stderr
    assert "int8" in done.stdout.splitlines()[-1]
    code = (
        "import os, qualgate_app; os.environ['QUALGATE_STORE'] = 'sqlite:///qualgate.db';"
        "from pathlib import Path; from streamlit.testing.v1 import AppTest;"
        "page = AppTest.from_file(str(Path(qualgate_app.__file__).with_name('main.py')), default_timeout=60).run();"
        "assert not page.exception, page.exception"
    )
    shown = isolated(compiled, "-c", code, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
