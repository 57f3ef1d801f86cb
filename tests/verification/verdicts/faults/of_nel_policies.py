"""Faults of a file that should be a policy of a NeMo Evaluator."""

from __future__ import annotations

from pathlib import Path

from qualgate.errors import QualgateError
from qualgate.gate.peers.nel_policy import decide_by
from qualgate.gate.verdict import overall_exit
from qualgate.intake.nel_policy import read_nel_policy
from tests.verification.verdicts.faults.given import sound

GOOD_NEL = "version: 1\ndefaults: {tier: critical, metric: mean_reward, max_drop: 0.1}\n"
NEL: dict[str, str | bytes] = {
    "empty": "",
    "a comment alone": "# nothing\n",
    "null": "null\n",
    "a list": "- 1\n",
    "a text": "GO\n",
    "not UTF-8": b"version: 1\n# \xff\xfe\n",
    "a NUL": GOOD_NEL + "\0",
    "cut": GOOD_NEL[:-4],
    "version 2": GOOD_NEL.replace("1", "2", 1),
    "version in words": GOOD_NEL.replace("1", "one", 1),
    "an unknown key": GOOD_NEL + "approve: true\n",
    "an unknown key of the defaults": GOOD_NEL.replace("max_drop", "max_drp"),
    "a key twice": GOOD_NEL + "defaults: {tier: advisory}\n",
    "an unknown tier": GOOD_NEL.replace("critical", "optional"),
    "an unknown metric": GOOD_NEL + "benchmarks: {code: {tier: critical, metric: vibes}}\n",
    "a benchmark without a metric": "benchmarks: {code: {tier: critical}}\n",
    "a benchmark that did not run": GOOD_NEL + "benchmarks: {math: {tier: critical}}\n",
    "lower is better": GOOD_NEL + "benchmarks: {code: {direction: lower_is_better}}\n",
    "advisory alone": GOOD_NEL.replace("critical", "advisory"),
    "pass@1 of a word that is none": GOOD_NEL.replace("mean_reward", "pass@one"),
    **{
        f"a drop of {drop}": GOOD_NEL.replace("0.1", drop)
        for drop in ("0", "-0.1", ".nan", ".inf", "-.inf", "1", "0.2", "1e300", "yes", "[0.1]", "null")
    },
    **{
        f"a relative drop of {drop}": GOOD_NEL.replace("max_drop: 0.1", f"max_drop: 0.1, max_relative_drop: {drop}")
        for drop in ("-1", ".nan", "0")
    },
    "an anchor": "a: &a [x]\nb: *a\n" + GOOD_NEL,
    "a bomb of aliases": "\n".join(
        ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40)), GOOD_NEL]
    ),
    "a tag": "!!python/object/apply:os.system [exit]\n",
    "nested too deep": "benchmarks: " + "{a: " * 5000 + "1" + "}" * 5000 + "\n",
    "two documents": GOOD_NEL + "---\n" + GOOD_NEL,
}
"""name → what a file holds that should be a policy, version 1, of a NeMo Evaluator."""


def nel_exit(text: str | bytes, folder: Path) -> int:
    """The code for evidence that approves, decided by this policy file."""
    path = folder / "nel.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    try:
        return int(overall_exit(decide_by(read_nel_policy(path), sound(400).evidence)[0]))
    except QualgateError as error:
        return int(error.exit)
