"""Gate files that tests start from."""

from __future__ import annotations

from pathlib import Path

import yaml

# What is no gate file, and a part of what is told of it.
FAULTS = yaml.safe_load(Path(__file__).with_name("faults.yaml").read_text(encoding="utf-8"))

WHOLE = """\
version: 1
baseline: {model: reference, dtype: bfloat16}
variants:
  mxfp4: {quantize: mxfp4}
  int4+own: {quantize: {method: int4, group_size: 64}}
  prod_2.1: {model: ./models/prod, dtype: float16}
evalsets: [arithmetic, tool_calls, ./ours/support.yaml]
generation: {temperature: 0, seed: 7, repeats: 1}
gate:
  alpha: 0.1
  review: always
  rules:
    - {metric: exact_match, max_drop: 0.02}
    - {metric: exact_match, per: evalset, max_drop: 0.05}
    - {metric: tool_call.valid, evalset: tool_calls, max_drop: 0.05, tier: supporting}
    - {metric: drift.kl_mean, max: 0.05, tier: advisory}
    - {metric: latency.tpot, percentile: 95, max_ratio: 1.10}
store: sqlite:///runs/q.db
workers: {backend: local, count: 3, devices: cpu}
"""
SMALL = """\
version: 1
baseline: {model: reference}
variants: {int8: {quantize: int8}}
evalsets: [arithmetic]
gate: {rules: [{metric: exact_match, max_drop: 0.02}]}
"""
PRICES = """\
version: "2026-11"
currency: EUR
prompt_token: 0.001
device_second: 0.5
concurrency: 4
"""


def changed(line: int, text: str) -> str:
    """SMALL with another line."""
    lines = SMALL.splitlines()
    return "\n".join([*lines[: line - 1], text, *lines[line:], ""])


def ruled(*rules: str, more: str = "") -> str:
    """SMALL with these rules, and more behind them in its gate."""
    return changed(5, f"gate: {{rules: [{', '.join(rules)}]{more}}}")
