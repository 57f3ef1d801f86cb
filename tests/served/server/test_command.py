"""`qualgate serve`: what is wrong with its arguments is said before anything is loaded."""

from __future__ import annotations

import socket

import pytest

from qualgate.errors import Exit
from tests.command_line import qualgate


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["./nowhere", "--port", "0"], "no model folder"),
        (["reference", "--dtype", "int8"], "bfloat16, float16 or float32"),
        (["reference", "--port", "99999"], "Invalid value for '--port'"),
    ],
)
def test_what_cannot_be_served_is_refused(arguments, said, tmp_path):
    done = qualgate("serve", *arguments, cwd=tmp_path)
    assert done.returncode == Exit.USAGE
    assert said in done.stderr


def test_a_port_that_is_taken_is_named(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = qualgate("serve", "reference", "--port", str(port), cwd=tmp_path)
    assert done.returncode == Exit.USAGE
    assert f"port {port} on this machine cannot be had" in done.stderr
