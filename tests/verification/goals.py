"""What each proof is to show: row id → goal. Ids stay what they are from version to version."""

from __future__ import annotations

from tests.benchmarks.shape import Benchmark

SANDBOX = {
    "escape.1": "every outcome of S1-S17 as required, one sandbox at a time",
    "escape.8": "every outcome of S1-S17 as required, 8 sandboxes at once",
    "escape.32": "every outcome of S1-S17 as required, 32 sandboxes at once",
    "escape.mutants": "10,000 mutants of hostile programs change nothing outside, learn no secret, stop nothing (S16)",
    "judge.exhausted": "answers that would exhaust their judge: none right, judge <= 300 MB, <= 2 x the wall limit",
    "kernel.memory": "what exhausts memory, the kernel's too, takes <= 1.5 x the limit",
    "sandbox.overhead": "<= 40 ms a sample over a plain Python that runs the same program and its test",
    "forgeries": "0 of >= 30 forgeries pass, against every kind of test",
    "humaneval.reference": "every reference solution passes",
    "humaneval.broken": "every solution that returns something else fails, mutants as when run beside their tests",
    "mbpp.reference": "every reference solution passes",
}

DECISIONS = Benchmark(
    name="decisions",
    about="the gate's words: errors and power of its tests, peers' rules, faulted and planted evidence",
    goals={
        "errors": "P(approve) <= alpha at loss = max_drop, P(block) <= alpha at losses <= max_drop, whole policy, by "
        "the gate's one door: exact table by table, shared and clustered cases by draws; under 20 clusters undecided",
        "power": "P(approve | identical), P(block | 2 x max_drop) by the gate's one door within 2 points of the best "
        "exact paired test",
        "peers.cases": ">= 0.9 x 2p(1-p)/disagreement times our cases for every unpaired rule at our errors and "
        "margin, disagreement >= 1.5 margins; below, reported",
        "peers.false_pass": "every rule's passes of a true 3-point loss, n = 1,319, as `--peers` tells them: as known, "
        "within simulation error",
        "early.identical": ">= 40 % of a fixed paired test's cases saved on average at power .95, identical variants",
        "early.twice": ">= 40 % of a fixed paired test's cases saved on average at power .95, at 2 x max_drop",
        "early.worst": "the worst truth's cases over the fixed test's, reported",
        "early.decodes": ">= .50 of a stored run's decodes saved, shipped sets, same verdicts",
        "planner.rates": "predicted rates of 50 policies, 14 of them on tags, tasks, repeats or relative losses, "
        "within 2 points of what decide says of drawn runs, each beyond 3.5 standard errors, and on average",
        "planner.decidable": ">= 95 % of 50 policies reach P(approve | identical) >= .8 after the printed change",
        "undecided.planned": ">= 250 seeded policies, identical variant, the planner's n: undecided <= 10 %; both "
        "errors and today's figure beside it",
        "peeking": "100,000 adversarial schedules at the margin: P(decided at the best moment) <= alpha",
        "peeking.files": "6 sequences of looks at a list, fixed, early, in other orders, as it grows or not, at the "
        "margin: P(any look approves), P(any look blocks) <= alpha",
        "fail_closed.cases": ">= 60 faulted evidences, policies and score files: 0 exit with 0",
        "fail_closed.mutations": ">= 500 single and paired mutations of what the gate is given: 0 exit with 0",
        "fail_closed.score_files": ">= 300 mutations of score files and gate files: 0 exit with 0 that should not",
        "attacks.new": ">= 1,000 attacks over verdicts, files and stores, >= 500 over cases that no rule counts, "
        "labels and copies: 0 exit with 0",
        "attacks.legitimate": ">= 100 odd but sound inputs of honest users: 0 refused, each with its honest exit code",
        "monotone": "10,000 random evidences, one right answer of the variant turned wrong: right or wrong answers by "
        "themselves: 0 verdicts improve; clustered or graded: counted, a bound improves by <= 0.1 of the margin",
        "defects.false_approve": "<= 5 % of >= 100 defects planted in evidence records approved",
        "defects.false_block": "<= 5 % of sound variants in evidence records blocked",
        "planted.false_approve": "<= 5 % of >= 100 defects planted in real runs approved",
        "planted.false_block": "<= 5 % of >= 100 sound arms of real runs blocked at the declared n",
        "planted.cause": ">= 90 % of the defects found in real runs, mutants held out: the cause named right; of all "
        "planted, reported",
        "interaction.power": "P(a verdict tells it) >= 0.9 at <= 2,500 cases, both 2 points worse, <= 11 % changed",
        "interaction.silent": "P(a verdict tells one) <= alpha where there is no interaction",
        "choice.margin": "60 cells of (n, margin, gained, correlation between arms): P(exit 0 with the chosen arm at "
        "its margin) <= alpha + 3 SE; power of identical arms reported",
        "times.errors": "P(approve), P(block) <= alpha at a true ratio of 1.10 = limit; machine speed AR(1), rho "
        "to .95, sd 10 %, or Pareto 1.5; sums and percentiles",
        "times.power": "P(approve) >= .9 at a true ratio of 1.00, limit 1.10, 60 batches, sd 10 %, rho to .95",
        "nights": "1,000 years of nights: P(any false alarm of a model) <= alpha a year, <= 1 a year where each month "
        "changes answers for good; a 3-point fall told within 4 nights, power .9; as an oracle tells",
        "aa.block_rate": "P(block) of the baseline against itself <= alpha, exact",
    },
    in_parts=True,
)

DETERMINISM_REPORT = Benchmark(
    name="determinism-report",
    about="the same evidence judged and reported 100 times: the same bytes in every format",
    goals={
        "deterministic": "100 of 100: other worker order, hash seed, locale, time zone, thread count; same bytes",
    },
)

SCORING = Benchmark(
    name="scoring",
    about="scorers against the field's references and hostile answers, and their speed on one core",
    goals={
        "bfcl_mutations": "100 % same verdict and error type as rules written independently, BFCL's rows mutated",
        "bfcl_fuzz": "100 % same verdict and error type, 100,000 made calls against rules written independently",
        "schema_suite": "100 % of the JSON-Schema-Test-Suite's required part, draft 2020-12",
        "suite": "the suite's required part of five drafts whole; optional parts and asserted formats: its verdict or "
        "jsonschema's own, and none only for iri and vocabularies that assert formats",
        "maskbench": "0 of MaskBench's schemas refused for a draft; >= 99.5 % of its labels met, formats asserted",
        "languages": "30 languages: no answer in the right one called wrong; >= 98 % of those in another, half and "
        "half or glued from two scripts called wrong",
        "gsm8k_filters": "100 % same extraction and verdict as lm-eval's two filters, GSM8K rows and real completions",
        "filters_fuzz": "100 % same extraction and verdict as lm-eval's filters and exact_match, 100,000 made answers",
        "match_fuzz": "100 % same numbers, F1, verdicts, 100,000 made answers: numeric and SQuAD's F1 against rules "
        "written independently, DROP's F1 against lm-eval's",
        "ifeval_fuzz": "100 % same verdicts as lm-eval's own checkers, strict and loose, 25,000 made answers",
        "reasoning": "11,000 of 11,000 made texts over 22 ways, nested, quoted, broken, split as an oracle does; "
        "verdicts with and without the thought equal",
        "choice": ">= 99.9 % of answers in 41 styles: lm-eval's and MMLU-Pro's filters as theirs, ours as meant",
        "contains": "2,000 made pairs as lm-eval's `contains` and inspect's `includes` judge them, or parted as listed",
        "readings": "4,000 choices, numbers, formulas, programs, patterns, thoughts, judges' replies and unfinished "
        "answers, read as by one who had not seen our scorers: 0 wrong approvals, >= 99 % agreed",
        "judge": "scripted judges: planted tastes for place, length, format all named, of a fair one <= alpha; "
        "6 useless ones never believed, P(believed at its floor) <= alpha; style approves and blocks <= alpha",
        "dialects": ">= 1,000 strings for 51 dialects: strictly none otherwise than vLLM's parsers read them, but for "
        "kinds that are listed; pieces = whole on all",
        "parsers.vllm": "100 % of the recorded strings read by vLLM's parsers in the sandbox as its server read them",
        "parsers.sglang": "100 % of the recorded strings read by SGLang's parsers in the sandbox as its server did",
        "math": ">= 99.5 % of 5,120 made pairs as math-verify judges them; where both are known to part, as listed",
        "math_hostile": "0 hangs over 5 s, 0 crashes, 0 right: 10,000 hostile expressions",
        "math_speed": ">= 2,000 plain answers/s on one core",
        "hostile_outputs": "0 crashes, 0 hangs over 1 s, 10,000 seeded mutants to every scorer",
        "tool_call_speed": ">= 100,000 simple tool-call checks/s on one core, compat mode, calls already decoded",
        "schema_speed": ">= 50,000 schema checks/s on one core",
        "lm_eval_speed": ">= 5x lm-eval's scoring of the same log",
    }
    | SANDBOX,
    in_parts=True,
)

STATIC = Benchmark(
    name="static",
    about="every GPU kernel compiled for sm_80, sm_90, sm_100: spills, shared memory, instructions per weight",
    goals={
        "compiles": "every kernel in every configuration, for sm_80, sm_90 and sm_100",
        "no_spills": "0 instructions that move a register to local memory or back",
        "products": "matrix products in every loop that is there for them",
        "tensor_memory": "within the 512 columns of sm_100",
        "shared_memory": "within what the target's blocks may ask for, in bytes",
        "int4_instructions": "<= 3.6 instructions per int4 weight in the main loop, sm_90, 16 tokens",
    },
)

QUANTIZE = Benchmark(
    name="quantize",
    about="KL of every calibrated method against round-to-nearest on the same grid",
    goals=dict.fromkeys(
        (
            "gptq_int4",
            "gptq_int4_act_order",
            "gptq_int4_static",
            "gptq_int4_asym",
            "gptq_int3",
            "gptq_int2",
            "gptq_int8",
            "awq_int4",
            "awq_int3",
            "smoothquant_w8a8",
            "nvfp4_calibrated",
        ),
        "KL below round-to-nearest on the same grid, with every calibration draw",
    ),
)

EXACT = Benchmark(
    name="exact",
    about="every way to ask the engine against one request alone, one token a pass: other tokens, other bits",
    goals={
        "exact.tokens": ">= 1,000,000 compared, over batches x weights x drafts x threads, greedy and drawn",
        "exact.other_tokens": "0",
        "exact.other_bits": "0 tokens with another bit of log-prob, margin or logits",
        "exact.kept.tokens": ">= 1,000,000 more, over keys and values in bf16, fp8, int8 and int4, exact and as served",
        "exact.kept.other_tokens": "0",
        "exact.kept.other_bits": "0",
    },
    in_parts=True,
)

COMBINATIONS = Benchmark(
    name="combinations",
    about="speculation with quantized weights, fewer bits of keys and values, shared prefixes: accepted, gained",
    goals={
        "combined.answers": "0 answers that are not the target's own without drafts, every combination",
        "combined.gains": "a table: of each combination what is accepted, what it gains a token, and its memory",
    },
)

LOSSLESS = Benchmark(
    name="lossless",
    about="speculation leaves the distribution of answers as it is: every rule enumerated, mutants, the engine's draws",
    goals={
        "lossless.by_rounds": "total variation <= 1e-12: every lossless rule x everyone who drafts (models of 1 to 3 "
        "levels, texts, an EAGLE-3 head), drawn and one-hot, temperature 1 and 0, under a constraint too",
        "lossless.at_once": "total variation <= 1e-12 of whole answers by a run's keys; no number is drawn twice",
        "lossless.known_mutants": "11 of 11 wrong ways to speculate that are known from the field are found",
        "lossless.code_mutants": ">= 10 changes of single lines of the code that runs, or of its keys: all found",
        "lossless.lossy_rules": "each rule tagged as changing the distribution does: total variation > 1e-3",
        "lossless.engine": "the engine's answers by each rule fit the law of its model's logits: n-grams, accepted "
        "tokens, each place of a draft; no number is drawn twice; P(a sound engine fails) <= 1e-6",
        "lossless.wrong_engines": "each of >= 10 engines made wrong fails it",
        "lossless.seconds": "< 60 s on the wall, of two cores",
    },
)

ARCHITECTURES = Benchmark(
    name="architectures",
    about="every decoder that transformers knows, made small: what is let through says the tokens of its own generate",
    goals={
        "tokens": "0 of those that are let through say other greedy tokens than transformers' own, alone or in a batch",
        "let_through": ">= 70 architectures are let through",
    },
)

SERVED_ARITHMETIC = Benchmark(
    name="served-arithmetic",
    about="`arithmetic: served` beside vLLM on a CPU and transformers in bfloat16; what float16 does not hold",
    goals={
        "agrees": ">= 2,000 cases of the shipped sets: vLLM-CPU's bfloat16 answers are said again at least as often as "
        "by transformers in bfloat16",
        "margins": "every answer that differs from vLLM's parts at a top-2 margin under 2 steps of bfloat16",
        "overflow": "planted overflows in 20 float16 folders: none is answered without a word; 20 sound ones are",
        "memory": "a bfloat16 baseline of 738 MB as served, libraries apart: peak <= 1.15 x its file, loading "
        "included; what is counted for it within 5 % of what it held",
    },
)

SERVICE = Benchmark(
    name="service",
    about="what a shared store bears, and what running on engines of others costs",
    in_parts=True,
    goals={
        "ingest": ">= 50,000 score rows/s into a file, >= 30,000 into PostgreSQL, by a run that is scored again",
        "writers": "16 processes x 100,000 results into one store, of either kind: 0 errors, p99 wait < 200 ms",
        "pages": "any query of the dashboard and of a report < 100 ms with 5 million units, in a store of either kind",
        "pages.shown": "a run of 1,000,000 answers: each page cold < 1.5 s, warm < 300 ms, by the dashboard's server",
        "pages.sessions": "20 sessions on it for 30 minutes: p95 of a page < 2 s, growth < 50 MB each, 0 failed",
        "resume": "killed at 99 % of 20,000 units: <= 1 % generated again, its next answer stored in < 5 s, none lost",
        "kills": "R1, R2, R4, R5, R7, R8, R11, R13, R14 over files, PostgreSQL and Ray, 200 workers, 20 coordinators, "
        "5 seeds: 0 answers lost, 0 doubled, the same bytes of the report",
        "scale": "64 nodes x 8 devices, modelled times, losses and stragglers, the real pool and store: 10,000,000 "
        "units in <= the ideal time / .90",
        "overhead.ray": "Ray on one node <= 10 % over the local pool, from the first outcome to the last",
    },
)

FIRST_HOUR = Benchmark(
    name="first-hour",
    about="from `init` to the first verdict on a real chat model, by the commands that README shows",
    goals={
        "verdict": "5 shapes of cases, a variant that cannot say some words: within 10 minutes each the loss that an "
        "oracle counts is named, and the variant blocked or the cases that would do",
    },
)

FOLDERS = Benchmark(
    name="folders",
    about="model folders whose files contradict each other, or that servers read differently",
    goals={
        "folders.edited": ">= 150 folders of >= 12 formats, one fault each: 0 approved where a server would compute or "
        "show something else than was judged; >= 95 % refused, blocked or told with the true cause",
        "folders.sound": ">= 60 sound folders, made by the real libraries and by all their options: 0 refused",
        "folders.mutate": "5,000 random single edits of sound folders: 0 silent, 0 tracebacks; refused by name, or "
        "judged as every server reads it",
    },
    in_parts=True,
)

SERVED = Benchmark(
    name="served",
    about="arms that are served: faults of servers and of the wire, what lists and drafts prove, what the client costs",
    goals={
        "chaos": ">= 60 misbehaviours of servers and the wire, each for a while and for good, and >= 120 forms of "
        "right answers and outages, alone and in pairs: 0 answers lost, doubled or wrong, each lasting fault named, "
        "<= 1.2 requests a case but for retries",
        "killed": "200 moments of a run of 300 cases, signal 9, a file and PostgreSQL: every answer that was received "
        "is stored, 0 asked again, answers and verdict as undisturbed",
        "faults": "12 faults planted before our own server, in 5 models each: >= 95 % caught and named; 100 sound "
        "pairs: 0 accused, blocked <= alpha",
        "identity": ">= 40 ways to be answered by another (caches, routers, fallbacks), by whole runs: 0 approved in "
        "silence; >= 40 honest names, ids and times: 0 refused",
        "client": ">= 3,000 requests a core a second, or >= 0.8 x the best bare client; added p99 <= 2 ms; 10,000 "
        "streams open at once in <= 2 GiB",
        "verdict.same": "2,800 shipped cases of the baseline and an int4 through our own server: each answer as in "
        "process",
        "wire.drafted": "tokens said for an int8 / int4 arm <= .25 / .5 of plain decoding, the same answers",
        "power": "samples at a temperature of 7 pairs, int8 among them: power >= Model Equality Testing's + .10 where "
        "its is <= .85; size <= alpha",
        "endpoints": "`compare --tokens` of arms of the reference model, 500 comparisons each: sound pairs different "
        "<= alpha + 3 SE; int4, int8, KV int8, temperature 1.02, other template: found as often as stated, within .10",
        "metrics.agree": "TTFT, TPOT, gaps, end to end, requests/s, tokens/s of recorded streams within 2 % of what "
        "`vllm bench serve` and GuideLLM make of them",
        "kl.bounds": "the true KL inside the interval at each of >= 10,000 positions, by k; width reported",
    },
    in_parts=True,
)

PROOFS = {
    one.name: one
    for one in (
        ARCHITECTURES,
        COMBINATIONS,
        DECISIONS,
        DETERMINISM_REPORT,
        EXACT,
        FIRST_HOUR,
        FOLDERS,
        LOSSLESS,
        QUANTIZE,
        SCORING,
        SERVED,
        SERVED_ARITHMETIC,
        SERVICE,
        STATIC,
    )
}
