"""What is wrong with a gate file: each mistake is named with its line, and all of them at once."""

from __future__ import annotations

import pytest

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.metrics import PLANNED
from tests.config.gate_files import SMALL, WHOLE, changed, ruled

CASCADE = "{draft: {quantize: mxfp4, under: " * 4 + "{draft: ngram}" + "}}" * 4
ONE_LINE_CHANGES = [
    # (line of SMALL, what stands there instead, the message)
    (1, "version: 2", "needs a newer qualgate"),
    (1, "version: 0", "must be 1"),
    (1, "version: 1.0", "valid integer"),
    (1, "versoin: 1", "unknown key 'versoin'; did you mean 'version'?"),
    (2, "baseline: {model: reference, model: reference}", "duplicate key 'model'; first on line 2"),
    (2, "baseline: {model: refrence}", "a folder is written ./refrence"),
    (2, "baseline: {model: ./nowhere}", "no model folder"),
    (2, "baseline: {model: https://example.org/m}", "a server's address is `endpoint`"),
    (2, "baseline: {model: 'localhost:8000/v1'}", "a server's address is `endpoint`"),
    (2, "baseline: {endpoint: 'http://h/v1'}", "`baseline.model` is missing"),
    (2, "baseline: {endpoint: h/v1, model: m}", "`endpoint` is the API's address"),
    (2, "baseline: {endpoint: 'http://h:99999/v1', model: m}", "`endpoint` is the API's address"),
    (2, "baseline: {endpoint: 'http://u:sk-1@h/v1', model: m}", "a user or a password"),
    (2, "baseline: {endpoint: 'http://h/v1?key=sk-1', model: m}", "a query or a fragment"),
    (2, "baseline: {endpoint: 'http://h/v1', model: m, dtype: float16}", "`dtype` is how an arm is generated here"),
    (2, "baseline: {endpoint: 'http://h/v1', serve: 'a {port}', model: m}", "one of the two"),
    (2, "baseline: {serve: 'vllm serve m', model: m}", "a command with {port}"),
    (2, "baseline: {serve: \"vllm 'serve {port}\", model: m}", "is no command"),
    (2, "baseline: {endpoint: 'http://h/v1', model: m, tokenizer: ./nowhere}", "no model folder"),
    (2, "baseline: {endpoint: 'http://h/v1', model: m, prompt_logprobs: 20}", "`prompt_logprobs` needs `tokenizer`"),
    (2, "baseline: {endpoint: 'http://h/v1', model: m, prompt_logprobs: 0, tokenizer: reference}", "-1 lists all"),
    (2, "baseline: {endpoint: 'http://h/v1', model: m, prompt_logprobs: 9, tokenizer: reference, engine: ollama}",
     "is read as vLLM tells it"),
    (2, "baseline: {model: reference, prompt_logprobs: 20}", "`prompt_logprobs` goes with `endpoint` or `serve`"),
    (2, "baseline: {model: reference, api_key_env: KEY}", "`api_key_env` goes with `endpoint` or `serve`"),
    (2, "baseline: {model: ''}", "`model` is empty"),
    (2, "baseline: {model: ~nosuchuser/m}", "no such user's home folder"),
    (2, 'baseline: {model: "./a\\0b"}', "cannot be a path"),
    (2, f"baseline: {{model: ./{'a' * 300}}}", "no model folder"),
    (2, f"baseline: {{model: ./{'a/' * 3000}}}", "cannot be a path"),
    (2, "baseline: {model: no}", "YAML readers disagree"),
    (2, "baseline: {model: true}", "valid string (found True)"),
    (2, "baseline: {dtype: bfloat16}", "`baseline.model` is missing"),
    (2, "baseline: reference", "should be a mapping, such as `{model: ./models/support}`"),
    (2, "baseline: &a {model: reference}", "anchor &a"),
    (2, "baseline: *a", "alias *a"),
    (2, "baseline: !!map {model: reference}", "tag"),
    (2, "baseline: {1: reference}", "a key must be a word, not 1"),
    (2, "baseline: {'?x': 1, model: reference}", "unknown key '?x'"),
    (2, "baseline: {<<: {model: reference}}", "unknown key '<<'"),
    (3, "variants: {}", "`variants` should have at least 1 item, not 0"),
    (3, "variants: {baseline: {quantize: int8}}", "cannot be called baseline"),
    (3, "variants: {'a/b': {quantize: int8}}", "variant name 'a/b'"),
    (3, 'variants: {"a\\e[31m": {quantize: int8}}', r"'a\x1b[31m'"),
    (3, "variants: {a: {quantize: int8, model: reference}}", "one of the two"),
    (3, "variants: {a: {quantize: int8, dtype: float16}}", "`dtype` goes with `model`"),
    (3, "variants: {a: {quantize: int8, calibration: calibration}}", "goes with `model`"),
    (3, "variants: {a: {model: reference, calibration: calibraton}}", "no shipped calibration set"),
    (3, "variants: {a: {model: reference, calibration: [calibration]}}", "names a calibration set"),
    (3, "variants: {a: {model: reference, calibration: arithmetic}}", "calibration set"),
    (3, "variants: {a: {quantize: int9}}", "int8"),
    (3, "variants: {a: {quantize: nf4}}", "not in this version"),
    (3, "variants: {a: {quantize: gptq}}", "`calibration` is missing"),
    (3, "variants: {a: {quantize: {method: awq, calibration: ./none.yaml}}}", "no calibration set at"),
    (3, "variants: {a: {quantize: {method: gptq, bits: 5, calibration: calibration}}}", "2, 3, 4 or 8 bits"),
    (3, "variants: {a: {quantize: {method: awq, calibration: calibration, keep: [lm_head]}}}", "`keep` maps"),
    (3, "variants: {a: {quantize: {method: int4, keep: {mlp: int9}}}}", "`keep` has 'int9'"),
    (3, "variants: {a: {quantize: {method: int4, keep: {lm_head: int8}}}}", "not in this version"),
    (3, "variants: {a: {quantize: {method: int4, symmetric: 0}}}", "true or false"),
    (3, "variants: {a: {quantize: {method: fp8, activations: int8}}}", "activations: fp8"),
    (3, "variants: {a: {quantize: {method: int8, group_size: 32, granularity: tensor}}}", "contradict"),
    (3, "variants: {a: {quantize: {method: int4, group_size: 7}}}", "group_size 7"),
    (3, "variants: {a: {quantize: {method: [int4]}}}", "must be one name, not a list"),
    (3, "variants: {a: {quantize: {method: int8, bits: 4}}}", "has 8 bits"),
    (3, "variants: {a: {quantize: {method: mxfp4, group_size: 64}}}", "blocks of 32"),
    (3, "variants: {a: {quantise: int8}}", "did you mean 'quantize'?"),
    (3, "variants: {a: {quantize: int8, kv_cache: bfloat16}}", "unknown kv_cache 'bfloat16'; did you mean 'bf16'?"),
    (3, "variants: {a: {kv_cache: fp8_e4m3}}", "did you mean 'fp8'?"),
    (1, "arithmetic: bf16\nversion: 1", "did you mean 'served'? It rounds to the dtype of each arm"),
    (1, "arithmetic: exactly\nversion: 1", "'float32' or 'served'"),
    (3, "variants: {a: {quantize: int8, arithmetic: served}}", "unknown key 'arithmetic'"),
    (3, "variants: {a: {}}", "`speculation`, `kv_cache` or `adapter` alone"),
    (3, "variants: {a: {adapter: ./nowhere}}", "no adapter's folder"),
    (3, "variants: {a: {adapter: ''}}", "`adapter` is empty"),
    (3, "variants: {a: {adapter: https://example.org/lora}}", "not in this version"),
    (3, "variants: {a: {adapter: [./a]}}", "should be a mapping, such as `{path: ./support-lora}`"),
    (3, "variants: {a: {adapter: {merge: true}}}", "`variants.a.adapter.path` is missing"),
    (3, "variants: {a: {adapter: {path: ., merged: true}}}", "did you mean 'merge'?"),
    (3, "variants: {a: {adapter: {path: ., merge: 1}}}", "boolean"),
    (3, "variants: {a: {quantize: int8, adapter: {path: ., merge: true}}}", "is kept apart of them"),
    (3, "variants: {a: {quantize: int8, endpoint: 'http://x'}}", "`endpoint` and `serve` need `model`"),
    (3, "variants: {a: {quantize: int8, model: m, endpoint: 'http://x'}}", "is how an arm is generated here"),
    (3, "variants: {a: {model: m, endpoint: 'http://x', api_key_env: sk-abc123}}", "NAME of an environment variable"),
    (3, "variants: {a: {model: m, endpoint: 'http://x', concurrency: 0}}", "should be from 1 to 4096"),
    (3, "variants: {a: {model: m, endpoint: 'http://x', extra_headers: {Authorization: x}}}", "`api_key_env: NAME`"),
    (3, "variants: {a: {model: m, endpoint: 'http://x', extra_headers: {'a b': x}}}", "which no header can be called"),
    (3, "variants: {a: {model: m, endpoint: 'http://x', extra_body: {temperature: 1}}}", "must not hold `temperature`"),
    (3, "variants: {a: {endpoint: 'http://x', model: m}, b: {endpoint: 'http://x/', model: m}}", "noise_floor: true"),
    (3, "variants: {a: {quantize: int8, api_key: x}}", "did you mean 'api_key_env'?"),
    (4, "evalsets: []", "`evalsets` should have at least 1 item, not 0"),
    (4, "evalsets: arithmetic", "should be a list, `[…, …]`"),
    (4, "evalsets: [aritmetic]", "did you mean 'arithmetic'?"),
    (4, "evalsets: [arithmetic, arithmetic]", "'arithmetic' twice"),
    (4, "evalsets: [./ours/support.yaml, ours/support.yaml]", "'support' twice"),
    (4, "evalsets: [./theirs.yaml]", "no evalset at"),
    (4, f"evalsets: [./{'a' * 300}.yaml]", "no evalset at"),
    (4, "evalsets: [3]", "not 3"),
    (4, "evalsets: [{name: theirs}]", "`cases` must be `external`"),
    (4, "evalsets: [{name: ../theirs, cases: external}]", "`name` must be the name of an evalset"),
    (4, "evalsets: [{nam: theirs, cases: external}]", "did you mean 'name'?"),
    (4, "evalsets: [{lm_evl: gsm8k}]", "did you mean 'lm_eval'?"),
    (4, "evalsets: [arithmetic, {name: arithmetic, cases: external}]", "'arithmetic' twice"),
    (5, "gate: {rules: [{metric: throughput.answers, max_drop: 0.02}]}", "is measured under load: write the rule as"),
    (5, "gate: {alpha: 0, rules: [{metric: exact_match, max_drop: 0.02}]}", "from 0.000001 and below 0.5 (found 0)"),
    *(
        (5, f"gate: {{alpha: {found}, rules: [{{metric: exact_match, max_drop: 0.02}}]}}", f"below 0.5{meant}")
        for found, meant in {"5": "; 5 % is 0.05", "1.0e-320": " (found 1e-320)", "-0.05": "", "1.0e+308": ""}.items()
    ),
    *(
        (2, f"baseline: {{model: reference, dtype: {found}}}", f"did you mean '{meant}'?")
        for found, meant in {
            "fp16": "float16", "half": "float16", "FP16": "float16", "torch.float16": "float16", "f16": "float16",
            "BF16": "bfloat16", "torch.bfloat16": "bfloat16", "fp32": "float32", "float": "float32",
            "float64": "float32",
        }.items()
    ),
    (5, "gate: {alpha: .nan, rules: [{metric: exact_match, max_drop: 0.02}]}", "finite"),
    (5, "gate: {alpha: 5e-2, rules: [{metric: exact_match, max_drop: 0.02}]}", "YAML readers disagree"),
    (5, "gate: {review: sometimes, rules: [{metric: exact_match, max_drop: 0.02}]}", "'never' or 'always'"),
    (5, "gate: {stop: soon, rules: [{metric: exact_match, max_drop: 0.02}]}", "'end' or 'early'"),
    (5, "gate: {stop: early, noise_floor: true, rules: [{metric: exact_match, max_drop: 0.02}]}", "a noise floor"),
    (5, "gate: {noise_floor: 1, rules: [{metric: exact_match, max_drop: 0.02}]}", "valid boolean"),
    (5, "gate: {identity: names, rules: [{metric: exact_match, max_drop: 0.02}]}", "'hash' or 'ids'"),
    (5, "gate: {subset: a few, rules: [{metric: exact_match, max_drop: 0.02}]}", "name that file as well"),
    (5, "gate: {rules: []}", "at least 1 item"),
    (5, "gate: {}", "`gate.rules` is missing"),
    (2, "baseline: {model: reference, speculation: {draft: ngram}}", "held against plain decoding"),
    (3, "variants: {a: {calibration: calibration, speculation: {draft: ngram}}}", "`calibration` goes with `model`"),
    *(
        (3, f"variants: {{a: {{speculation: {said}}}}}", message)
        for said, message in {
            "{}": "`variants.a.speculation.draft` is missing",
            "ngram": "should be a mapping, such as `{draft: {quantize: mxfp4}, tokens: 5}`",
            "{drafts: ngram}": "did you mean 'draft'?",
            "{draft: ngrams}": "no proposer 'ngrams'; did you mean 'ngram'?",
            "{draft: mxfp4}": "a draft that is a model is a mapping such as `{quantize: mxfp4}`",
            "{draft: 5}": "should be a mapping, such as `{quantize: mxfp4}`",
            "{draft: {}}": "a draft has `quantize` (made of its target)",
            "{draft: {tokens: 5}}": "unknown key 'tokens'",
            "{draft: {quantize: mxfp5}}": "mxfp4",
            "{draft: {quantize: nf4}}": "not in this version",
            "{draft: {quantize: gptq}}": "`calibration` is missing",
            "{draft: {quantize: {method: awq, calibration: calibraton}}}": "no shipped calibration set",
            "{draft: {model: ./nowhere}}": "no model folder",
            "{draft: {model: https://example.org/m}}": "`model` is no address",
            "{draft: {model: ''}}": "`model` is empty",
            "{draft: {model: refrence}}": "a folder is written ./refrence",
            "{draft: {model: reference, dtype: float16}}": "unknown key 'dtype'",
            "{draft: {early_exit: 0}}": "from 1 (found 0)",
            "{draft: {early_exit: 1.5}}": "valid integer",
            "{draft: {early_exit: 1, quantize: int8}}": "leave `model` and `quantize` out",
            "{draft: {high_bits: 3}}": "4 (found 3)",
            "{draft: {high_bits: 4, quantize: int4}}": "leave `model` and `quantize` out",
            "{draft: {high_bits: 4, early_exit: 1}}": "put one `under` the other",
            "{draft: {high_bits: 4, head: reference}}": "leave every other key of `draft` out",
            "{draft: {head: reference, under: {draft: ngram}}}": "leave every other key of `draft` out",
            "{draft: {quantize: int8, under: {draft: {head: reference}}}}": "it stands in the first `draft`",
            "{draft: {head: ./no-such-head}}": "no-such-head",
            "{draft: {head: own, quantize: int8}}": "leave every other key of `draft` out",
            "{draft: {head: onw}}": "a folder is written ./onw",
            "{draft: ngram, tokens: 0}": "from 1 to 32, or auto; found 0",
            "{draft: ngram, tokens: 33}": "from 1 to 32, or auto; found 33",
            "{draft: ngram, tokens: 2.5}": "from 1 to 32, or auto; found 2.5",
            "{draft: ngram, tokens: true}": "from 1 to 32, or auto; found True",
            "{draft: ngram, tokens: many}": "or auto; found 'many'",
            "{draft: ngram, rule: greedy}": "'keyed', 'speculative_sampling', 'block_verification'",
            "{draft: ngram, rule: typicl}": "did you mean 'typical'?",
            "{draft: ngram, under: {draft: suffix}}": "'ngram' runs no model, so a draft for it would save nothing",
            "{draft: {quantize: mxfp4}, under: {draft: ngram}}": "`under` stands in the draft that it drafts for",
            "{draft: {quantize: mxfp4, under: ngram}}": "should be a mapping, such as `{draft: ngram}`",
            "{draft: {quantize: mxfp4, under: {draft: ngrm}}}": "did you mean 'ngram'?",
            "{draft: {quantize: mxfp4, under: {draft: ngram, tokens: 99}}}": "from 1 to 32",
            "{draft: {quantize: mxfp4, under: {draft: ngram, rule: typical}}}": "unknown key 'rule'",
            "{draft: {under: {draft: ngram}}}": "a draft has `quantize`",
            CASCADE: "a cascade of 5 levels, and 4 are the most",
        }.items()
    ),
]  # fmt: skip


@pytest.mark.parametrize(("line", "change", "message"), ONE_LINE_CHANGES, ids=[c[1][:60] for c in ONE_LINE_CHANGES])
def test_a_mistake_is_named_with_its_line(faults, line, change, message):
    found = faults(changed(line, change), schema=True)
    assert any(message in text and number == line for number, text in found), found
    assert "\x1b" not in str(found)


@pytest.mark.parametrize(
    ("line", "change", "messages"),
    [
        (2, "baseline: {modle: ./base}", ["unknown key 'modle'; did you mean 'model'?"]),
        (2, "base_line: {model: ./base}", ["unknown key 'base_line'; did you mean 'baseline'?"]),
        (5, "gate: {ruls: [{metric: exact_match, max_drop: 0.1}]}", ["unknown key 'ruls'; did you mean 'rules'?"]),
        (5, "gate: {rules: [{metrc: exact_match, max_drop: 0.1}]}", ["unknown key 'metrc'; did you mean 'metric'?"]),
        (2, "baseline: {folder: ./base}", ["`baseline.model` is missing", "unknown key 'folder'"]),
    ],
)
def test_a_misspelt_key_is_one_mistake_and_a_missing_one_beside_it_another(faults, line, change, messages):
    found = faults(changed(line, change))
    assert [number for number, _ in found] == [line] * len(messages)
    assert all(said.startswith(message) for (_, said), message in zip(found, messages, strict=True)), found


RULES = [
    ("{metric: exact_mach, max_drop: 0.02}", "did you mean 'exact_match'?"),
    ("{metric: exact_match}", "sets one bound, `max_drop` or `max_relative_drop`; found none"),
    ("{metric: exact_match, max_drop: 0.1, max: 0.2}", "found max_drop, max"),
    ("{metric: exact_match, max: 0.1}", "`max_relative_drop`; found max"),
    ("{metric: drift.kl_mean, max_drop: 0.1}", "`max`; found max_drop"),
    ("{metric: drift.top1_agreement, max: 0.1}", "`min`; found max"),
    ("{metric: latency.tpot, max: 0.1}", "`max_ratio`; found max"),
    ("{metric: exact_match, max_drop: 0}", "from 0.000000001"),
    ("{metric: exact_match, max_drop: 0.5}", "could never be proven"),
    ("{metric: exact_match, max_drop: 0.2}", "must be below 0.2"),
    ("{metric: exact_match, max_drop: -0.1}", "from 0.000000001"),
    ("{metric: exact_match, max_drop: '0.1'}", "valid number"),
    ("{metric: exact_match, max_drop: 1e-2}", "YAML readers disagree"),
    ("{metric: exact_match, max_drop: 010}", "YAML readers disagree"),
    ("{metric: exact_match, max_drop: true}", "valid number"),
    ("{metric: exact_match, max_drop: }", "valid number"),
    ("{metric: drift.kl_mean, max: .inf}", "finite"),
    ("{metric: drift.top1_agreement, min: 1.1}", "from 0.000000001 to 1"),
    ("{metric: latency.tpot, max_ratio: 0}", "from 0.000000001 to 10"),
    ("{metric: latency.tpot, max_ratio: 1.1, percentile: 100}", "from 1 and below 100"),
    ("{metric: latency.tpot, max_ratio: 1.1, percentile: 0.95}", "from 1 and below 100"),
    ("{metric: exact_match, max_drop: 0.1, percentile: 95}", "goes with latency metrics"),
    ("{metric: exact_match, max_drop: 0.1, per: evalset, evalset: arithmetic}", "write one of the two"),
    ("{metric: exact_match, max_drop: 0.1, per: topic}", "'evalset', 'task' or 'tag:NAME'"),
    ("{metric: exact_match, max_drop: 0.1, evalset: arithmetics}", "is not one this file runs: arithmetic"),
    ("{metric: exact_match, max_drop: 0.1, max_relative_drop: 0.1}", "found max_drop, max_relative_drop"),
    ("{metric: exact_match, max_relative_drop: 0.2}", "must be below 0.2"),
    ("{metric: exact_match, max_drop: 0.1, where: {tag: left, task: right}}", "one of `tag` and `task`"),
    ("{metric: exact_match, max_drop: 0.1, where: {tags: x}}", "did you mean 'tag'?"),
    ("{metric: exact_match, max_drop: 0.1, where: tag:left}", "`{tag: left}` with a space after the colon"),
    ("{metric: exact_match, max_drop: 0.1, where: tag:size:big}", "`{tag: size:big}` with a space after the colon"),
    ("{metric: exact_match, max_drop: 0.1, where: left}", "should be a mapping, such as `{tag: NAME}`"),
    ("{metric: exact_match, max_drop: 5%}", "without quotes or a unit, a share such as 0.02 (found '5%')"),
    ("{metric: 7, max_drop: 0.1}", 'should be a text; quote it: "7"'),
    ("{metric: exact_match, max_drop: 0.1, per: 'tag:'}", "'tag:NAME'"),
    ("{metric: exact_match, max_drop: 0.1, repeats: some}", "'mean'"),
    ("{metric: exact_match, max_drop: 0.1, repeats: pass^0}", "'pass^K' with a number from 1"),
    ("{metric: exact_match, max_drop: 0.1, repeats: 3}", "should be a text"),
    ("{metric: exact_match, max_drop: 0.1, repeats: pass^2}", "needs 2 answers to each case, and `generation.repeats`"),
    ("{metric: drift.kl_mean, max: 0.1, repeats: any}", "goes with metrics of quality"),
    ("{metric: exact_match, max_drop: 0.1, tier: blocking}", "'critical'"),
    ("{metric: exact_match, max_drop: 0.1, evalest: arithmetic}", "did you mean 'evalset'?"),
    ("{metric: memory.peak, max_ratio: 0.8, per: evalset}", "a number of the variant as a whole"),
    ("{metric: stability.sqnr, max: 3}", "`min`; found max"),
    ("{metric: goodput, min: 98}", "from 0.000000001 to 1; 98 % is 0.98"),
    ("{metric: exact_match, max_drop: 5}", "`max_drop: 5` is to be a share: 5 points are 0.05"),
    ("{metric: exact_match, max_drop: 1}", "1 point is 0.01"),
    ("{metric: exact_match, max_relative_drop: 2.5}", "2.5 % is 0.025"),
    ("{metric: exact_match, max_drop: 1.0e-320}", "from 0.000000001"),
    ("{metric: drift.kl_mean, max: 1.0e+300}", "from 0.000000001 to 1000000000000000"),
    ("{metric: drift.length_ratio, max: 110}", "from 0.000000001 to 10"),
    ("{metric: stability.saturated, max: 5}", "from 0.000000001 to 1; 5 % is 0.05"),
    ("{max_drop: 0.1}", "metric` is missing"),
    ("exact_match", "should be a mapping"),
    ("{metric: exact_match, max_drop: 0.02}", "repeats the one on line 6"),
    ("{metric: exact_match, max_drop: 0.03}", "contradicts the one on line 6"),
    *((f"{{metric: {name}, max: 1}}", "not in this version") for name in PLANNED),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "message"), RULES, ids=[rule for rule, _ in RULES])
def test_a_rule_that_cannot_be_meant_is_refused(faults, rule, message):
    found = faults(changed(5, f"gate:\n  rules: [{{metric: exact_match, max_drop: 0.02}},\n    {rule}]"), schema=True)
    assert any(number == 7 and message in text for number, text in found), found


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("generation: {temperature: -1}", "negative"),
        ("generation: {temperature: 0.001}", "or from 0.01 to 100"),
        ("generation: {temperature: .nan}", "finite number"),
        ("generation: {temperature: 0.7, top_p: 0}", "should be over 0 to 1"),
        ("generation: {temperature: 0.7, top_p: 95}", "95 % is 0.95"),
        ("generation: {temperature: 0.7, top_k: 0}", "to draw from all tokens, leave it out"),
        ("generation: {temperature: 0.7, top_k: 4.5}", "valid integer"),
        ("generation: {temperature: 0.7, min_p: 1}", "from 0 and below 1"),
        ("generation: {top_p: 0.9}", "at temperature 0 none is drawn: the likeliest is said; add a temperature"),
        ("generation: {temperature: 0, top_k: 40, min_p: 0.1}", "or leave `top_k`, `min_p` out"),
        ("generation: {temperature: 0.7, repeats: 1001}", "from 1 to 1,000"),
        ("generation: {repetition_penalty: 0}", "should be over 0 to 100"),
        ("generation: {presence_penalty: 2.5}", "from -2 to 2"),
        ("generation: {repetitionpenalty: 1.1}", "did you mean 'repetition_penalty'?"),
        ("generation: {repeats: 3}", "temperature 0, where all answers to a case are equal"),
        ("generation: {repeats: 0}", "from 1"),
        ("generation: {seed: -1}", "from 0 and below"),
        ("generation: {seed: true}", "valid integer"),
        ("store: postgresql+psycopg://me:hunter2@host/db", "give the password by PGPASSWORD"),
        ("store: postgresql://me@host/db?password=hunter2", "give the password by PGPASSWORD"),
        ("store: postgres:/me:hunter2@host", "postgresql://USER@HOST:PORT/DATABASE"),
        ("store: postgresql+psycopg2://host/db", "psycopg 3"),
        ("store: qualgate.db", "sqlite:///FILE"),
        ("store: 'sqlite:///:memory:'", "plain file"),
        ("store: sqlite:///a/", "sqlite:///FILE"),
        ("store: sqlite:///~nosuch/q.db", "no such user's home folder"),
        ('store: "sqlite:///a\\0b"', "cannot be a path"),
        ("workers: {backend: slurm}", "unknown backend 'slurm'"),
        ("workers: {address: auto}", "add `backend: ray`"),
        ("workers: {backend: ray, address: 'ray://head:10001'}", "start it on a node of the cluster"),
        ("workers: {backend: ray, address: head}", "auto or HOST:PORT"),
        ("workers: {count: 0}", "from 1 to 256"),
        ("workers: {count: many}", "or auto"),
        ("workers: {devices: 'cuda:0'}", "not in this version"),
        ("workers: {devices: tpu}", "unknown devices"),
        ("workers: {devices: []}", "as in [0, 1], or [[0, 1], [2, 3]] for models that two hold together; found []"),
        ("workers: {devices: [0, 0]}", "each once"),
        ("workers: {devices: [true]}", "the numbers of GPUs"),
        ("workers: {devices: [0, 1], count: 3}", "leave `count` out"),
        ("workers: {devices: [[0, 1], [1, 2]]}", "each once"),
        ("workers: {devices: [[0, 1], [2]]}", "as many GPUs as the others"),
        ("workers: {devices: [[]]}", "each once"),
        ("workers: {devices: [[[0]]]}", "the numbers of GPUs"),
        ("workers: {devices: [0, 1], backend: ray}", "Ray gives them out"),
        ("workers: {job_timeout: 90s}", "without quotes or a unit, seconds, such as 3600 (found '90s')"),
        ("slo: {ttft: 500ms}", "without quotes or a unit, seconds, such as 0.5 (found '500ms')"),
        ("generation: {temperature: '0.7'}", "without quotes or a unit, such as 0.7 (found"),
        ("load: {warmup: 10s}", "without quotes or a unit, such as 10 (found '10s')"),
        ("load: {concurency: [1]}", "did you mean 'concurrency'"),
        ("load: {concurrency: 4}", "`load.concurrency` should be a list"),
        ("load: {concurrency: []}", "`load.concurrency`"),
        ("load: {concurrency: [0]}", "from 1 to 4,096; found 0"),
        ("load: {concurrency: [1, 1]}", "names a level twice"),
        ("load: {concurrency: [1.5]}", "concurrency"),
        ("load: {rate: [.inf]}", "rate"),
        ("load: {rate: [0]}", "from 0.001 to 100,000; found 0"),
        ("load: {burstiness: 0.5}", "add for example `rate"),
        ("load: {speed: 2}", "add `trace: FILE`"),
        ("load: {trace: ./not-there.jsonl}", "no file"),
        ("load: {trace: https://example.org/t.jsonl}", "not in this version"),
        ("load: {seconds: 10}", "counts nothing: of 10 seconds, 5 are warm-up and 5 cool-down"),
        ("load: {seconds: -1}", "seconds"),
        ("load: {rounds: 0}", "`load.rounds` should be from 1 to 1000"),
        ("load: {cancel: 1}", "`load.cancel` should be from 0 to 0.9"),
        ("load: {cancel: 10}", "10 % is 0.1"),
        ("load: {retries: 9}", "`load.retries` should be from 0 to 5"),
        ("load: null", "load"),
        ("load: [1, 4]", "such as `{concurrency: [1, 4, 16]}`"),
        ("load: {trace: said.jsonl, seconds: 60}", "a trace lasts as long as it says"),
        ("wrokers: {count: 2}", "did you mean 'workers'?"),
    ],
)
def test_a_section_that_cannot_be_served_is_refused(faults, more, message):
    found = faults(SMALL + more + "\n", schema=True)
    assert [number for number, _ in found] == [6]
    assert message in found[0][1]
    assert "hunter2" not in found[0][1]


def test_all_faults_are_reported_at_once(faults):
    text = WHOLE.replace("mxfp4}", "mxfp5}").replace("alpha: 0.1", "alpha: 7").replace("exact_match, max", "exact, max")
    assert [number for number, _ in faults(text)] == [4, 10, 13]


def test_only_keys_of_the_future_make_it_not_in_this_version(load):
    with pytest.raises(NotInThisVersion):
        load(SMALL + "workers: {devices: cuda}\n")
    with pytest.raises(UsageError) as error:
        load(SMALL + "workers: {devices: cuda}\ngeneration: {repeats: -2}\n")
    assert not isinstance(error.value, NotInThisVersion)


@pytest.mark.parametrize(
    "rules",
    [
        "{metric: exact_match, max_drop: 0.02, tier: supporting}",
        "{metric: drift.kl_mean, max: 0.1}",
        "{metric: latency.tpot, max_ratio: 1.1}",
    ],
)
def test_a_policy_that_could_never_approve_is_refused(faults, rules):
    (fault,) = faults(ruled(rules))
    assert "no critical rule on quality" in fault[1]
