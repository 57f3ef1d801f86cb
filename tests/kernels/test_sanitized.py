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
PARTS = {
    "sanitize_attend": ("attend*.c", "pool.c"),
    "sanitize_likeliest": ("likeliest*.c", "kl*.c", "rows.c", "pool.c"),
}
"""Sources that a program is linked with; the others' are all."""


@pytest.fixture(scope="module")
def compiler() -> str:
    found = shutil.which("gcc") or shutil.which("clang")
    if found is None:
        pytest.skip("no C compiler")
    return found


@pytest.fixture(scope="module", params=["address,undefined", "thread"])
def built(request, compiler, tmp_path_factory):
    """The sanitizer, and a function (source, what it is linked with) → its object, or the program."""
    flags, folder = [*FLAGS, f"-fsanitize={request.param}"], tmp_path_factory.mktemp("sanitized")
    (folder / "probe.c").write_text("int main(void) { return 0; }\n")
    probe = subprocess.run([compiler, *flags, folder / "probe.c", "-o", folder / "probe"], capture_output=True)
    if probe.returncode or subprocess.run([folder / "probe"], capture_output=True).returncode:
        pytest.skip(f"no {request.param} sanitizer")

    def build(source: Path, *objects: Path) -> Path:
        made = folder / f"{source.stem}{'' if objects else '.o'}"
        if not made.exists():
            how = [*objects, "-lm"] if objects else ["-c"]
            subprocess.run([compiler, *flags, f"-I{SOURCES}", source, *how, "-o", made], check=True)
        return made

    return request.param, build


@pytest.mark.parametrize(
    ("program", "draws", "threaded"),  # how many under the first sanitizer, and under that of threads
    [
        ("sanitize", 60, 10),
        ("sanitize_attend", 200, 100),
        ("sanitize_likeliest", 600, 600),
        ("sanitize_decode", 200, 30),
    ],
)
def test_c_is_clean_under_sanitizers_and_refuses_what_does_not_fit(built, program, draws, threaded):
    sanitizer, build = built
    draws = threaded if sanitizer == "thread" else draws
    sources = [source for part in PARTS.get(program, ("*.c",)) for source in sorted(SOURCES.glob(part))]
    made = build(Path(__file__).with_name(f"{program}.c"), *map(build, sources))
    paths = [str(PATHS["avx512"])] if program == "sanitize_decode" else []
    done = subprocess.run([made, "2026", str(draws), *paths], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{draws} draws")
