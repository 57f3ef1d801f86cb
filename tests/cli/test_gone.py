"""Commands and options that were taken out: one line, exit 64, what to use in their place."""

from __future__ import annotations

import pytest

from qualgate.errors import Exit
from tests.command_line import qualgate


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (("db", "archive", "folder", "--older-than", "1"), "qualgate db copy FROM TO"),
        (("db", "restore", "folder"), "qualgate report --store COPY"),
        (("db", "prune", "--run", "x"), "Give --older-than DAYS"),
        (("db", "prune", "--keep", "3"), "Give --older-than DAYS"),
        (("drift", "--logits", "a.npy", "b.npy", "--tokens", "t.npy"), "qualgate drift GATE_FILE"),
        (("drift", "--keep", "a.npy", "a.kept"), "qualgate drift GATE_FILE"),
        (("drift", "--kept", "a.kept", "b.npy"), "qualgate drift GATE_FILE"),
        (("serve", "reference", "--port", "0"), "vLLM, SGLang or llama.cpp"),
        (("run", "gate.yaml", "--record", "said"), "qualgate gate --run RUN"),
        (("run", "gate.yaml", "--replay=said"), "qualgate gate --run RUN"),
        (("run", "gate.yaml", "--lease", "s1:2"), "qualgate submit GATE.yaml --cluster"),
        (("worker", "--store", "sqlite:///q.db"), "qualgate submit GATE.yaml --cluster"),
        (("submit", "gate.yaml", "--store", "sqlite:///q.db"), "Write `store: postgresql://…` in the gate file"),
        (("submit", "gate.yaml", "--owner", "ana"), "Ray keeps the order of its jobs"),
        (("submit", "gate.yaml", "--priority", "3"), "Ray keeps the order of its jobs"),
        (("status", "--store", "sqlite:///q.db"), "`qualgate status ID --cluster"),
        (("wait", "s1", "--store", "sqlite:///q.db"), "`qualgate wait ID --cluster"),
        (("cancel", "s1", "--store", "sqlite:///q.db"), "`qualgate cancel ID --cluster"),
    ],
)
def test_what_was_taken_out_names_what_to_use_instead(words, instead):
    done = qualgate(*words)
    assert done.returncode == Exit.USAGE
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("qualgate: `qualgate ")
    assert "was taken out. " in done.stderr
    assert instead in done.stderr
