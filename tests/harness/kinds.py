"""A task of each kind that lm-eval has, from local YAML and local rows, and a model that answers by drawing."""

from __future__ import annotations

import json
import random
from pathlib import Path

from lm_eval.api.model import LM

from tests.harness.local_tasks import HEAD

KINDS = {
    "few_shot_and_filters": r"""
output_type: generate_until
training_split: train
num_fewshot: 3
description: "Solve.\n\n"
doc_to_text: "Question: {{q}}\nAnswer:"
doc_to_target: "{{n}} plus words #### {{n}}"
generation_kwargs: {until: ["Question:"], do_sample: false, temperature: 0.0}
metric_list:
  - {metric: exact_match, ignore_case: true, regexes_to_ignore: [",", "\\$", "(?s).*#### ", "\\.$"]}
filter_list:
  - {name: strict-match, filter: [{function: regex, regex_pattern: '#### (\-?[0-9\.\,]+)'}, {function: take_first}]}
  - name: flexible-extract
    filter:
      - {function: regex, group_select: -1, regex_pattern: '(-?[$0-9.,]{2,})|(-?[0-9]+)'}
      - {function: take_first}
""",
    "punctuation_and_delimiters": r"""
output_type: generate_until
training_split: train
num_fewshot: 2
doc_to_text: "{{q}} ="
doc_to_target: n
target_delimiter: " => "
fewshot_delimiter: "\n---\n"
generation_kwargs: {until: ["\n"], max_gen_toks: 20}
metric_list: [{metric: exact_match, ignore_case: true, ignore_punctuation: true}]
""",
    "several_references": """
output_type: generate_until
doc_to_text: q
doc_to_target: many
generation_kwargs: {until: ["\\n"]}
metric_list: [{metric: exact_match}]
""",
    "repeats": r"""
output_type: generate_until
doc_to_text: q
doc_to_target: n
repeats: 4
generation_kwargs: {until: ["\n"]}
metric_list: [{metric: exact_match}]
filter_list:
  - name: maj@4
    filter: [{function: regex, regex_pattern: '(\d+)'}, {function: majority_vote}, {function: take_first}]
  - {name: maj@2, filter: [{function: take_first_k, k: 2}, {function: majority_vote}, {function: take_first}]}
""",
    "letters": """
output_type: generate_until
doc_to_text: "{{q}}"
doc_to_choice: letters
doc_to_target: lab
generation_kwargs: {until: ["\\n"]}
metric_list: [{metric: exact_match, ignore_case: true}]
filter_list:
  - {name: mc, filter: [{function: multi_choice_regex, ignore_case: true}, {function: take_first}]}
""",
    "own_code": """
output_type: generate_until
process_docs: !function own_code.docs
doc_to_text: !function own_code.text
doc_to_target: n
generation_kwargs: {until: ["\\n"], max_gen_toks: 8}
process_results: !function own_code.results
metric_list: [{metric: acc}, {metric: wordy, aggregation: mean, higher_is_better: true}]
""",
    "own_metric": """
output_type: generate_until
doc_to_text: q
doc_to_target: n
generation_kwargs: {until: ["\\n"]}
metric_list: [{metric: !function own_code.overlap, aggregation: mean, higher_is_better: true}]
""",
    "choices": r"""
output_type: multiple_choice
training_split: train
num_fewshot: 1
doc_to_text: "Q: {{q}}\nA:"
doc_to_choice: opt
doc_to_target: lab
metric_list: [{metric: acc}, {metric: acc_norm}, {metric: acc_bytes}, {metric: exact_match}, {metric: mcc},
  {metric: f1, aggregation: f1}, {metric: brier_score, aggregation: brier_score, higher_is_better: false}]
""",
    "information": r"""
output_type: multiple_choice
doc_to_text: "Q: {{q}}\nA:"
doc_to_choice: "{{opt}}"
doc_to_target: "{{lab}}"
target_delimiter: ""
metric_list: [{metric: acc}, {metric: acc_norm}, {metric: acc_mutual_info}]
""",
    "several_contexts": """
output_type: multiple_choice
doc_to_text: lab
doc_to_target: cont
doc_to_choice: opt
metric_list: [{metric: acc}]
""",
    "several_right": """
output_type: multiple_choice
doc_to_text: q
doc_to_choice: letters
doc_to_target: "{{[0, 2]}}"
metric_list: [{metric: acc}, {metric: acc_norm}, {metric: exact_match}]
""",
    "continuation": """
output_type: loglikelihood
doc_to_text: q
doc_to_target: n
metric_list: [{metric: perplexity}, {metric: acc}]
""",
    "text": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: q
metric_list: [{metric: word_perplexity}, {metric: byte_perplexity}, {metric: bits_per_byte}]
""",
    "fragile": """
output_type: generate_until
doc_to_text: q
doc_to_target: n
generation_kwargs: {until: ["\\n"]}
process_results: !function own_code.fragile
metric_list: [{metric: acc}]
""",
}
FILTER = {"few_shot_and_filters": "strict-match", "repeats": "maj@4"}
GROUPS = """\
group: family
task:
  - several_contexts
  - {task: punctuation_and_delimiters, num_fewshot: 1}
  - pair
"""
PAIR = "group: pair\ntask: [choices, text]\n"
OWN_CODE = """\
import random

def docs(rows):
    print("a task's own words")
    return rows.filter(lambda doc: doc["lab"] == 0).map(lambda doc: {"loud": doc["q"].upper()})

def text(doc):
    return doc["loud"] + "?"

def results(doc, results):
    return {"acc": float(doc["n"] in results[0]), "wordy": len(results[0].split()) / 50}

def overlap(references, predictions, **_):
    return len(set(references[0]) & set(predictions[0])) / len(set(references[0]) | set(predictions[0]) | {"x"})

def fragile(doc, results):
    return {"acc": float(results[0].split()[0] == doc["n"] and random.random() < 0.5)}
"""


def write_kinds(folder: Path, n: int = 8) -> Path:
    rows = [
        {
            "q": f"What is {i} + {7 * i}?", "n": str(8 * i), "many": [str(8 * i), f"${8 * i}"], "lab": i % 2,
            "letters": ["A", "B", "C"], "choices": ["A", "B", "C"], "cont": "sat down.",
            "opt": [f"Größe {i}", f"the dog {i} runs"],
        }
        for i in range(1, n + 1)
    ]  # fmt: skip
    (folder / "kinds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, body in KINDS.items():
        (folder / f"{name}.yaml").write_text(HEAD.format(name=name, rows="kinds.jsonl") + body)
    (folder / "family.yaml").write_text(GROUPS)
    (folder / "pair.yaml").write_text(PAIR)
    (folder / "own_code.py").write_text(OWN_CODE)
    return folder


class Drawn(LM):
    """Answers that follow from the request alone, right ones, wrong ones and odd ones."""

    def generate_until(self, requests, disable_tqdm=False) -> list[str]:
        said = [(random.Random(repr(one.args)).choice, one.doc["n"]) for one in requests]
        return [
            choice([n, f" {n}.", f"so #### {n}.", f"#### ${n}", "I say (B)", f"the answer: {n} 7", "C", f"{n}, no"])
            for choice, n in said
        ]

    def loglikelihood(self, requests, disable_tqdm=False) -> list[tuple[float, bool]]:
        drawn = [random.Random(repr(one.args)) for one in requests]
        return [(-20 * draw.random(), draw.random() < 0.5) for draw in drawn]

    def loglikelihood_rolling(self, requests, disable_tqdm=False) -> list[float]:
        return [-500 * random.Random(repr(one.args)).random() for one in requests]
