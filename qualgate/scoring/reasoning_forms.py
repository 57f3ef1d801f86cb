"""Markers between which families of models write a thought, and what may enclose the answer behind it.

From their published chat templates and vLLM 0.33.0's reasoning parsers. Harmony and Inkling write messages instead
(`reasoning`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Form:
    """A thought stands between `opening` and `closing`, as a model writes them.

    openings, closings: patterns of these and of what is taken for them; "" where there is nothing else. prompted:
    whether a prompt may end in the opening. wraps: beginning and end of what is the answer alone; wrapped: a template
    of this form writes one of them. raw: with this in it, an answer stays as it is written, for the dialect to read.
    template_mark: pattern of the mark in a chat template that builds its marks from parts.
    """

    opening: str
    closing: str
    openings: str = ""
    closings: str = ""
    prompted: bool = True
    wraps: tuple[tuple[str, str], ...] = ()
    wrapped: bool = False
    raw: str = ""
    template_mark: str = ""

    @property
    def begins(self) -> str:
        """The pattern of what begins a thought."""
        return self.openings or re.escape(self.opening)

    @property
    def ends(self) -> str:
        """The pattern of what ends a thought."""
        return self.closings or re.escape(self.closing)

    def opened_by(self, prompt: str) -> bool:
        """Whether the prompt ends in the opening."""
        return self.prompted and re.search(rf"(?:{self.begins})\Z", prompt.rstrip()) is not None

    def in_template(self, template: str) -> str:
        """The first of its marks that a chat template writes; "" for none."""
        mark = re.search(self.template_mark or self.begins, template) or re.search(self.ends, template)
        return mark[0].strip() if mark else ""

    def meant_by(self, template: str) -> bool:
        """Return whether a template that writes this form's thoughts also writes its wraps, if it must."""
        return not self.wrapped or any(begin in template for begin, _ in self.wraps)

    def unwrapped(self, answer: str) -> str:
        """Return an answer without its wraps."""
        if self.raw and self.raw in answer:
            return answer
        for begin, end in self.wraps:
            inner = answer.lstrip()
            begun = inner.startswith(begin)
            body = inner.removeprefix(begin) if begun else answer
            ends = _ends(body, end)
            if begun or ends is not None:
                return body[:ends].removeprefix("\n").removesuffix("\n")
        return answer


def _ends(body: str, end: str) -> int | None:
    """Return the place of the end mark: the last if nothing follows it, else the first outside quotes."""
    if (whole := body.rstrip()).endswith(end):
        return len(whole) - len(end)
    places = (match.span() for match in re.finditer(re.escape(end), body))
    quoted = ('""', "''", "``")
    return next((at for at, last in places if body[max(0, at - 1) : at] + body[last : last + 1] not in quoted), None)


FORMS = {
    "think": Form("<think>", "</think>"),
    # Hunyuan A13B, ERNIE 4.5, Granite 3.3
    "think_answer": Form(
        "<think>", "</think>", wraps=(("<answer>", "</answer>"), ("<response>", "</response>")), wrapped=True
    ),
    "seed": Form("<seed:think>", "</seed:think>"),
    "mistral": Form("[THINK]", "[/THINK]"),
    "cohere": Form(
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        wraps=(("<|START_RESPONSE|>", "<|END_RESPONSE|>"), ("<|START_TEXT|>", "<|END_TEXT|>")),
        raw="<|START_ACTION|>",
    ),
    "minimax_m3": Form("<mm:think>", "</mm:think>"),
    "longcat": Form("<longcat_think>", "</longcat_think>"),
    "apertus": Form("<|inner_prefix|>", "<|inner_suffix|>"),
    "gemma4": Form("<|channel>thought\n", "<channel|>", openings=r"<\|channel>(?:thought(?:\n|\Z))?"),
    "kimi_k3": Form(
        "<|open|>think<|sep|>",
        "<|close|>think<|sep|>",
        wraps=(("<|open|>response<|sep|>", "<|close|>response<|sep|>"),),
        raw="<|open|>tools<|sep|>",
        template_mark=r"<\|open\|>",
    ),
    "plamo3": Form("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>", template_mark=r"<\|plamo:begin_think"),
    # by its effort
    "k2_horizon": Form(
        "<ifm|think>",
        "</ifm|think>",
        r"<ifm\|think(?:_fast(?:er)?)?>",
        r"</ifm\|think(?:_fast(?:er)?)?>",
        template_mark=r"<ifm\|think",
    ),
    # with a part of its checkpoint
    "hunyuan": Form(
        "<think:opensource>", "</think:opensource>", r"<think:[^\s<>]+>", r"</think:[^\s<>]+>", template_mark="<think:"
    ),
    "granite": Form(
        "Here is my thought process:",
        "Here is my response:",
        r"Here(?:'s| is) my thought process:",
        r"Here(?:'s| is) my response:",
        prompted=False,
    ),
}
"""By way: its form."""


def told_by(prompt: str, template: str) -> tuple[str, bool, str] | None:
    """Return the first form that a template writes: its name, whether its prompt opens the thought, and the mark that
    shows it. Forms with a wrap come before the one they look like."""
    for name, form in sorted(FORMS.items(), key=lambda entry: not entry[1].wrapped):
        opened = form.opened_by(prompt)
        mark = form.opening.strip() if opened else form.in_template(template)
        if mark and form.meant_by(template):
            return name, opened, mark
    return None
