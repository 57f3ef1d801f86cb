"""Paged attention in C under the compiler's sanitizers: `sanitize_attend.c`, which draws calls and checks them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from qualgate_kernels import cpu

SOURCES = Path(cpu.__file__).parent / "c"


@pytest.mark.proof
@pytest.mark.parametrize("draws", [60, pytest.param(600, marks=pytest.mark.proof)])
@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_attention_in_c_is_clean_under_sanitizers_and_refuses_what_does_not_fit(sanitizers, draws, tmp_path):
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    flags = ["-std=gnu11", "-Wno-psabi", "-ffp-contract=off", "-pthread", "-O1", f"-fsanitize={sanitizers}"]
    flags.append("-fno-sanitize-recover=all")
    empty = tmp_path / "empty.c"
    empty.write_text("int main(void) { return 0; }\n")
    probe = subprocess.run([compiler, *flags, str(empty), "-o", str(tmp_path / "empty")], capture_output=True)
    if probe.returncode or subprocess.run([str(tmp_path / "empty")], capture_output=True).returncode:
        pytest.skip(f"no {sanitizers} sanitizer")
    sources = sorted(map(str, SOURCES.glob("attend*.c")))
    sources += [str(SOURCES / "pool.c"), str(Path(__file__).with_name("sanitize_attend.c"))]
    program = str(tmp_path / "sanitize_attend")
    subprocess.run([compiler, *flags, f"-I{SOURCES}", *sources, "-o", program, "-lm"], check=True)
    done = subprocess.run([program, "2026", str(draws)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{draws} draws\n"
