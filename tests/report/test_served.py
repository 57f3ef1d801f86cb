"""Served arms side by side, with what differs, and what their drafts came to."""

from __future__ import annotations

from qualgate.records import ArmFootprint, ArmIdentity, ArmSpec, DraftCounts, DraftWindow, Generation, Served
from qualgate.report.blocks import Cell, Table
from qualgate.report.served import drafts_line, served_sections
from qualgate.store.queries import ArmLine

NO_SIZES = {"bytes_on_disk": 0, "bytes_in_memory": 0, "quantized_bytes": 0, "effective_bits": 0.0}


def arm(name: str, served: Served | None, said: str = "", made: Generation | None = None) -> ArmLine:
    identity = ArmIdentity(weights="w", config="c", tokenizer="t", template="p", sampling="s", engine="e", served=said)
    footprint = ArmFootprint(**NO_SIZES, generation=made) if made else None
    return ArmLine(
        spec=ArmSpec(name=name, model="m", served=served), planned=identity, identity=None, footprint=footprint,
        expected=1, done=1, errors=0, kernels=(),
    )  # fmt: skip


def shown(*arms: ArmLine) -> dict[str, tuple[tuple[str, ...], bool]]:
    ((table,),) = (section.blocks for section in served_sections(arms))
    assert isinstance(table, Table)
    found = {}
    for name, *cells in table.rows:
        differs = name.startswith("≠ ")
        assert all(isinstance(cell, Cell) == differs for cell in cells)
        texts = tuple(cell.text if isinstance(cell, Cell) else cell for cell in cells)
        found[name.removeprefix("≠ ")] = texts, differs
    return found


def started(command: str, **more) -> Served:
    return Served(command=command, engine="vllm", **more)


def test_flags_of_both_commands_stand_side_by_side_whatever_their_order():
    one = started("vllm serve ./m --port {port} --max-model-len 4096 --enforce-eager")
    two = started('vllm serve ./m-awq --enforce-eager --port={port} --speculative-config \'{"method": "ngram"}\'')
    found = shown(
        arm("baseline", one, one.command, Generation(engine="vllm 0.32.0")),
        arm("fast", two, two.command, Generation(engine="vllm 0.33.0")),
    )
    assert found["engine"] == (("vllm", "vllm"), False)
    assert found["version"] == (("0.32.0", "0.33.0"), True)
    assert found["command"] == (("vllm serve ./m", "vllm serve ./m-awq"), True)
    assert found["--port"] == (("{port}", "{port}"), False)
    assert found["--enforce-eager"] == (("given", "given"), False)
    assert found["--max-model-len"] == (("4096", "–"), True)
    assert found["--speculative-config"] == (("–", '{"method": "ngram"}'), True)
    assert list(found)[-4:] == ["--port", "--max-model-len", "--enforce-eager", "--speculative-config"]


def test_what_is_sent_with_each_request_is_told_of_addresses():
    one = Served(endpoint="http://a/v1", extra_body='{"top_n": 1}')
    two = Served(endpoint="http://b/v1", extra_headers=(("X-Team", "support"),), tokenizer="./m", stream=False)
    found = shown(arm("baseline", one, "m, root ./m; vllm 0.32.0"), arm("v", two, "m; engine not told"))
    assert found["address"] == (("http://a/v1", "http://b/v1"), True)
    assert found["model"] == (("m, root ./m", "m"), True)
    assert (found["engine"][0], found["version"][0]) == (("vllm", "engine not told"), ("0.32.0", "–"))
    assert (found["extra_body top_n"][0], found["extra_headers X-Team"][0]) == (("1", "–"), ("–", "support"))
    assert (found["asked by"][0], found["streamed"][0]) == (("messages", "token ids"), ("yes", "no"))


def test_one_served_arm_stands_beside_nobody():
    assert served_sections([arm("baseline", None), arm("v", Served(endpoint="http://b/v1"))]) == []


def windows(*ends: tuple[str, int]) -> Generation:
    def at(drafts: int) -> DraftCounts:
        return DraftCounts(verifications=drafts, proposed=4 * drafts, accepted=2 * drafts, by_place=(drafts, drafts))

    made, before = [], 0
    for evalset, end in ends:
        made.append(DraftWindow(server="s", evalset=evalset, before=at(before), after=at(end)))
        before = end
    return Generation(windows=tuple(made))


def test_drafts_are_told_by_set_where_each_set_was_answered_by_itself():
    apart = drafts_line(arm("v", Served(), made=windows(("a", 10), ("b", 30))))
    assert apart.startswith(
        "v: drafts, as its server counts them: 3.00 tokens a verification, 50.0% of 120 drafted tokens accepted, "
        "accepted at place 1 to 2: 100%, 100%; by set: a 3.00"
    )
    assert "; b 3.00 tokens a verification, 50.0% of 80 drafted tokens" in apart
    assert "by set" not in drafts_line(arm("v", Served(), made=windows(("a", 10), ("", 30))))


def test_no_draft_is_told_of_an_arm_that_is_said_to_draft_and_of_no_other():
    unknown = Generation(uncounted="its metrics have no counter of drafts")
    assert drafts_line(arm("v", Served(drafts=True), made=windows(("a", 0)))) == (
        "v: its server's counters of drafts stood still while it answered"
    )
    assert "is not known: its metrics have no counter" in drafts_line(arm("v", Served(drafts=True), made=unknown))
    assert drafts_line(arm("v", Served(), made=windows(("a", 0)))) == drafts_line(arm("v", None)) == ""
