"""The registry: what is shipped, what other packages add, and what they cannot do."""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from qualgate.cli import app
from qualgate.errors import UsageError
from qualgate.metrics import METRICS
from qualgate.records import Case, Evalset
from qualgate.scoring import registry, text
from qualgate.scoring.tools.dialects import registry as dialects

TEMPLATE = Path(__file__).parent / "plugin_template"
CASE = Case(evalset="set", body={"id": "1", "max_words": 2})
EVALSET = Evalset(name="set", version="1", sha256="", metrics=())


Changes = tuple[tuple[str, str], ...]  # text of the template, and what stands there instead


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, project: Path = TEMPLATE) -> None:
    """What pip leaves of a package: its modules, and a dist-info with its name, version and entry points."""
    about = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    info = folder / f"{about['name'].replace('-', '_')}-{about['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {about['name']}\nVersion: {about['version']}\n")
    lines = []
    for group, entries in about["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {where}" for name, where in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    for module in project.glob("*.py"):
        shutil.copy(module, folder)
        monkeypatch.delitem(sys.modules, module.stem, raising=False)
    monkeypatch.syspath_prepend(str(folder))


@pytest.fixture
def altered(tmp_path, monkeypatch):
    """Install the template with some of its text replaced."""

    def install_altered(*, name: str = "plug-in", project: Changes = (), module: Changes = ()) -> None:
        folder = shutil.copytree(TEMPLATE, tmp_path / f"{name} source")
        for file, changes in (("pyproject.toml", project), ("qualgate_word_limit.py", module)):
            text = (folder / file).read_text()
            for old, new in changes:
                assert old in text
                text = text.replace(old, new)
            (folder / file).write_text(text)
        install(tmp_path / name, monkeypatch, folder)

    return install_altered


def test_every_quality_metric_has_exactly_one_shipped_scorer():
    theirs = ("lm_eval.", "format.")  # lm-eval's own, and those that need more than the text
    quality = [name for name, metric in METRICS.items() if metric.kind == "quality" and not name.startswith(theirs)]
    shipped = [metric for scorer in registry.SHIPPED if scorer.mode != "compat" for metric in scorer.metrics]
    shipped.append("tool_call.compat")  # BFCL's verdict, which the compat scorer gives under the strict one's name
    assert sorted(shipped) == sorted(quality)
    assert len({(scorer.name, scorer.mode) for scorer in registry.SHIPPED}) == len(registry.SHIPPED)


def test_an_unknown_scorer_is_named_with_those_there_are():
    with pytest.raises(
        UsageError, match=r"no scorer 'numerical'; there are: exact_match, numeric, math, json, tool_call"
    ):
        registry.find("numerical")


def test_a_mode_that_a_scorer_lacks_is_refused():
    with pytest.raises(UsageError, match="numeric has no compat mode, only: strict"):
        registry.find("numeric", "compat")


def forget() -> None:
    """What other packages offer is looked up once a process."""
    for looked_up in (dialects._plugins, dialects.dialect, text._declared, text._named):
        looked_up.cache_clear()


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    """What one test installed is not there for the next."""
    forget()
    yield
    monkeypatch.undo()
    forget()


@pytest.fixture
def template(tmp_path, monkeypatch):
    install(tmp_path / "site", monkeypatch)
    forget()


THIRTY_LINES = {  # what a case holds, what is answered rightly and wrongly, how it is asked for
    "qualgate_word_limit.py": ({"max_words": 2}, "two words", "now it is four", ("word_limit",)),
    "first_word.py": ({"answer": "yes"}, "yes indeed", "no, yes", ("exact_match", "--normalizer", "first_word")),
    "acme_dialect.py": (
        {
            "dialect": "acme",
            "tools": [{"name": "f", "parameters": {"type": "object"}}],
            "expected_calls": [{"name": "f", "arguments": {"a": 1}}],
        },
        'Sure: ⟦call f {"a": 1}⟧',
        '⟦call f {"a": 2}⟧',
        ("tool_call",),
    ),
}


@pytest.mark.parametrize("module", THIRTY_LINES)
def test_a_third_party_adds_one_in_thirty_lines(tmp_path, template, module):
    body, right, wrong, options = THIRTY_LINES[module]
    assert len((TEMPLATE / module).read_text(encoding="utf-8").splitlines()) <= 30
    cases, outputs, out = (tmp_path / name for name in ("cases.jsonl", "outputs.jsonl", "scores.jsonl"))
    cases.write_text("".join(json.dumps({"id": id, **body}) + "\n" for id in "ab"))
    outputs.write_text(
        "".join(json.dumps({"id": id, "text": said}) + "\n" for id, said in (("a", right), ("b", wrong)))
    )
    done = CliRunner().invoke(app, ["score", "--scorer", *options, str(cases), str(outputs), "--json", str(out)])
    assert done.exit_code == 0, done.output
    assert [json.loads(line)["verdict"] for line in out.read_text().splitlines()] == [True, False]


def test_a_case_without_what_a_plug_in_needs_is_named(tmp_path, monkeypatch):
    install(tmp_path / "site", monkeypatch)
    assert list(registry.find("word_limit").unscorable({"id": "1"}, EVALSET)) == [
        "word_limit needs `max_words`; it is missing"
    ]


def test_a_plug_in_reads_the_options_that_it_declares_and_no_others(altered):
    altered()
    plain = registry.find("word_limit")
    for given in ({"normalizers": ["strip"], "lenient": []}, {"normalizers": [], "lenient": ["code_fence"]}):
        with pytest.raises(UsageError, match=r"word_limit \(strict\) reads no"):
            registry.refuse_without_effect(plain, **given)
    with pytest.raises(
        UsageError, match=r"--dialect hermes: the scorer word_limit \(strict\) reads no dialect; of tool_call"
    ):
        registry.in_dialect(plain, "hermes")


def test_a_plug_in_may_read_every_option(altered):
    altered(
        module=(("needs=(", 'normalizes=True, lenient=("code_fence",), written_in=lambda name: word_limit, needs=('),)
    )
    eager = registry.find("word_limit")
    registry.refuse_without_effect(eager, ["strip"], ["code_fence"])
    [found] = registry.in_dialect(eager, "hermes").function(CASE, EVALSET, "two words").values()
    assert (found.verdict, found.scorer) == (True, "word_limit/1 hermes")


def test_a_shipped_scorer_cannot_be_replaced(altered):
    altered(project=(("word_limit =", "numeric ="),))
    for name in ("numeric", "json"):  # the user believes that theirs is at work: said at once
        with pytest.raises(UsageError, match=r"package qualgate-word-limit 1\.0 offers 'numeric'.*cannot be replaced"):
            registry.find(name)


def test_two_packages_of_one_name_are_both_named(altered):
    altered(name="one")
    altered(name="two", project=(("qualgate-word-limit", "other-limit"),))
    with pytest.raises(UsageError, match=r"word-limit 1\.0.*both offer 'word_limit'") as error:
        registry.find("word_limit")
    assert "other-limit" in str(error.value)


BROKEN = {
    "its module raises": (("VERSION =", "1 / 0\nVERSION ="), "raises ZeroDivisionError"),
    "its module is not there": (("qualgate_word_limit:", "qualgate_not_there:"), "raises ModuleNotFoundError"),
    "it is no Scorer": (("SCORER = Scorer(", "SCORER = dict("), "is a dict, not a qualgate.scoring.scorer.Scorer"),
    "it has another name": (('name="word_limit"', 'name="words"'), "is a Scorer called 'words'"),
    "it has no version": (('VERSION = "word_limit/1"', 'VERSION = ""'), "version ''"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_package_is_named_when_it_is_asked_for_and_harms_no_other(altered, what):
    change, said = BROKEN[what]
    altered(**{"project" if what == "its module is not there" else "module": (change,)})
    with pytest.raises(UsageError, match=r"word.limit") as error:
        registry.find("word_limit")
    assert said in str(error.value)
    assert registry.find("numeric").name == "numeric"


MISBEHAVING = {
    "it raises": ("words, limit =", "raise RuntimeError('\\x1b[31mno')\n    words, limit =", "RuntimeError"),
    "a metric is not scored": ('return {"word_limit": right', 'return {"other": right', "KeyError"),
    "it says no Score": ('right("word_limit", VERSION, str(words))', "True", "AttributeError"),
    "its value is no rate": (
        'right("word_limit", VERSION, str(words))',
        'Score(metric="word_limit", value=7.0, verdict=True)',
        "the value 7.0",
    ),
}


@pytest.mark.parametrize("what", MISBEHAVING)
def test_a_plug_in_that_misbehaves_decides_nothing(altered, what):
    old, new, said = MISBEHAVING[what]
    altered(module=((old, new),))
    [found] = registry.find("word_limit").function(CASE, EVALSET, "two words").values()
    assert (found.metric, found.value, found.verdict, found.error_type) == ("word_limit", None, None, "scorer_failed")
    assert said in found.reason
    assert found.reason.isprintable()
