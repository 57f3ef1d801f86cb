"""A draft head's folder: `config.json` says its layout, its sizes and whose head it is; `head.safetensors` holds its
numbers. A head drafts for the weights that it learned on, and for no others. Needs no torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, cast, get_args

from qualgate.engine.draft_heads.ahead import Ahead, layer_ahead
from qualgate.engine.draft_heads.published import (
    TOKENS,
    check_no_layers_ahead,
    check_published,
    hash_of,
    is_published,
    shape_said,
)
from qualgate.errors import UsageError
from qualgate.errors.misplaced import no_model_folder
from qualgate.identity import content_hash
from qualgate.quant.model_files import read_json, readable
from qualgate.quant.model_folder import ModelFolder
from qualgate.records import DraftSource
from qualgate.records.speculation import MTP, OWN

FORMAT = "qualgate draft head 1"
CONFIG, TENSORS = "config.json", "head.safetensors"
Layout = Literal["eagle", "medusa", "parallel"]
LAYOUTS: tuple[str, ...] = get_args(Layout)  # that are trained here
MAKE = "qualgate draft train MODEL --evalset NAME --out FOLDER"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadShape:
    """Sizes of a head's layer. width: numbers of a state; inner: of its feed-forward; positions are turned by
    `theta`, norms add `eps` to the mean of squares."""

    width: int
    vocabulary: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    theta: float = 10000.0
    eps: float = 1e-6

    @property
    def kept(self) -> int:
        """Numbers that one position keeps."""
        return 2 * self.kv_heads * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadTarget:
    """Whose head it is: `ArmIdentity.weights` and `.tokenizer` of the model that it learned on; name: for people."""

    weights: str
    tokenizer: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadFolder:
    """A head as its folder says it. tokens: of the drafts that it learned to make; sha256: over both files; nbytes: of
    its numbers; trained: how it was made, as it was told then. target: None where the folder does not say it, as those
    of others do not; published: their config; ahead: of the layout "mtp", what is in the target's own folder."""

    path: Path
    layout: Layout | Literal["eagle3", "mtp"]
    tokens: int
    shape: HeadShape
    target: HeadTarget | None
    sha256: str
    nbytes: int
    published: Mapping[str, Any] = field(default_factory=dict)
    trained: Mapping[str, Any] = field(default_factory=dict)
    ahead: Ahead | None = None

    @property
    def kept(self) -> int:
        """Numbers that one position keeps."""
        return 0 if self.layout == "medusa" else self.shape.kept

    @property
    def questions(self) -> frozenset[str]:
        """Hashes of the questions that it learned on (`identity.question_hash`); none where its folder does not say."""
        said = self.trained.get("questions") if isinstance(self.trained, Mapping) else None
        return frozenset(one for one in said if isinstance(one, str)) if isinstance(said, list) else frozenset()


def head_of_draft(draft: DraftSource, target: ModelFolder) -> HeadFolder:
    """The head that a draft names, which drafts for the model in this folder. Errors as of `read_head_folder`."""
    return own_head(target) if draft.head == OWN else read_head_folder(Path(draft.head))


def own_head(target: ModelFolder) -> HeadFolder:
    """The layer that a model has for further tokens. UsageError where it has none that can be read, NotInThisVersion
    for what this version does not draft by."""
    ahead, config = layer_ahead(target), target.files.config
    text = config.get("text_config") or config
    return HeadFolder(
        path=target.path, layout=MTP, tokens=TOKENS, shape=_said_shape(target.path, text),
        target=None, sha256=content_hash([MTP, ahead.layout.name, target.shards.sha256]),
        nbytes=sum(entry.nbytes for entry in ahead.entries.values()), ahead=ahead,
    )  # fmt: skip


def read_head_folder(path: Path) -> HeadFolder:
    """The head in a folder, each file read once. UsageError where there is none, or none that this version reads."""
    with readable(path):
        if not path.is_dir():
            raise UsageError(no_model_folder(str(path), path))
        config, file = read_json(path / CONFIG), path / TENSORS
        if is_published(config):
            return _published(path, config)
        check_no_layers_ahead(path, config)
        if config.get("format") != FORMAT or not file.is_file():
            raise UsageError(_no_head(path, config))
        body = file.read_bytes()
    try:
        layout = config["layout"]
        if layout not in LAYOUTS:
            raise UsageError(
                f"{path}: a draft head of the layout {layout!r}, and this version has {', '.join(LAYOUTS)}. Update "
                f"qualgate, or train another: {MAKE}"
            )
        return HeadFolder(
            path=path,
            layout=cast("Layout", layout),
            tokens=_count(config["tokens"]),
            shape=_shape(config["shape"]),
            target=HeadTarget(**config["target"]),
            sha256=content_hash([config, hashlib.sha256(body).hexdigest()]),
            nbytes=len(body),
            trained=config.get("trained", {}),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{path / CONFIG} does not say what a draft head is ({type(error).__name__}: {error}). Train it again: "
            f"{MAKE}"
        ) from None


def _published(path: Path, config: Mapping[str, Any]) -> HeadFolder:
    check_published(path, config)
    sha256, nbytes = hash_of(path, config)
    return HeadFolder(
        path=path, layout="eagle3", tokens=TOKENS, shape=_said_shape(path, config), target=None,
        sha256=sha256, nbytes=nbytes, published=config,
    )  # fmt: skip


def _said_shape(path: Path, config: Mapping[str, Any]) -> HeadShape:
    try:
        return _shape(shape_said(config))
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{path / CONFIG} does not say the sizes of its layer ({type(error).__name__}: {error}). Fetch it again."
        ) from None


def config_of(layout: str, tokens: int, shape: HeadShape, target: HeadTarget, trained: Mapping[str, Any]) -> str:
    """The text of a head's `config.json`."""
    said = {
        "format": FORMAT, "layout": layout, "tokens": tokens, "shape": asdict(shape), "target": asdict(target),
        "trained": trained,
    }  # fmt: skip
    return json.dumps(said, indent=2) + "\n"


def check_head(arm: str, head: HeadFolder, target: HeadTarget, *, width: int | None, vocabulary: int | None) -> None:
    """Raise UsageError for a head that is not the target's. arm: a variant's name; None: not known."""
    found = {"hidden size": (head.shape.width, width), "vocabulary": (head.shape.vocabulary, vocabulary)}
    for what, (ours, theirs) in found.items():
        if theirs is not None and ours != theirs:
            raise UsageError(
                f"{arm}: the draft head {head.path} was made for a {what} of {ours:,}, and its target has {theirs:,}. "
                f"It is another model's. Train one on this target: {MAKE}"
            )
    if head.target is None:
        return
    if head.target.tokenizer != target.tokenizer:
        raise UsageError(
            f"{arm}: the draft head {head.path} learned on {head.target.name}, whose tokenizer is not this target's: "
            f"it would propose other tokens. Train one on this target: {MAKE}"
        )
    if head.target.weights != target.weights:
        raise UsageError(
            f"{arm}: the draft head {head.path} learned on {head.target.name}, and this target's weights are others "
            f"({target.name}): it would hardly be accepted. Train one on the weights that run, with the variant's "
            f"`quantize` and `dtype`: {MAKE} --quantize RECIPE --dtype DTYPE"
        )


def check_tokens(arm: str, head: HeadFolder, tokens: int) -> None:
    """Raise UsageError where drafts are to be longer than a head makes them. tokens: γ; 0: as many as pay."""
    if head.layout in ("medusa", "parallel") and tokens > head.tokens:
        raise UsageError(
            f"{arm}: `tokens: {tokens}`, and the draft head {head.path} says {head.tokens} at most. Write `tokens: "
            f"{head.tokens}`, or train another: {MAKE} --layout {head.layout} --tokens {tokens}"
        )


def _no_head(path: Path, config: Mapping[str, Any]) -> str:
    if "architectures" in config or "model_type" in config:
        return (
            f"{path} holds a model and no draft head. A model drafts by `draft: {{model: {path}}}`; a head is made by "
            f"{MAKE}"
        )
    return f"{path} holds no draft head ({CONFIG} and {TENSORS} as `qualgate draft train` writes them): {MAKE}"


def _shape(said: Mapping[str, Any]) -> HeadShape:
    shape = HeadShape(**said)
    for item in fields(HeadShape):
        if item.name not in ("theta", "eps"):
            _count(getattr(shape, item.name))
    if shape.heads % shape.kv_heads or not (shape.theta > 0 and shape.eps >= 0):
        raise ValueError("sizes that no layer has")
    return shape


def _count(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"expected a whole number from 1, found {value!r}")
    return value
