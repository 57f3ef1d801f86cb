"""Progress of long work, as lines for a log."""

from __future__ import annotations

from qualgate.report.progress import shown_progress


def test_what_cannot_be_counted_yet_is_told_in_a_line_of_its_own(capsys):
    with shown_progress() as progress:
        progress("planning: reading 2 model folders \x1b[2K", 0, 0)
        progress("", 0, 40)
        progress("int8", 40, 40)
    first, begun, done = capsys.readouterr().err.splitlines()
    assert first == "planning: reading 2 model folders \\u001b[2K"
    assert begun.startswith("      0 of 40 answers    0%")
    assert done.startswith("     40 of 40 answers  100%")
