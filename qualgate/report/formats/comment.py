"""A comment on a pull or merge request, as Markdown for GitHub and GitLab: verdicts, first reasons, three lost cases.

Both hosts look for @names, #12, !12, commit hashes and addresses in the text that Markdown leaves behind, so escapes of
Markdown alone do not stop them. Names and answers are therefore code on one line, where nothing is alive, and in
sentences a zero-width space follows each such sign. No line begins with stored text: `/merge` would be a command.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from qualgate.errors import EXIT_ORDER, Exit
from qualgate.records import Verdict
from qualgate.report.comparison_text import seen_text
from qualgate.report.formats.github import SIGNS
from qualgate.report.formats.markdown import escaped
from qualgate.report.four_arms import choice_line
from qualgate.report.limits import fitting
from qualgate.report.summary import Report
from qualgate.store.queries import Flip
from qualgate.text.escaping import visible_line
from qualgate.text.numbers import counted

LIMIT = 8_000  # bytes; the hosts take 64 kB or more
REASONS, FLIPS = 3, 3  # most of a variant, and over all variants
SENTENCE, ANSWER, NAME = 400, 200, 120  # characters of a reason, of an answer, and of a name
_NOTE = 300  # bytes reserved for the note on what was left out
_WORDS = {Exit.APPROVE: "approve", Exit.BLOCK: "block", Exit.REVIEW: "review", Exit.UNDECIDED: "undecided"}
# In escaped text: signs before a name or number, `://`, TICKET-12, and six of the digits of a commit.
_ALIVE = re.compile(
    r"@|%(?=\S)|&amp;|\\[#!$~^]|\\\[(?=[\w\\]+:)|\\:(?=//)|(?<=[a-z])-(?=\d)|[0-9a-f]{6}(?=[0-9a-f])", re.IGNORECASE
)


def report_as_comment(report: Report, limit: int = LIMIT) -> str:
    """Render the comment within `limit` bytes, the worst verdict first. The same evidence gives the same bytes."""
    verdicts = sorted(report.verdicts, key=lambda verdict: EXIT_ORDER.index(Exit(verdict.exit)))
    flips = next(((v, lost) for v in verdicts if v.exit and (lost := report.flips.get(v.variant, ()))), None)
    top = "\n".join([marker(report), _heading(report), "", ""])
    pieces = [_opening(report), *map(_variant, verdicts)]
    if flips is not None:
        total = report.lost.get(flips[0].variant, len(flips[1]))
        shown = flips[1][:FLIPS]
        first, *others = map(_flip, shown)
        head = f"Right before, wrong now in {_code(flips[0].variant)}, the first {len(shown)} of {total:,}:\n\n"
        pieces += [head + first, *others]
    fits = fitting(pieces, limit - len(top.encode()) - _NOTE)
    text = top + "".join(pieces[:fits])
    if fits < len(pieces):
        text += f"\nCut at {counted(limit, 'byte')}: {counted(len(pieces) - fits, 'more part')} of this comment"
        text += " (variants, cases) can be found in the HTML report.\n"
    return text.rstrip("\n") + "\n"


def marker(report: Report) -> str:
    """Return the hidden first line, by which a CI step finds its own comment: the gate file's name, percent-encoded."""
    path, name = report.source.path, report.run.gate_name
    name = path if not name or path.split("/")[-1] == name else name
    return f"<!-- qualgate: {quote(name.encode('utf-8', 'backslashreplace'))[:NAME].replace('--', '-%2D')} -->"


def _heading(report: Report) -> str:
    """Return the heading, with the link if there is one; its address was checked by the command."""
    word = _WORDS.get(report.exit, "invalid") if report.verdicts else "not complete"
    link = f" · [full report](<{report.link.replace('&', '&amp;')}>)" if report.link else ""
    return f"### {SIGNS.get(word, '⏳')} qualgate: {word} (exit {int(report.exit)}){link}"


def _opening(report: Report) -> str:
    """Return the run, the remarks, and the choice among four arms."""
    lines = [f"Run {_code(report.run.run_id)}.", ""]
    if report.warn_only:
        lines += [f"**Warn only:** the true exit code is {int(report.exit)}; the step was told to pass.", ""]
    if not report.verdicts:
        lines += ["This run is not complete: nothing is decided.", ""]
    for remark in report.remarks[:REASONS]:
        lines += [f"**{_sentence(remark)}**", ""]
    if report.four_arm is not None:
        lines += [f"**{_sentence(choice_line(report.four_arm))}**", ""]
    return "\n".join([*lines, ""])


def _variant(verdict: Verdict) -> str:
    """Return a variant's verdict and first reasons; of an approved one the first alone."""
    reasons = verdict.reasons[: REASONS if verdict.exit else 1]
    lines = [f"{SIGNS.get(verdict.word, '')} **{_sentence(verdict.word)}** {_code(verdict.variant)}", ""]
    lines += [
        f"- {_sentence(reason)}{'' if index else seen_text(verdict.seen)}" for index, reason in enumerate(reasons)
    ]
    if verdict.exit and len(verdict.reasons) > len(reasons):
        lines.append(f"- and {counted(len(verdict.reasons) - len(reasons), 'more reason')}")
    return "\n".join([*lines, "", ""])


def _flip(flip: Flip) -> str:
    """Return a lost case: its name, the metric, why it is wrong, and both answers as far as they are known."""
    noisy = " (changes in the A/A arm too)" if flip.noisy else ""
    lines = [f"- {_code(flip.name)} ({_code(flip.metric)}): {_sentence(flip.reason, ANSWER)}{noisy}"]
    if flip.baseline or flip.variant:
        lines += [f"  - baseline: {_code(flip.baseline, ANSWER)}", f"  - variant: {_code(flip.variant, ANSWER)}"]
    return "\n".join([*lines, ""])


def _sentence(text: str, most: int = SENTENCE) -> str:
    """Return stored text as one line of Markdown in which nothing is a link, a mention or a reference."""
    return _ALIVE.sub(r"\g<0>&#8203;", escaped(_short(text, most)))


def _code(text: str, most: int = NAME) -> str:
    """Return stored text as code on one line, between more backticks than it holds in a row."""
    line = _short(text, most)
    fence = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}" if line else "(empty)"


def _short(text: str, most: int) -> str:
    """Return at most so many characters of a text, its white space and invisible characters as on one line."""
    line = visible_line(text[: 4 * most])
    return line if len(line) <= most and len(text) <= 4 * most else f"{line[:most].rstrip()} … (cut)"
