"""Server-sent events: whatever their line ends, and wherever they are cut, the same data comes out."""

from __future__ import annotations

import re
from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.served.faults import WireFault
from qualgate.served.stream import Events
from tests.depth import examples

LINES = st.sampled_from([
    b"data: {}", b"data:x", b"data", b"data:  two", b": a comment", b"event: message", b"id: 7", b"retry: 9", b"",
    b"", b"", b"dataset: 1", "data: ñ".encode(), b"data: \xff", b"data: [DONE]",
])  # fmt: skip
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


def by_the_standard(stream: bytes) -> list[bytes]:
    """WHATWG HTML 9.2.6, line by line over the whole."""
    found, data = list[bytes](), list[bytes]()
    *lines, _ = re.split(rb"\r\n|\r|\n", stream.removeprefix(b"\xef\xbb\xbf"))
    for line in lines:
        name, colon, value = line.partition(b":")
        if not line:
            found += [b"\n".join(data)] if b"\n".join(data).strip() else []
            data = []
        elif name == b"data":
            data.append(value[1:] if colon and value[:1] == b" " else value)
    return found


@given(st.lists(st.tuples(LINES, ENDS), max_size=20), st.booleans(), st.lists(st.integers(0, 200), max_size=12))
@examples(200)
def test_events_are_the_standard_s_wherever_a_stream_is_cut(lines, marked, cuts):
    stream = b"\xef\xbb\xbf" * marked + b"".join(line + end for line, end in lines)
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    events = Events(10**6)
    said = [one for start, stop in pairwise(places) for one in events.take(stream[start:stop])]
    assert said == by_the_standard(stream)


@pytest.mark.parametrize("endless", [b"x" * 600, b"data: " + b"y" * 600, b"data: z\n" * 400])
def test_an_event_without_end_is_broken_off(endless):
    events = Events(500)
    parts = (endless[at : at + 50] for at in range(0, len(endless), 50))
    with pytest.raises(WireFault, match="more than 500 bytes"):
        [*chain.from_iterable(map(events.take, parts))]
