"""A newcomer's folder, and the mistakes of a first hour: what is changed in it, and what is told then."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.adapter_folders import TWO, save_adapter
from tests.tiny_models import save_tiny_model

GATE = """\
version: 1
baseline: {model: ./models/support, dtype: float32}
variants:
  int8: {quantize: int8}
  awq: {model: ./models/support}
evalsets: [./ours/support.yaml]
gate:
  rules:
    - {metric: exact_match, max_drop: 0.05}
prices: prices.yaml
store: sqlite:///qualgate.db
workers: {count: 1}
"""
SET = 'name: support\nversion: "1"\nmetrics: [exact_match]\n'
PRICES = 'version: "1"\ncurrency: EUR\nprompt_token: 0.1\n'
CASES = [{"id": f"c{n}", "prompt": f"Order {n}?", "max_new_tokens": 4, "answer": str(n)} for n in range(8)]
ROWS = [{"id": f"c{n}", "evalset": "support", "metric": "exact_match", "value": 1, "verdict": True} for n in range(8)]
Change = Callable[[Path], object]


def lines(rows: list[dict]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def first_hour(folder: Path) -> Path:
    """A model, its evalset, a gate file with prices, outputs and score rows, as they should be."""
    save_tiny_model(folder / "models" / "support", dtype="float32")
    (folder / "ours").mkdir()
    for name, text in {
        "gate.yaml": GATE, "prices.yaml": PRICES, "ours/support.yaml": SET, "ours/support.jsonl": lines(CASES),
        "outputs.jsonl": lines([{"id": case["id"], "text": "1"} for case in CASES]), "a.jsonl": lines(ROWS),
        "b.jsonl": lines(ROWS),
    }.items():  # fmt: skip
        (folder / name).write_text(text)
    return folder


def text(name: str, old: str, new: str) -> Change:
    def change(folder: Path) -> None:
        found = (folder / name).read_text()
        assert old in found
        (folder / name).write_text(found.replace(old, new, 1))

    return change


def holds(name: str, content: bytes | str) -> Change:
    return lambda folder: (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def gone(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def crlf(name: str) -> Change:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes().replace(b"\n", b"\r\n"))


def utf_16(name: str) -> Change:
    return lambda folder: (folder / name).write_bytes((folder / name).read_text().encode("utf-16"))


def array(name: str) -> Change:
    def change(folder: Path) -> None:
        rows = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        (folder / name).write_text(json.dumps(rows, indent=1))

    return change


def with_settings(name: str, **settings: object) -> Change:
    """Of a JSON file."""
    return lambda folder: (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | settings))


def cut_short(name: str) -> Change:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-100])


def another_database(folder: Path) -> None:
    with sqlite3.connect(folder / "qualgate.db") as connection:
        connection.execute("create table mine (x)")


@dataclass(frozen=True)
class Mistake:
    change: Change
    said: tuple[str, ...]  # the file, the line where there is one, and the next step
    words: tuple[str, ...] = ("config", "check", "gate.yaml")


def nothing(folder: Path) -> None: ...


def adapted(layers: tuple[int, ...] = (0, 1), **config: object) -> Change:
    """The variant int8 with such an adapter."""

    def change(folder: Path) -> None:
        save_adapter(folder / "lora", parts=TWO, layers=layers, config=config)
        text("gate.yaml", "int8: {", "int8: {adapter: ./lora, ")(folder)

    return change


def of_another_folder(change: Change) -> Change:
    """The variant awq is a copy of the baseline's folder, but for one file."""

    def apply(folder: Path) -> None:
        shutil.copytree(folder / MODEL, folder / "models" / "other")
        change(folder)
        text("gate.yaml", "awq: {model: ./models/support", "awq: {model: ./models/other")(folder)

    return apply


def calibrated_on(case: dict, template: str | None = None) -> Change:
    """The variant int8 is made with a calibration set of this one case. template: of chats, in place of the model's."""

    def apply(folder: Path) -> None:
        (folder / "cal.yaml").write_text("name: cal\nversion: 1\nkind: calibration\n")
        (folder / "cal.jsonl").write_text(json.dumps({"id": "a", "answer": "x", **case}) + "\n")
        recipe = "{method: gptq, bits: 4, group_size: 32, calibration: ./cal.yaml}"
        text("gate.yaml", "quantize: int8", f"quantize: {recipe}")(folder)
        if template is not None:
            (folder / MODEL / "chat_template.jinja").unlink()
        if template:
            (folder / MODEL / "chat_template.jinja").write_text(template)

    return apply


def four_arms_without_drafts(folder: Path) -> None:
    roles = (
        ("quantization", "{quantize: int8"),
        ("speculation", "{model: ./models/support"),
        ("both", "{quantize: int4"),
    )
    variants = "".join(f"  {role}: {arm}, arm: {role}}}\n" for role, arm in roles)
    text("gate.yaml", "  int8: {quantize: int8}\n  awq: {model: ./models/support}\n", variants)(folder)


MODEL = "models/support"
CHAT = {"messages": [{"role": "user", "content": "Hello?"}]}
RUN = ("run", "gate.yaml")
CHECK_SET = ("evalset", "check", "ours/support.yaml")
SCORE = ("score", "ours/support.jsonl", "outputs.jsonl", "--scorer", "exact_match")
JUDGE = ("gate", "gate.yaml", "--baseline-scores", "a.jsonl", "--variant-scores", "b.jsonl")
NOISE = bytes(range(256))
MISTAKES = {
    # the gate file
    "misspelt path": Mistake(nothing, ("gat.yaml", "did you mean", "gate.yaml"), ("config", "check", "gat.yaml")),
    "path into no folder": Mistake(nothing, ("no such file", "there is no folder"), ("run", "runs/deep/gate.yaml")),
    "folder for a file": Mistake(nothing, ("it is a folder", "support.yaml"), ("plan", "ours")),
    "file for a folder": Mistake(nothing, ("gate.yaml/gate.yaml", "no such file"), ("plan", "gate.yaml/gate.yaml")),
    "evalset for a gate file": Mistake(nothing, ("this is an evalset", "evalset check"), ("run", CHECK_SET[2])),
    "cases for a gate file": Mistake(nothing, ("support.jsonl", "a gate file is YAML"), ("run", SCORE[1])),
    "empty": Mistake(holds("gate.yaml", ""), ("gate.yaml:1", "empty")),
    "binary": Mistake(holds("gate.yaml", NOISE), ("gate.yaml:", "save the file as UTF-8")),
    "Latin-1": Mistake(holds("gate.yaml", GATE.encode() + "# größe".encode("latin-1")), ("gate.yaml:13", "UTF-8")),
    "tab": Mistake(text("gate.yaml", "  int8", "\tint8"), ("gate.yaml:4", "a tab; indent with spaces")),
    "indented less": Mistake(text("gate.yaml", "  awq:", " awq:"), ("gate.yaml:5", "indented less or more")),
    "two documents": Mistake(text("gate.yaml", "prices:", "---\nprices:"), ("gate.yaml:10", "one file holds one")),
    "misspelt key": Mistake(text("gate.yaml", "evalsets:", "evalset:"), ("gate.yaml:6", "did you mean 'evalsets'")),
    "a list, not a mapping": Mistake(holds("gate.yaml", "- version: 1\n"), ("gate.yaml:1", "mapping")),
    "dtype by another name": Mistake(text("gate.yaml", "float32", "fp32"), ("gate.yaml:2", "did you mean 'float32'")),
    "key of a later version": Mistake(text("gate.yaml", "count: 1", "devices: cuda"), ("gate.yaml:", "this version")),
    "an address for a model": Mistake(
        text("gate.yaml", "awq: {model: ./models/support", "awq: {model: 'http://127.0.0.1:1/v1'"),
        ("gate.yaml:5", "`endpoint`"),
    ),
    "a key in the file": Mistake(
        text("gate.yaml", "{model: ./models/support}", "{model: m, endpoint: 'http://h:1/v1', api_key_env: sk-1}"),
        ("gate.yaml:5", "NAME of an environment variable"),
    ),
    "misspelt metric": Mistake(text("gate.yaml", "exact_match", "exact-match"), ("gate.yaml:9", "'exact_match'")),
    "metric that no case has": Mistake(text("gate.yaml", "exact_match", "json.valid"), ("gate.yaml:9", "Scored here")),
    "no permission": Mistake(lambda f: (f / "gate.yaml").chmod(0), ("gate.yaml", "chmod u+r")),
    # the model
    "misspelt folder": Mistake(text("gate.yaml", "models/support", "modles/suport"), ("gate.yaml:2", "models/support")),
    "name of the Hub": Mistake(
        text("gate.yaml", "./models/support,", "meta-llama/Llama-3.1-8B,"), ("gate.yaml:2", "hf download meta-llama/")
    ),
    "weights for a folder": Mistake(
        text("gate.yaml", "./models/support,", "./models/support/model.safetensors,"), ("gate.yaml:2", "is a file")
    ),
    "no config": Mistake(gone("models/support/config.json"), ("models/support", "config.json")),
    "no weights": Mistake(gone("models/support/model.safetensors"), ("models/support", "expected model.safetensors")),
    "no tokenizer": Mistake(gone("models/support/tokenizer.json"), ("models/support", "save_pretrained")),
    "config that is no JSON": Mistake(holds("models/support/config.json", "{"), ("config.json", "Fetch or save")),
    "weights of Git LFS": Mistake(
        holds("models/support/model.safetensors", "version https://git-lfs.github.com/spec/v1\n"),
        ("model.safetensors", "again"),
    ),
    "truncated weights": Mistake(cut_short(f"{MODEL}/model.safetensors"), ("model.safetensors",), RUN),
    "pickled weights": Mistake(
        lambda f: (f / MODEL / "model.safetensors").rename(f / MODEL / "pytorch_model.bin"), ("safetensors",), RUN
    ),
    "remote code": Mistake(
        with_settings(f"{MODEL}/config.json", auto_map={"AutoModelForCausalLM": "modeling.Evil"}), ("auto_map",), RUN
    ),
    "adapter of rank 0": Mistake(adapted(r=0), ("adapter_config.json", "the rank of", "is 0"), RUN),
    "adapter of another base": Mistake(adapted((0, 1, 2)), ("lora", "model.layers.2", "another base"), RUN),
    # the evalset and its cases
    "prompt over the context": Mistake(text("ours/support.jsonl", "Order 0?", "x" * 600), ("c0", "512"), RUN),
    "misspelt evalset": Mistake(text("gate.yaml", "support.yaml", "suport.yaml"), ("gate.yaml:6", "did you mean")),
    "gate file for an evalset": Mistake(nothing, ("a gate file", "config check"), ("evalset", "check", "gate.yaml")),
    "evalset that is not there": Mistake(nothing, ("suport", "did you mean"), (*CHECK_SET[:2], "ours/suport.yaml")),
    "evalset without cases": Mistake(gone("ours/support.jsonl"), ("support.yaml:1", "support.jsonl"), CHECK_SET),
    "cases as .json": Mistake(
        lambda f: (f / "ours/support.jsonl").rename(f / "ours/support.json"), ("support.json", "jq -c"), CHECK_SET
    ),
    "cases as one array": Mistake(array("ours/support.jsonl"), ("support.jsonl:1", "jq -c '.[]'"), CHECK_SET),
    "0 cases": Mistake(holds("ours/support.jsonl", ""), ("support.jsonl:1", "one JSON object a line"), CHECK_SET),
    "cases in UTF-16": Mistake(utf_16("ours/support.jsonl"), ("UTF-16; save it as UTF-8", " 1 fault"), CHECK_SET),
    "a line cut": Mistake(text("ours/support.jsonl", '"0"}', '"0"'), ("support.jsonl:1", "not a JSON"), CHECK_SET),
    "misspelt field": Mistake(text("ours/support.jsonl", "answer", "anwser"), (".jsonl:1", "did you mean"), CHECK_SET),
    "duplicate id": Mistake(text("ours/support.jsonl", '"c1"', '"c0"'), (".jsonl:2", "first on line 1"), CHECK_SET),
    "cases no permission": Mistake(lambda f: (f / SCORE[1]).chmod(0), ("support.jsonl", "chmod u+r"), CHECK_SET),
    # prices, store, port
    "prices that are not there": Mistake(gone("prices.yaml"), ("gate.yaml:10", "no file")),
    "price below nothing": Mistake(text("prices.yaml", "0.1", "-1"), ("prices.yaml:3", "from 0 to")),
    "store that is a text": Mistake(holds("qualgate.db", "x" * 200), ("qualgate.db", "Give another store: --store")),
    "store of somebody else": Mistake(another_database, ("qualgate.db", "not a qualgate store")),
    "store in no folder": Mistake(text("gate.yaml", "///", "///runs/"), ("gate.yaml:11", "runs", "Create it")),
    "store that is a folder": Mistake(lambda f: (f / "qualgate.db").mkdir(), ("gate.yaml:11", "is a folder, but")),
    "store without a scheme": Mistake(text("gate.yaml", "sqlite:///", ""), ("gate.yaml:11", "sqlite:///FILE")),
    "report before a run": Mistake(nothing, ("qualgate.db", "qualgate run"), ("report", "gate.yaml")),
    "dashboard before a run": Mistake(nothing, ("qualgat.db", "check the path"), ("dashboard", "--store", "sqlite:///qualgat.db")),
    "empty store": Mistake(nothing, ("'' is not a store's URL",), ("runs", "--store", "")),
    "misspelt option": Mistake(nothing, ("--jsn",), ("report", "gate.yaml", "--jsn")),
    "misspelt command": Mistake(nothing, ("rnu",), ("rnu", "gate.yaml")),
    "port that is a word": Mistake(nothing, ("--port",), ("dashboard", "gate.yaml", "--port", "http")),
    "port that is none": Mistake(nothing, ("--port", "65535"), ("dashboard", "gate.yaml", "--port", "99999")),
    # outputs, score rows, checkpoints
    "misspelt outputs": Mistake(nothing, ("outputs.jsonl", "did you mean"), (*SCORE[:2], "output.jsonl", *SCORE[3:])),
    "misspelt scorer": Mistake(nothing, ("exact_mach", "exact_match"), (*SCORE[:4], "exact_mach")),
    "rows as one array": Mistake(array("a.jsonl"), ("a.jsonl:1", "jq -c '.[]'"), JUDGE),
    "one side of rows": Mistake(nothing, ("--variant-scores",), JUDGE[:4]),
    "misspelt rows": Mistake(nothing, ("c.jsonl", "no such file"), (*JUDGE[:3], "c.jsonl", *JUDGE[4:])),
    "inspect of a misspelt folder": Mistake(nothing, ("suport", "did you mean"), ("inspect", "models/suport")),
}  # fmt: skip
FINE = {  # what looks like a mistake, and is none
    "a byte-order mark": holds("gate.yaml", b"\xef\xbb\xbf" + GATE.encode()),
    "lines of Windows": crlf("gate.yaml"),
    "cases with lines of Windows": crlf("ours/support.jsonl"),
    "cases with a mark and an empty line": lambda f: holds(
        "ours/support.jsonl", b"\xef\xbb\xbf" + (f / "ours/support.jsonl").read_bytes() + b"\n"
    )(f),
    "UTF-16 of Windows": holds("gate.yaml", GATE.encode("utf-16")),
}


REFUSED_BEFORE = {  # by a run, before anything is generated, and so by `config check`
    "another tokenizer": Mistake(
        of_another_folder(with_settings("models/other/tokenizer_config.json", pad_token="a")),
        ("variant awq", "tokenizer", "copy tokenizer.json"),
    ),
    "another chat template": Mistake(
        of_another_folder(holds("models/other/chat_template.jinja", "{{ messages }}")),
        ("variant awq", "chat template", "copy chat_template.jinja"),
    ),
    "other stop tokens": Mistake(
        of_another_folder(with_settings("models/other/generation_config.json", eos_token_id=[7])),
        ("variant awq", "stop tokens", "copy generation_config.json"),
    ),
    "a calibration set of chats for a model without a template": Mistake(
        calibrated_on(CHAT, ""), ("cal.yaml", "cal/a has messages", "no chat template")
    ),
    "a calibration set that the template refuses": Mistake(
        calibrated_on(CHAT, "{{ 1 / 0 }}"), ("cal.yaml", "cal/a", "fails on this case")
    ),
    "a calibration set with a misspelt key": Mistake(
        calibrated_on({"message": CHAT["messages"]}), ("gate.yaml:4", "cal.jsonl:1", "did you mean `messages`")
    ),
    "a calibration set without text": Mistake(
        calibrated_on({"prompt": ""}), ("cal.jsonl:1", "`prompt` must be a text")
    ),
    "four arms that do not speculate": Mistake(four_arms_without_drafts, ("`four_arm`", "have no draft")),
}
