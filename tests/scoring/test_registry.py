"""The registries of scorers, dialects and normalizers: what other packages add, and what they cannot do."""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from qualgate.cli import app
from qualgate.errors import UsageError
from qualgate.records import Case, Evalset
from qualgate.records.metrics import METRICS
from qualgate.scoring import registry, text
from qualgate.scoring.exact_match import score_exact_match
from qualgate.scoring.tools.dialects import Call
from qualgate.scoring.tools.dialects import registry as dialects
from qualgate.scoring.tools.dialects.detect import other_readings, readings
from tests.scoring.tools.published import TOOLS

TEMPLATE = Path(__file__).parent / "plugin_template"
CASE = Case(evalset="set", body={"id": "1", "max_words": 2})
EVALSET = Evalset(name="set", version="1", sha256="", metrics=())


def test_every_quality_metric_has_exactly_one_shipped_scorer():
    theirs = ("lm_eval.", "format.")  # lm-eval's own, and those that need more than the text
    quality = [name for name, metric in METRICS.items() if metric.kind == "quality" and not name.startswith(theirs)]
    shipped = [metric for scorer in registry.SHIPPED if scorer.mode != "compat" for metric in scorer.metrics]
    shipped.append("tool_call.compat")  # BFCL's verdict, which the compat scorer gives under the strict one's name
    assert sorted(shipped) == sorted(quality)
    assert len({(scorer.name, scorer.mode) for scorer in registry.SHIPPED}) == len(registry.SHIPPED)


def install(project: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave what pip leaves of a package: its modules, and a dist-info with its name, version and entry points."""
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


def forget() -> None:
    """What other packages offer is looked up once a process."""
    for looked_up in (dialects._plugins, dialects.dialect, text._declared, text._named):
        looked_up.cache_clear()


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install the template with some of its text replaced, each change wherever its text stands."""

    def install_altered(*changes: tuple[str, str], name: str = "plug-in") -> None:
        folder = Path(shutil.copytree(TEMPLATE, tmp_path / f"{name} source"))
        contents = {path: path.read_text(encoding="utf-8") for path in folder.iterdir() if path.is_file()}
        for old, new in changes:
            assert any(old in content for content in contents.values())
            contents = {path: content.replace(old, new) for path, content in contents.items()}
        for path, content in contents.items():
            path.write_text(content, encoding="utf-8")
        install(folder, tmp_path / name, monkeypatch)
        forget()

    forget()
    yield install_altered
    monkeypatch.undo()
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
def test_a_third_party_adds_one_in_thirty_lines(tmp_path, installed, module):
    installed()
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


def test_a_dialect_of_another_package_is_detected_and_blamed_like_any_other(installed):
    installed()
    acme, calls = dialects.dialect("acme"), (Call("f", {"a": [1, ""]}), Call("ping", {}))
    assert dialects.names()[-1] == "acme"
    assert acme.parse(f"Sure: {acme.serialise(calls)}") == calls
    assert [*readings('⟦call f {"a": 1}⟧')] == ["acme"]
    assert [*other_readings('⟦call ping {"a": 1}⟧', "hermes", TOOLS)] == ["acme"]
    with pytest.raises(UsageError, match="did you mean hermes"):
        dialects.dialect("hermess")


def test_a_case_without_what_a_plug_in_needs_is_named(installed):
    installed()
    [fault] = registry.find("word_limit").unscorable({"id": "1"}, EVALSET)
    assert fault == "word_limit needs `max_words`; it is missing"


def test_a_plug_in_reads_the_options_that_it_declares_and_no_others(installed):
    installed()
    plain = registry.find("word_limit")
    for given in ({"normalizers": ["strip"], "lenient": []}, {"normalizers": [], "lenient": ["code_fence"]}):
        with pytest.raises(UsageError, match=r"word_limit \(strict\) reads no"):
            registry.refuse_without_effect(plain, **given)
    unread = r"--dialect hermes: the scorer word_limit \(strict\) reads no dialect; of tool_call"
    with pytest.raises(UsageError, match=unread):
        registry.in_dialect(plain, "hermes")


def test_a_plug_in_may_read_every_option(installed):
    every = 'normalizes=True, lenient=("code_fence",), written_in=lambda name: word_limit, needs=('
    installed(("needs=(", every))
    eager = registry.find("word_limit")
    registry.refuse_without_effect(eager, ["strip"], ["code_fence"])
    [found] = registry.in_dialect(eager, "hermes").function(CASE, EVALSET, "two words").values()
    assert (found.verdict, found.scorer) == (True, "word_limit/1 hermes")


LOOKS: dict[str, Callable[[], object]] = {  # what is offered, and what looks for it
    "word_limit": lambda: registry.find("word_limit"),
    "acme": lambda: dialects.dialect("acme"),
    "first_word": lambda: text.normalize("a b", ["first_word"]),
}


@pytest.mark.parametrize(
    ("change", "look", "name"),
    [
        (("word_limit =", "numeric ="), lambda: registry.find("numeric"), "numeric"),
        (("word_limit =", "numeric ="), lambda: registry.find("json"), "numeric"),  # the user believes it is at work
        (("acme =", "hermes ="), dialects.names, "hermes"),
        (("first_word =", "nfc ="), text.known, "nfc"),
    ],
)
def test_what_is_shipped_cannot_be_replaced(installed, change, look, name):
    installed(change)
    with pytest.raises(UsageError, match=rf"package qualgate-word-limit 1\.0 offers '{name}'.*cannot be replaced"):
        look()
    assert text.normalize("e\u0301", ["nfc"]) == "é"


@pytest.mark.parametrize("name", LOOKS)
def test_two_packages_of_one_name_are_both_named(installed, name):
    installed(name="one")
    installed(("qualgate-word-limit", "other-limit"), name="two")
    with pytest.raises(UsageError, match=rf"word-limit 1\.0.*both offer '{name}'") as error:
        LOOKS[name]()
    assert "other-limit" in str(error.value)


BROKEN = {  # what is asked for, a change, what is said
    "its module raises": ("word_limit", ("VERSION =", "1 / 0\nVERSION ="), "raises ZeroDivisionError"),
    "its module is not there": ("word_limit", ("qualgate_word_limit:", "not_there:"), "raises ModuleNotFoundError"),
    "it is no Scorer": ("word_limit", ("SCORER = Scorer(", "SCORER = dict("), "is a dict, not a qualgate.scoring.scor"),
    "it has another name": ("word_limit", ('name="word_limit"', 'name="words"'), "is a Scorer called 'words'"),
    "it has no version": ("word_limit", ('VERSION = "word_limit/1"', 'VERSION = ""'), "version ''"),
    "it is no Dialect": ("acme", ("ACME = Dialect(", "ACME = dict("), "is a dict, not a qualgate.scoring.tools"),
    "a dialect of another name": ("acme", ('name="acme"', 'name="other"'), "is a Dialect called 'other'"),
    "a normalizer that is not there": ("first_word", ("first_word:first_word", "first_word:gone"), "cannot be used"),
    "a normalizer that gives no text": ("first_word", ("return text", "return 5 or text"), "gave int"),
    "a normalizer that raises": ("first_word", ("return text", "return 1 / 0 or text"), "raised ZeroDivisionError"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_package_is_named_when_it_is_asked_for_and_harms_no_other(installed, what):
    name, change, said = BROKEN[what]
    installed(change)
    with pytest.raises(text.NormalizerFault if name == "first_word" else UsageError, match=name) as error:
        LOOKS[name]()
    assert said in str(error.value)
    assert {"first_word", "strip"} <= set(text.known())
    assert registry.find("numeric").name == "numeric"
    assert dialects.dialect("hermes").name == "hermes"
    if "normalizer" in what:
        found = score_exact_match({"answer": "b"}, "a", ["first_word"])["exact_match"]
        assert (found.verdict, found.error_type) == (None, "normalizer")


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
def test_a_plug_in_that_misbehaves_decides_nothing(installed, what):
    old, new, said = MISBEHAVING[what]
    installed((old, new))
    [found] = registry.find("word_limit").function(CASE, EVALSET, "two words").values()
    assert (found.metric, found.value, found.verdict, found.error_type) == ("word_limit", None, None, "scorer_failed")
    assert said in found.reason
    assert found.reason.isprintable()
