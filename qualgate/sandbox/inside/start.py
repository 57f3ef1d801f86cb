"""First code in a sandbox: move its pipes away from where programs look, confine itself, then serve."""

from __future__ import annotations

import builtins
import json
import os
import sys
from _sitebuiltins import Quitter

from .confine import confine

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def main() -> None:
    """argv: the configuration as JSON. Standard input brings questions, `reply` takes replies, output is output."""
    config = json.loads(sys.argv[1])
    if config["role"] == "witness":
        from . import witness as server
    elif config["role"] == "program":
        from . import program as server
    elif config["role"] == "parsers":
        from . import parsers as server
    else:
        from . import answer as server
    sys.argv[1:] = []
    if config["packages"]:
        sys.path.append(config["packages"])
    if config["packages"] or config["role"] == "parsers":
        os.environ.update(dict.fromkeys(_THREADS, "1"))  # a pool for each of the machine's CPUs would exceed the limits
    builtins.exit, builtins.quit = Quitter("exit", "Ctrl-D"), Quitter("quit", "Ctrl-D")  # `site`, which was left out
    questions = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(config["reply"]), "wb")  # at a low number, however many files the host has open
    os.close(config["reply"])
    empty = os.open("/dev/null", os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    try:
        confine(config)
    except OSError as error:
        replies.write(json.dumps({"refused": str(error)}).encode() + b"\n")
        replies.flush()
        os._exit(1)
    replies.write(b'{"ready": true}\n')
    replies.flush()
    server.serve(questions, replies)
    if config["role"] == "program":
        return  # a program ends as Python ends: its threads are waited for, what it left to run at exit runs
    sys.stdout.flush()
    os._exit(0)  # what the candidate left to run at exit does not run
