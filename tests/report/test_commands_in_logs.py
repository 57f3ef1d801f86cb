"""A CI runner reads what a job prints and obeys some lines of it: no text of others becomes such a line."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import qualgate.cli
from qualgate.cli.stderr import tell
from qualgate.cli.stdout import say
from qualgate.report.formats import FORMATS, rendered
from qualgate.report.formats.github import KINDS
from qualgate.report.screen import fit
from qualgate.report.summary import Report, load_report
from qualgate.report.terminal import print_report
from qualgate.store.database import open_store
from qualgate.text.escaping import unread, visible, visible_line
from tests.depth import examples
from tests.report.reading import hostile
from tests.store.made import make_plan, make_run

GITHUB = (
    "error", "warning", "notice", "debug", "group", "endgroup", "add-mask", "add-path", "add-matcher", "echo",
    "set-output", "set-env", "save-state", "stop-commands", "pwned",
)  # fmt: skip


def obeyed(line: str) -> bool:
    """Whether a runner would: written after GitHub's, Azure's, TeamCity's and GitLab's own descriptions."""
    head, mark, rest = line.strip().partition("::")
    if mark and not head and "::" in rest and rest.split("::")[0].split(" ")[0] in GITHUB:
        return True
    for prefix in ("##[", "##vso[", "##teamcity["):
        if prefix in line:
            return True
    return bool(re.search(r"section_(start|end):", line))


PIECES = st.sampled_from(
    ["::error::pwned", "::error file=x,line=1::y", "::add-mask::e", "::stop-commands::t", "##[error]x",
     "##vso[task.x]y",
     "##teamcity[x]", "section_start:1:a\r\x1b[0K", "section_end:1:a", "###[group]", "#", ":", "::", " ", "\n", "\r",
     "\t", "\u2028", "\x0b", "\x85", "\u200b", "a", "x" * 82, "|", "`", "```", "&", "<", "\\", "- ", "::error::" * 3]
)  # fmt: skip
TEXTS = st.lists(PIECES, min_size=1, max_size=8).map("".join)


@given(TEXTS)
@examples(300)
def test_visible_text_is_no_command_on_any_of_its_lines(text: str) -> None:
    for shown in (visible(text), visible_line(text), unread(text)):
        assert not any(map(obeyed, shown.splitlines()))
        assert unread(shown) == shown
    for columns in (1, 7, 40):  # a line that is folded anywhere
        line = visible_line(text)
        folded = "\n".join(line[at : at + columns] for at in range(0, len(line), columns))
        assert not any(map(obeyed, unread(folded).splitlines()))


@given(TEXTS)
@examples(100)
def test_json_that_is_no_command_is_the_same_json(text: str) -> None:
    assert json.loads(unread(json.dumps({text: [text]}, indent=2))) == {text: [text]}


def test_text_that_is_no_command_stays_as_it_is() -> None:
    for text in ("std::vector<int>", "a[::-1]", "f :: Int -> Int", "# Title", "## [a link](x)", "section_one", "a: b"):
        assert visible(text) == text


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    url = f"sqlite:///{tmp_path_factory.mktemp('logs') / 'q.db'}"
    with open_store(url) as store:
        make_run(store, make_plan(cases=20, wrong={"int8": 0.0, "int2-g32": 0.3}))
    return load_report(url)


def with_text(report: Report, text: str) -> Report:
    """Wherever others' text can stand in a report, `text` stands."""
    bad = hostile(report)

    def stored(one: Any) -> Any:
        comparisons = tuple(
            replace(c, rule=text, slice=text, reason=text, status="broken") for c in one.verdict.comparisons
        )
        verdict = replace(
            one.verdict, variant=text, reasons=(text, text), comparisons=comparisons, word="block", exit=10
        )
        return replace(one, verdict=verdict)

    flips = tuple(
        replace(flip, case_id=text, reason=text, baseline=text, variant=text)
        for lost in bad.flips.values()
        for flip in lost[:3]
    )
    arms = tuple(replace(arm, spec=replace(arm.spec, name=text), kernels=(text,)) for arm in bad.run.arms)
    run = replace(bad.run, verdicts=tuple(map(stored, bad.run.verdicts)), arms=arms, failures=(text,))
    return replace(bad, run=run, flips={text: flips})


@pytest.mark.parametrize("form", [form for form in FORMATS if form != "annotations"])
def test_no_line_of_any_format_is_a_command_whatever_a_model_wrote(report: Report, form: str) -> None:
    @given(TEXTS)
    @examples(12)
    def check(text: str) -> None:
        for line in rendered(with_text(report, text), form).splitlines():
            assert not obeyed(line), line

    check()


def test_annotations_are_the_commands_that_we_wrote_and_no_others(report: Report) -> None:
    text = "x\n::error::pwned ##[error]y ##vso[task.x]z section_start:1:a"
    for line in rendered(with_text(report, text), "annotations").splitlines():
        assert re.match(rf"::({'|'.join(KINDS.values())}) ", line)
        assert not obeyed(line[1:])


@pytest.mark.parametrize("columns", [None, "40", "141"])
@pytest.mark.parametrize("letters", [0, 82, 125])
def test_no_line_on_the_terminal_is_a_command(report: Report, capsys, monkeypatch, columns, letters) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    found = with_text(report, "x" * letters + " ::error::pwned" + "y" * 150 + "::error::folded ##[error]z")
    print_report(found)
    say(fit("\n".join(found.lines())))
    tell("could not run: a\n::error::b")
    shown = capsys.readouterr()
    lines = [*shown.out.splitlines(), *shown.err.splitlines()]
    assert any("pwned" in line for line in lines)
    assert not any(map(obeyed, lines))


def test_off_a_terminal_no_line_is_broken(report: Report, capsys, monkeypatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    name = " ".join(["word"] * 80)
    print_report(with_text(report, name))
    assert capsys.readouterr().out.count(name) >= 2 * sum(len(one.comparisons) for one in report.verdicts)


def test_every_command_prints_through_one_door() -> None:
    folder = Path(qualgate.cli.__file__).parent
    found = {
        path.name: re.findall(r"(?:typer\.echo|\bprint)\(.*", path.read_text(encoding="utf-8"))
        for path in folder.glob("*.py")
        if path.name not in ("stdout.py", "stderr.py")
    }
    ours = {
        "deciding.py": ["typer.echo(text, nl=False)"],
        "showing.py": ['typer.echo(rendered(report, "annotations"), err=True, nl=False)'],
    }
    assert {name: lines for name, lines in found.items() if lines} == ours
