"""What the row `killed` takes for received, and for asked again."""

from __future__ import annotations

from tests.verification.served.recording_server import Noted


def test_an_answer_is_received_once_its_connection_asks_for_more():
    noted, one, other = Noted(), object(), object()
    noted.note_question(one, ("m", "say c1"))
    noted.note_question(other, ("m", "say c2"))
    noted.note_question(one, None)
    assert (noted.received, noted.again) == ({("m", "say c1")}, [])
    noted.note_question(object(), ("m", "say c2"))
    assert noted.again == [], "it may have been under way when the run was killed"
    noted.note_question(object(), ("m", "say c1"))
    assert noted.again == [("m", "say c1")]
