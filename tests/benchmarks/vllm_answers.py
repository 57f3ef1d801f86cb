"""Run by an interpreter that has vLLM, which has nothing of ours: answers prompts on the CPU, a line a turn.

argv: folder, dtype, longest (tokens of a context), a JSON file: {kind: [[token ids, most tokens to say], ...]}, and
more options of vLLM's `LLM` as JSON.
stdin: a kind a line. stdout: "ready {version}", then for each kind a line of JSON, the token ids of its answers. What
vLLM itself prints goes to stderr. The prefix cache is on, and empty before each kind: prompts are fresh.
"""

import json
import os
import sys
from importlib import import_module


def main() -> None:
    """Until stdin ends."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    vllm = import_module("vllm")
    folder, dtype, longest, asked, more = sys.argv[1:]
    with open(asked, encoding="utf-8") as file:
        prompts = json.load(file)
    engine = vllm.LLM(
        model=folder, dtype=dtype, max_model_len=int(longest), enable_prefix_caching=True, disable_log_stats=True,
        **json.loads(more),
    )  # fmt: skip

    def answer(mine):
        how = [vllm.SamplingParams(temperature=0, max_tokens=most, detokenize=False) for _, most in mine]
        said = engine.generate([{"prompt_token_ids": ids} for ids, _ in mine], how, use_tqdm=False)
        return [list(one.outputs[0].token_ids) for one in said]

    for mine in prompts.values():  # warm
        answer(mine)
    engine.reset_prefix_cache()
    print(f"ready {vllm.__version__}", file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(prompts[line.strip()])), file=out, flush=True)
        engine.reset_prefix_cache()


if __name__ == "__main__":  # vLLM spawns processes that import this file
    main()
