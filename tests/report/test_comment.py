"""A comment on a pull request tells the verdict in a few lines, and stored text starts nothing on the host."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from qualgate.errors import Exit
from qualgate.records import Verdict
from qualgate.report.formats import rendered
from qualgate.report.formats.comment import LIMIT, marker, report_as_comment
from qualgate.report.source import Source
from qualgate.report.summary import Report
from qualgate.store.queries import Flip
from tests.command_line import qualgate
from tests.report.reading import ATTACK

LINK = "https://ci.example.org/jobs/7?a=1&copy=2"
OURS = {"h3", "p", "strong", "ul", "ol", "li", "code", "a"}  # a reason that begins with "9. " is a list, and inert
# What GitHub or GitLab make alive in the text that Markdown leaves: mentions, issues, merge requests, snippets,
# milestones, labels, epics, alerts, tickets, addresses, commits.
ALIVE = re.compile(r"[@#!$%~&^][\w\"]|\w://|[a-z]-\d|\[\w+:|(?<![0-9a-z])[0-9a-f]{7,40}(?![0-9a-z])", re.IGNORECASE)
SIGNS = [*"@#!$%~&^[](){}<>*_`|\\/:.-+= \n\t\u200b\u202eaf019"]
SIGNS += ["http://", "www.", "GH-1", "deadbeef", "/close", "```"]


class Comment(HTMLParser):
    """Tags and links of a rendered comment, and its text outside code."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.links: list[str | None] = []
        self.comments: list[str] = []
        self.code = 0
        self.prose: list[str] = []
        self.feed(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text))
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.links += [value for name, value in attrs if name in ("href", "src")]
        self.code += tag == "code"

    def handle_endtag(self, tag):
        self.code -= tag == "code"

    def handle_comment(self, data):
        self.comments.append(data)

    def handle_data(self, data):
        if not self.code:
            self.prose.append(data)


def checked(report: Report) -> str:
    """The comment, in which nothing but its own link and marker does anything on a host."""
    text = rendered(report, "comment")
    page = Comment(text)
    assert page.tags <= OURS, page.tags
    assert page.links == ([report.link] if report.link else [])
    assert len(page.comments) == 1
    assert not [part for part in page.prose if ALIVE.search(part)], page.prose
    assert not [line for line in text.splitlines() if line.startswith("/")], "a command on GitLab"
    assert len(text.encode()) <= LIMIT
    return text


def told(report: Report, text: str) -> Report:
    """The report with this text in place of every stored one."""
    (stored, *_) = report.run.verdicts
    verdict = Verdict(variant=text, word="block", exit=10, reasons=(text, f"a {text}", f"({text})"))
    flip = Flip(
        metric=text, evalset=text, case_id=text, repeat=0, direction="lost", baseline=text, variant=f"{text}`",
        reason=text, first_divergence=None,
    )  # fmt: skip
    run = replace(report.run, run_id=text, verdicts=(replace(stored, verdict=verdict),), gate_name=text)
    return replace(report, run=run, flips={text: (flip,) * 5}, lost={text: 5}, source=Source(path=text))


@given(st.lists(st.sampled_from(SIGNS), max_size=30).map("".join))
@example(
    "@ada #12 !3 $4 %5 ~bug &6 ^alert#1 [vulnerability:1] org/repo#1 GH-1 https://x.example www.x.example a@b.example"
)
@example("0123456789abcdef0123456789abcdef01234567 deadbee")
@example("--> <script>alert(1)</script> <!-- ")
@example("`` ` ``` \n```\n/close\n")
@example(ATTACK)
def test_stored_text_is_no_link_mention_reference_command_or_html(report: Report, text: str) -> None:
    checked(told(report, text))


def test_a_comment_tells_the_verdict_the_first_reasons_three_lost_cases_and_the_link(report: Report) -> None:
    text = checked(replace(report, link=LINK))
    assert text == checked(replace(report, link=LINK))
    lines = text.splitlines()
    assert lines[0] == "<!-- qualgate: gate.yaml -->"
    assert lines[1] == f"### ❌ qualgate: block (exit 10) · [full report](<{LINK.replace('&', '&amp;')}>)"
    worst = next(verdict for verdict in report.verdicts if verdict.word == "block")
    heads = [line for line in lines if re.match(r"[✅❌👀❔⛔] \*\*", line)]
    assert heads[0] == f"❌ **block** `{worst.variant}`"
    assert len(heads) == len(report.verdicts)
    shown = text.replace("\\", "").replace("&#8203;", "")
    assert all(f"- {reason}" in shown for reason in worst.reasons[:3])
    assert worst.reasons[3] not in shown
    lost = report.flips[worst.variant]
    assert f"the first 3 of {report.lost[worst.variant]}" in text
    assert [f"`{flip.name}`" in text for flip in lost[:4]] == [True, True, True, False]
    assert all(f"variant: `{' '.join(flip.variant.split())[:40]}" in text for flip in lost[:3])


def test_long_texts_are_cut_and_so_is_a_comment_of_many_variants_with_a_line_that_tells_it(report: Report) -> None:
    long = checked(told(report, "word " * 50_000))
    assert "… (cut)" in long
    assert len(long) < 5_000
    (stored, *_) = report.run.verdicts
    many = tuple(
        replace(stored, verdict=Verdict(variant=f"v{n}", word="block", exit=10, reasons=("ü" * 300,)))
        for n in range(40)
    )
    crowded = replace(report, run=replace(report.run, verdicts=many), flips={})
    text = checked(crowded)
    told_ = text.count("**block**")
    assert 5 < told_ < 40
    assert f"\nCut at 8,000 bytes: {40 - told_} more parts of this comment (variants, cases) can be" in text
    for limit in (600, 1_000, 3_000):
        assert len(report_as_comment(crowded, limit).encode()) <= limit
        assert "qualgate: block (exit 10)" in report_as_comment(crowded, limit)


def test_a_run_that_is_not_complete_and_a_warning_only_are_told(report: Report, unfinished: Report) -> None:
    assert "not complete (exit 13)" in checked(unfinished)
    assert "true exit code is 10" in checked(replace(report, warn_only=True))


def test_the_marker_is_the_gate_files_path_and_ends_no_comment(report: Report) -> None:
    def named(path: str, gate_name: str) -> str:
        return marker(replace(report, source=Source(path=path), run=replace(report.run, gate_name=gate_name)))

    assert named("models/a/gate.yaml", "gate.yaml") == "<!-- qualgate: models/a/gate.yaml -->"
    assert named("gate.yaml", "nightly.yaml") == "<!-- qualgate: nightly.yaml -->", "the store alone, without its file"
    assert named("a -->b\n.yaml", "") == "<!-- qualgate: a%20-%2D%3Eb%0A.yaml -->"
    assert named("\udcff---.yaml", "").count("--") == 2


def test_the_commands_print_a_comment_with_a_link_and_refuse_other_addresses(report: Report, tmp_path: Path) -> None:
    url = ("--store", report_store(tmp_path))
    done = qualgate("report", *url, "--format", "comment", "--link", LINK, cwd=tmp_path)
    assert done.returncode == Exit.APPROVE, done.stderr
    assert f"[full report](<{LINK.replace('&', '&amp;')}>)" in done.stdout
    gated = qualgate("gate", *url, "--format", "comment", "--link", LINK, "--no-write", "--out", "c.md", cwd=tmp_path)
    assert gated.returncode in (Exit.BLOCK, Exit.UNDECIDED), gated.stderr
    assert (tmp_path / "c.md").read_text(encoding="utf-8").startswith("<!-- qualgate: ")
    for bad in (
        "javascript:alert(1)", "ftp://x.example/", "//x.example", "https://", "https://x.example/a b",
        "https://x>y.example", "https://x.example/\n", "https://user:secret@x.example/", "https://x.example:99999/",
        "https://x.example/`", "x",
        f"https://x.example/{'a' * 1000}", "https://[x/", "https://x.example/\\",
    ):  # fmt: skip
        refused = qualgate("report", *url, "--format", "comment", "--link", bad, cwd=tmp_path)
        assert refused.returncode == Exit.USAGE, bad
        assert "--link takes an http or https address" in refused.stderr
        assert "secret" not in refused.stderr
    unused = qualgate("report", *url, "--format", "html", "--link", LINK, cwd=tmp_path)
    assert unused.returncode == Exit.USAGE
    assert "--link works with --format comment, not with html" in unused.stderr


def report_store(folder: Path) -> str:
    from qualgate.store.database import open_store
    from tests.store.made import make_plan, make_run

    url = f"sqlite:///{folder / 'q.db'}"
    with open_store(url) as store:
        make_run(store, make_plan(cases=12, wrong={"int2-g32": 0.3}))
    return url


@pytest.mark.parametrize("word", ["approve", "review", "undecided", "invalid"])
def test_each_word_has_its_sign_and_exit_code(report: Report, word: str) -> None:
    (stored, *_) = report.run.verdicts
    code = {"approve": 0, "review": 11, "undecided": 12, "invalid": 14}[word]
    verdict = Verdict(variant="int8", word=word, exit=code, reasons=("why",))  # type: ignore[arg-type]
    text = checked(replace(report, run=replace(report.run, verdicts=(replace(stored, verdict=verdict),)), flips={}))
    assert f"qualgate: {word} (exit {code})" in text
