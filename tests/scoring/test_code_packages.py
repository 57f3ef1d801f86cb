"""What a program imports: declared, it is there; undeclared, the model's fault; not to be had, nobody's."""

from __future__ import annotations

import pytest

from qualgate.sandbox import packages
from qualgate.sandbox.packages import NoPackages, Packages
from qualgate.scoring.code import METRIC, SCORER, score_code

CASE = {"fn_name": "f", "tests": [{"args": [3], "returns": 9}], "packages": ["squares"]}
USES = "import squares\ndef f(x): return squares.of(x)\n"
NUMBER = "class int64:\n    shape = ()\n    def __init__(s, n): s.n = n\n    def item(s): return s.n\n"


@pytest.fixture
def squares(tmp_path, monkeypatch):
    """The package as it would have been installed, without pip."""
    (tmp_path / "squares.py").write_text("def of(x): return x * x\n")
    (tmp_path / "numpy.py").write_text(NUMBER)  # of numpy, what is asked of a number of its own
    tmp_path.chmod(0o755)
    held = Packages(folder=str(tmp_path), requested=("squares==1.0",), versions=("squares==1.0",), sha256="ab" * 32)

    def installed(wanted):
        if "missing" in wanted:
            raise NoPackages("pip installs no wheels of missing here: none found")
        return held

    monkeypatch.setattr(packages, "installed", installed)
    monkeypatch.setattr(packages, "_try", lambda wanted, sandbox: None)
    packages._of_this_process.cache_clear()
    yield
    packages._of_this_process.cache_clear()


def judged(sandbox, answer: str, **body):
    return score_code(CASE | body, answer, sandbox=sandbox)[METRIC]


def test_a_declared_package_is_imported_and_named_by_the_score(sandbox, squares):
    score = judged(sandbox, USES)
    assert (score.verdict, score.scorer) == (True, f"{SCORER} packages:squares==1.0:abababababab")
    reads = "import squares\nprint(squares.of(int(input())))"
    body = {"packages": ["squares"], "tests": [{"stdin": "3", "stdout": "9"}]}
    assert score_code(body, reads, sandbox=sandbox)[METRIC].verdict is True


@pytest.mark.parametrize("answer", ["", "x = '\ud800'", "def f(x): return 1\n"])
def test_every_answer_is_scored_by_one_version(sandbox, squares, answer):
    score = judged(sandbox, answer)
    assert (score.verdict, score.scorer) == (False, judged(sandbox, USES).scorer)


def test_a_package_that_is_not_declared_is_the_model_s_fault_once_any_is(sandbox, squares):
    score = judged(sandbox, "import pandas\ndef f(x): return x * x\n")
    assert (score.verdict, score.error_type) == (False, "exception")
    undeclared = {key: value for key, value in CASE.items() if key != "packages"}
    score = score_code(undeclared, "import pandas\ndef f(x): return 9\n", sandbox=sandbox)[METRIC]
    assert (score.verdict, score.error_type, score.scorer) == (None, "no_library", SCORER)


def test_a_package_that_cannot_be_had_is_nobody_s_verdict(sandbox, squares):
    score = judged(sandbox, USES, packages=["missing"])
    assert (score.verdict, score.error_type) == (None, "no_packages")
    assert "no wheels of missing" in score.reason
    assert judged(sandbox, USES, packages=["../squares"]).error_type == "tests"


def test_a_number_of_numpy_s_is_the_number(sandbox, squares):
    gives = "import numpy\ndef f(x): return numpy.int64({})\n"
    assert judged(sandbox, gives.format("x * x")).verdict is True
    assert judged(sandbox, gives.format("x + x")).error_type == "wrong_value"
    assert judged(sandbox, gives.format("[x * x]")).error_type == "wrong_value"
