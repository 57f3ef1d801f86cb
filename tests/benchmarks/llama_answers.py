"""Run by an interpreter that has xllamacpp, which has nothing of ours: answers prompts by llama.cpp's server.

argv: GGUF file, threads, slots (prompts at once), longest (tokens of a context), a JSON file: {kind: [[token ids,
tokens to say], ...]}.
stdin: a kind a line. stdout: "ready {version}", then for each kind a line of JSON, the token ids of its answers. What
llama.cpp itself prints goes to stderr. Answers are greedy and go on behind a token that ends one; no prompt is kept.
The text of token 7 is "t7", and so on (`llama_peer.write_gguf`).
"""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.metadata import version


def main() -> None:
    """Until stdin ends."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    llama = import_module("xllamacpp")
    file, threads, slots, longest, asked = sys.argv[1:]
    with open(asked, encoding="utf-8") as stream:
        prompts = json.load(stream)
    params = llama.CommonParams()
    params.model.path, params.port = file, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(threads)
    params.n_parallel, params.n_ctx = int(slots), int(slots) * int(longest)
    params.cont_batching, params.cache_prompt, params.cache_ram_mib, params.warmup = True, False, 0, True
    server = llama.Server(params)

    def answer(one):
        ids, most = one
        said = server.handle_completions(
            {
                "prompt": ids, "n_predict": most, "temperature": 0, "top_k": 1, "ignore_eos": True,
                "cache_prompt": False,
            }
        )  # fmt: skip
        tokens = [int(number) for number in said["choices"][0]["text"].split("t")[1:]]
        if len(tokens) != most:
            raise RuntimeError(f"expected {most} tokens, got {str(said)[:400]}")
        return tokens

    with ThreadPoolExecutor(int(slots)) as pool:
        for mine in prompts.values():  # warm
            [*pool.map(answer, mine)]
        print(f"ready {version('xllamacpp')}", file=out, flush=True)
        for line in sys.stdin:
            print(json.dumps([*pool.map(answer, prompts[line.strip()])]), file=out, flush=True)
    os._exit(0)  # its server's threads would go on


if __name__ == "__main__":
    main()
