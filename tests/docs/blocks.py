"""The pages a stranger reads, and the code blocks on them.

A comment above a block says more than its language can: `<!-- file: NAME -->` writes it to a page's scratch folder,
`<!-- runs -->` or `<!-- runs: 12 -->` runs its commands there and holds them to an exit code.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MARK = re.compile(r"<!-- (file|runs)(?:: (\S+))? -->")
OPERATORS = {"&&", "||", "|", ";", "&"}


def pages() -> list[Path]:
    """README and its neighbours, and everything under docs/."""
    return [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md")] + sorted(
        (ROOT / "docs").rglob("*.md")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    page: Path
    line: int  # of its first line
    language: str
    text: str
    file: str = ""  # where it is written, relative to the page's scratch folder
    exit: int | None = None  # of its last command; None: it is not run

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in its order."""
    mark, start, language, lines = None, 0, "", []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = line.strip().startswith("```")
        if start and fence:
            said, value = mark.groups() if mark else ("", None)
            yield Block(
                page=page,
                line=start,
                language=language,
                text="\n".join(lines) + "\n",
                file=value or "" if said == "file" else "",
                exit=int(value or 0) if said == "runs" else None,
            )
            mark, start, lines = None, 0, []
        elif fence:
            start, language = number + 1, line.strip().removeprefix("```")
        elif start:
            lines.append(line)
        elif line.strip():
            mark = MARK.fullmatch(line.strip())
    assert not start, f"{page}: the block from line {start} on is never closed"


def all_blocks() -> list[Block]:
    return [block for page in pages() for block in blocks(page)]


def commands(text: str) -> Iterator[list[str]]:
    """The words of each simple command in a piece of shell, without redirections and comments."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        skipped = False
        for word in lexer:
            if word in OPERATORS:
                yield words
                words = []
            elif skipped or re.fullmatch(r"[<>]+&?", word):
                if not skipped and words and words[-1].isdigit():  # of a stream: `2> log`
                    words.pop()
                skipped = not skipped
            else:
                words.append(word)
        yield words
