"""What `import qualgate` gives: five functions and their records, loaded when they are first asked for."""

from __future__ import annotations

import ast
import doctest
import inspect
import json
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import qualgate

FUNCTIONS = ("judge", "load_gate_file", "load_report", "make_plan", "run_gate", "score_outputs")
GATE_FILE = """\
version: 1
baseline: {model: ./fp32}
variants: {int4: {model: ./int4}}
evalsets: [{name: questions, cases: external}]
gate:
  rules: [{metric: exact_match, max_drop: 0.05}]
"""


def test_all_is_what_the_package_gives_at_run_time_and_to_a_type_checker():
    tree = ast.parse(Path(qualgate.__file__).read_text(encoding="utf-8"))
    (checking,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name for node in checking.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    own = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")}
    assert own | qualgate._HOME.keys() == set(qualgate.__all__)
    assert qualgate._HOME.keys() <= seen
    assert set(qualgate.__all__) <= set(dir(qualgate))
    for name in qualgate.__all__:
        found = getattr(qualgate, name)
        assert inspect.getdoc(found), name
        assert inspect.isfunction(found) == (name in FUNCTIONS), name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        qualgate.__getattr__("nothing")


def test_no_function_is_named_as_a_module_nor_hidden_by_one_that_is_imported():
    for module in ("qualgate.gate.decide", "qualgate.run", "qualgate.pipeline.plan", "qualgate.report.summary"):
        import_module(module)
    assert {module.name for module in pkgutil.iter_modules(qualgate.__path__)}.isdisjoint(qualgate.__all__)
    assert all(inspect.isfunction(getattr(qualgate, name)) for name in FUNCTIONS)


def test_the_signatures_are_typed():
    for name in FUNCTIONS:
        signature = inspect.signature(getattr(qualgate, name))
        assert signature.return_annotation is not inspect.Signature.empty, name
        assert all(one.annotation is not inspect.Parameter.empty for one in signature.parameters.values()), name


def test_importing_the_package_loads_nothing():
    code = "import sys, qualgate; print([m for m in sys.modules if m.startswith(('qualgate.', 'torch', 'sqlalchemy'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def examples() -> list[list[doctest.Example]]:
    """The package's, from one import to the next."""
    found: list[list[doctest.Example]] = []
    for one in doctest.DocTestParser().get_examples(qualgate.__doc__ or ""):
        if one.source.startswith("import "):
            found.append([])
        found[-1].append(one)
    return found


def write(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_the_examples_of_the_package_do_what_they_show(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run, *others = examples()
    assert len(others) == 2
    assert "qualgate.run_gate(" in run[1].source  # needs models: `tests/run` runs them
    Path("gate.yaml").write_text(GATE_FILE)
    for name in ("baseline", "variant"):
        said = {"metric": "exact_match", "scorer": "exact_match/1", "model": name}
        write(
            Path(f"{name}.jsonl"),
            [{"id": f"c{n}", "value": int(n < 290), "case_hash": f"h{n}", **said} for n in range(300)],
        )
    write(Path("cases.jsonl"), [{"id": "a", "answer": "yes"}, {"id": "b", "answer": "no"}])
    write(Path("outputs.jsonl"), [{"id": "a", "text": "yes"}, {"id": "b", "text": "perhaps"}])
    for example in others:
        test = doctest.DocTest(example, {}, "qualgate", None, None, qualgate.__doc__)
        told: list[str] = []
        assert doctest.DocTestRunner().run(test, out=told.append).failed == 0, "".join(told)


def test_a_gate_file_is_taken_as_a_path_as_a_text_and_as_it_was_read(tmp_path):
    file = tmp_path / "gate.yaml"
    file.write_text(GATE_FILE)
    loaded = qualgate.load_gate_file(file, files=False)
    rows = tmp_path / "a.jsonl"
    write(rows, [{"id": "1", "metric": "exact_match", "value": 1}])
    for gate in (file, str(file), loaded):
        with pytest.raises(qualgate.UsageError, match="two arms"):
            qualgate.judge(gate, baseline=rows, variants=str(rows))
        with pytest.raises(qualgate.UsageError):  # the models are not there
            qualgate.make_plan(gate)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "to compare with the baseline's"),
        (("baseline",), "cannot be a variant's name"),
        (("a@torch",), "'a@torch' cannot"),
    ],
)
def test_a_variant_that_cannot_be_one_is_refused(tmp_path, names, message):
    (tmp_path / "gate.yaml").write_text(GATE_FILE)
    write(tmp_path / "a.jsonl", [{"id": "1", "metric": "exact_match", "value": 1}])
    write(tmp_path / "b.jsonl", [{"id": "1", "metric": "exact_match", "value": 0}])
    with pytest.raises(qualgate.UsageError, match=message):
        qualgate.judge(tmp_path / "gate.yaml", tmp_path / "a.jsonl", dict.fromkeys(names, tmp_path / "b.jsonl"))
