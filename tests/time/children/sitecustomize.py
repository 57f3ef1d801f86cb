"""Python's own hook at the start of a process: a child of a traced test traces itself (see tests/time/tracing.py)."""

import os

if os.environ.get("QUALGATE_TRACED") == "1":
    from tests.time.tracing import current_test, trace_children

    if current_test().exists():  # not pytest itself: it has run none yet
        trace_children()
