"""lm-eval tasks of every kind, from local YAML and local rows: nothing is looked up anywhere."""

from __future__ import annotations

import json
from pathlib import Path

CHAT = '"<|im_start|>user\\n{{question}}<|im_end|>\\n<|im_start|>assistant\\n"'
HEAD = """\
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {rows}, train: {rows}}}}}
test_split: test
"""
GENERATE = """\
output_type: generate_until
doc_to_text: CHAT"
doc_to_target: "{{TARGET}}"
generation_kwargs: {until: [UNTIL], max_gen_toks: 90, do_sample: false}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""
BODIES = {
    "sums": GENERATE.replace("TARGET", "answer").replace("UNTIL", r'"\n\n"')
    + r"""
filter_list:
  - name: strict-match
    filter: [{function: regex, regex_pattern: 'Answer: (\d+)'}, {function: take_first}]
  - name: flexible-extract
    filter: [{function: regex, regex_pattern: '(\d+)', group_select: -1}, {function: take_first}]
metadata: {version: 1.5}
""",
    "line": GENERATE.replace("TARGET", "first").replace("UNTIL", r'"\n"'),
    "choice": """\
output_type: multiple_choice
doc_to_text: CHAT"
doc_to_choice: "{{choices}}"
doc_to_target: "{{right}}"
target_delimiter: ""
metric_list: [{metric: acc}, {metric: acc_norm}, {metric: acc_mutual_info}]
""",
    "greedy": r"""
output_type: loglikelihood
doc_to_text: CHAT{{first}}"
doc_to_target: "\n{{second}}"
target_delimiter: ""
metric_list: [{metric: perplexity}, {metric: acc}]
""",
    "text": """\
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list: [{metric: word_perplexity}, {metric: byte_perplexity}, {metric: bits_per_byte}]
""",
}
TASKS = tuple(BODIES)


def sum_row(left: int, right: int) -> dict:
    """A question as the shipped model has learned to answer it, digit by digit."""
    lines, carry, place = [], 0, 1
    while place <= max(left, right):
        a, b = left // place % 10, right // place % 10
        lines.append(f"{a}+{b}+{carry}={a + b + carry}")
        carry, place = (a + b + carry) // 10, place * 10
    answer = f"Answer: {left + right}"
    return {
        "question": f"{left} + {right} = ?",
        "answer": str(left + right),
        "first": lines[0],
        "second": lines[1],
        "choices": [lines[0], lines[0][:-1] + "x", "Answer: 1"],
        "right": 0,
        "text": "\n".join([f"{left} + {right} = ?", *lines, answer]),
    }


def write_tasks(folder: Path, n: int = 6, *, long_text: int = 0) -> Path:
    """`sums` (two filters), `line` (ends at a line break), `choice`, `greedy`, `text`, with `n` rows each.

    long_text: copies of a row's text in the first row of `text`, so that it exceeds the model's context.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = [sum_row(1234 + 877 * i, 4321 + 613 * i) for i in range(n)]
    rows[0]["text"] += ("\n" + rows[0]["text"]) * long_text
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, body in BODIES.items():
        text = HEAD.format(name=name, rows="rows.jsonl") + body.replace("CHAT", CHAT[:-1])
        (folder / f"{name}.yaml").write_text(text)
    return folder
