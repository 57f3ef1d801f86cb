"""The C kernels under the compiler's sanitizers: programs that draw calls, check the results, and try what must be
refused. Every source is compiled once for each sanitizer."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from qualgate_kernels import cpu
from qualgate_kernels.cpu.library import PATHS

pytestmark = pytest.mark.proof
SOURCES = Path(cpu.__file__).parent / "c"
FLAGS = ["-std=gnu11", "-Wno-psabi", "-ffp-contract=off", "-pthread", "-O1", "-fno-sanitize-recover=all"]


@pytest.fixture(scope="module")
def linked(tmp_path_factory):
    """A function (program, sanitizer) → its executable."""
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    objects: dict[str, list[str]] = {}

    def compiled(folder: Path, flags: list[str]) -> list[str]:
        probe = folder / "probe.c"
        probe.write_text("int main(void) { return 0; }\n")
        built = subprocess.run([compiler, *flags, probe, "-o", folder / "probe"], capture_output=True)
        if built.returncode or subprocess.run([folder / "probe"], capture_output=True).returncode:
            pytest.skip(f"no {flags[-1]}")
        for source in SOURCES.glob("*.c"):
            subprocess.run([compiler, *flags, "-c", source, "-o", folder / f"{source.stem}.o"], check=True)
        return sorted(map(str, folder.glob("*.o")))

    def link(program: str, sanitizer: str) -> Path:
        flags = [*FLAGS, f"-fsanitize={sanitizer}"]
        folder = tmp_path_factory.mktemp("sanitized")
        if sanitizer not in objects:
            objects[sanitizer] = compiled(folder, flags)
        source, made = Path(__file__).with_name(f"{program}.c"), folder / program
        command = [compiler, *flags, f"-I{SOURCES}", source, *objects[sanitizer], "-lm", "-o", made]
        subprocess.run(command, check=True)
        return made

    return link


@pytest.mark.parametrize(
    ("program", "draws", "sanitizer"),
    [
        ("sanitize", 60, "address,undefined"),
        ("sanitize_attend", 600, "address,undefined"),
        ("sanitize_attend", 600, "thread"),
        ("sanitize_likeliest", 600, "address,undefined"),
        ("sanitize_likeliest", 600, "thread"),
        ("sanitize_decode", 200, "address,undefined"),
        ("sanitize_decode", 30, "thread"),
    ],
)
def test_c_is_clean_under_sanitizers_and_refuses_what_does_not_fit(linked, program, draws, sanitizer):
    paths = [str(PATHS["avx512"])] if program == "sanitize_decode" else []
    done = subprocess.run([linked(program, sanitizer), "2026", str(draws), *paths], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{draws} draws")
