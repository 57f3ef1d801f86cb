"""Rows of anyone's JSON lines become cases that the evalset's own check accepts, and what was mapped is told."""

from __future__ import annotations

import json

import pytest

from qualgate import evalsets
from qualgate.errors import UsageError
from qualgate.evalsets.own_rows import read_rows
from tests.evalsets.tables import rows_of

ASK = [{"role": "user", "content": "Which order?"}]
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
# What a row says → the row, metrics, the case but for its id and length.
ROWS = rows_of("own_rows")


def written(tmp_path, rows) -> object:
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(("row", "metrics", "case"), ROWS.values(), ids=ROWS)
def test_what_a_row_carries_says_how_it_is_scored(tmp_path, row, metrics, case):
    ((made,), _) = (rows := read_rows(written(tmp_path, [row]), "own", chat=True)).sets, rows.notes
    (found,) = made.cases
    assert list(made.metrics) == metrics
    assert found["messages"] == ASK
    assert {name: found[name] for name in case} == case
    assert found.keys() == {"id", "messages", "max_new_tokens", *case}
    (tmp_path / "own.jsonl").write_text(json.dumps(found) + "\n")
    (tmp_path / "own.yaml").write_text(f"name: own\nversion: '1'\nmetrics: {json.dumps(metrics)}\n")
    assert evalsets.check(tmp_path / "own.yaml") == ()


def test_mappings_made_ids_copies_and_unread_keys_are_told(tmp_path):
    rows = [{"instruction": "Be short.", "input": f"Ask {n % 4}", "output": "yes", "source": "web"} for n in range(5)]
    found = read_rows(written(tmp_path, rows), "own", chat=True)
    assert [case["messages"][0]["content"] for case in found.sets[0].cases] == [
        f"Be short.\n\nAsk {n}" for n in range(4)
    ]
    for said in (
        "`input` became the user's message (5 rows)",
        "`output` became `answer` (5 rows)",
        "5 rows have no `id`: each got one from its line",
        "1 row asks what an earlier one asks: left out, as one observation",
        "left out, as nothing reads them: `source`",
    ):
        assert said in found.notes


def test_a_question_that_is_repeated_with_another_answer_is_refused_by_both_lines(tmp_path):
    rows = [{"question": "1 + 2 =", "answer": "3"}, {"question": "2 + 2 =", "answer": "4"}]
    with pytest.raises(UsageError, match="3: asks the same question as line 1, but is scored by something else"):
        read_rows(written(tmp_path, [*rows, {"question": "1 + 2 =", "answer": "4"}]), "own", chat=True)
    clustered = [{"id": name, "prompt": "Ask", "max_new_tokens": 7, "answer": name, "cluster": "k"} for name in "ab"]
    found = read_rows(written(tmp_path, [*clustered, *rows, rows[0]]), "own", chat=True)
    assert sum(len(one.cases) for one in found.sets) == 4, "one copy is left out, and no row with a cluster"


@pytest.mark.parametrize(
    ("json_asked", "others", "kinds"),
    [(3, 0, {"json-prompts": 3}), (60, 50, {"json-prompts": 60, "prompts": 50}), (60, 3, {"prompts": 63})],
)
def test_prompts_that_ask_for_json_are_a_set_of_their_own_where_both_are_worth_one(tmp_path, json_asked, others, kinds):
    rows = [{"question": f"Write {n} as JSON" if n < json_asked else f"Ask {n}"} for n in range(json_asked + others)]
    found = read_rows(written(tmp_path, rows), "own", chat=True).sets
    assert {one.kind: len(one.cases) for one in found} == kinds


def test_a_model_without_a_chat_template_is_asked_plain_text_and_cases_of_ours_stay_as_they_are(tmp_path):
    path = written(tmp_path, [{"question": "Ask", "answer": "yes"}])
    assert read_rows(path, "own", chat=False).sets[0].cases[0]["prompt"] == "Ask"
    ours = {"id": "c1", "prompt": "Ask", "max_new_tokens": 7, "answer": "yes", "tags": ["a"], "cluster": "k"}
    found = read_rows(written(tmp_path, [ours]), "own", chat=True)
    assert found.sets[0].cases == (ours,)
    assert found.notes == ()


def test_rows_of_several_kinds_become_several_sets(tmp_path):
    kinds = ("question, answer", "a number", "tools", "a schema", "question, answer")
    rows = [{**ROWS[kind][0], "id": number} for number, kind in enumerate(kinds)]
    rows = [{**row, "query" if "query" in row else "question": f"Which order, {row['id']}?"} for row in rows]
    found = read_rows(written(tmp_path, rows), "own", chat=True)
    assert [one.name for one in found.sets] == ["own-answers", "own-tools", "own-json"], "a number among texts is one"
    assert [one.lines for one in found.sets] == [(1, 2, 5), (3,), (4,)]
    assert [case["id"] for case in found.sets[0].cases] == ["0", "1", "4"]


@pytest.mark.parametrize(("row", "said"), rows_of("no_cases"))
def test_a_row_that_cannot_be_a_case_is_told_with_its_line(tmp_path, row, said):
    path = written(tmp_path, [{"question": "Ask", "answer": "yes"}, row])
    with pytest.raises(UsageError) as refused:
        read_rows(path, "own", chat=True)
    assert f"{path}:2: " in str(refused.value)
    assert said in str(refused.value)


def test_keys_with_few_values_become_tags_and_all_others_are_told(tmp_path):
    more = [
        {"kind": "ab"[n % 2], "metadata": {"lang": "de" if n else "en", "seen": n}, "url": f"u{n}"} for n in range(4)
    ]
    rows = [{"question": f"Ask {n}", "answer": "x", "tags": ["t"], **one} for n, one in enumerate(more)]
    found = read_rows(written(tmp_path, rows), "own", chat=True)
    assert [case["tags"] for case in found.sets[0].cases][:2] == [
        ["t", "kind:a", "metadata.lang:en"],
        ["t", "kind:b", "metadata.lang:de"],
    ]
    assert '`kind` became tags (2 values): a rule may ask `per: "tag:kind"`' in found.notes
    assert "left out, as nothing reads them: `url`" in found.notes


def test_a_row_without_a_reference_among_others_lacks_it(tmp_path):
    rows = [{"question": "Ask", "answer": "yes"}, {"question": "Ask what?"}]
    with pytest.raises(UsageError, match=r":2: nothing says what a right answer is"):
        read_rows(written(tmp_path, rows), "own", chat=True)
    assert read_rows(written(tmp_path, rows[1:]), "own", chat=True).sets[0].kind == "prompts"
