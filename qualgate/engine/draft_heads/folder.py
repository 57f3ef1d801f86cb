"""A draft head's folder: layout and sizes in `config.json`, weights in `model.safetensors`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from qualgate.engine.draft_heads.ahead import Ahead, layer_ahead
from qualgate.engine.draft_heads.published import (
    Eagle3Form,
    check_no_layers_ahead,
    form_of,
    hash_of,
    is_published,
    published_config,
    shape_said,
)
from qualgate.errors import UsageError
from qualgate.errors.misplaced import no_model_folder
from qualgate.quant.model_files import read_json, readable
from qualgate.quant.model_folder import ModelFolder
from qualgate.records import DraftSource
from qualgate.records.identity import content_hash
from qualgate.records.speculation import OWN

CONFIG = "config.json"


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
    def cache_numbers(self) -> int:
        """Numbers stored per position in the KV cache."""
        return 2 * self.kv_heads * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadFolder:
    """A head as described by its folder. sha256: over its files. published, form: the config and options of "eagle3";
    ahead: the "mtp" layer in the target's own folder."""

    path: Path
    layout: Literal["eagle3", "mtp"]
    shape: HeadShape
    sha256: str
    published: Mapping[str, Any] = field(default_factory=dict)
    form: Eagle3Form = field(default_factory=Eagle3Form)
    ahead: Ahead | None = None


def head_of_draft(draft: DraftSource, target: ModelFolder) -> HeadFolder:
    """Return the head named by `draft` for the model in `target`. Errors as for `read_head_folder`."""
    return own_head(target) if draft.head == OWN else read_head_folder(Path(draft.head))


def own_head(target: ModelFolder) -> HeadFolder:
    """Return the model's own MTP layer. UsageError if there is none, NotInThisVersion if it is not supported."""
    ahead, config = layer_ahead(target), target.files.config
    with _sizes(target.path):
        shape = _shape(shape_said(config.get("text_config") or config))
    return HeadFolder(
        path=target.path, layout="mtp", shape=shape,
        sha256=content_hash(["mtp", ahead.layout.name, target.shards.sha256]),
        ahead=ahead,
    )  # fmt: skip


def read_head_folder(path: Path) -> HeadFolder:
    """Return the head in a folder, reading each file once. UsageError if there is none, NotInThisVersion if it is not
    supported."""
    with readable(path):
        if not path.is_dir():
            raise UsageError(no_model_folder(str(path), path))
        config = read_json(path / CONFIG)
        if not is_published(config):
            check_no_layers_ahead(path, config)
            raise UsageError(_no_head(path, config))
        published = published_config(path, config)
        sha256 = hash_of(path, config)
    with _sizes(path):
        shape, form = _shape(shape_said(published)), form_of(published)
    return HeadFolder(path=path, layout="eagle3", shape=shape, sha256=sha256, published=published, form=form)


def check_head(arm: str, head: HeadFolder, *, width: int | None, vocabulary: int | None) -> None:
    """Raise UsageError for a head whose sizes differ from the target's. arm: the variant's name; None: unknown size."""
    sizes = {"hidden size": (head.shape.width, width), "vocabulary": (head.shape.vocabulary, vocabulary)}
    for key, (size, expected) in sizes.items():
        if expected is not None and size != expected:
            raise UsageError(
                f"{arm}: the draft head {head.path} was made for a {key} of {size:,}, and its target has {expected:,}. "
                "It is another model's."
            )


def _no_head(path: Path, config: Mapping[str, Any]) -> str:
    """Return the message for a folder that holds no draft head."""
    if "architectures" in config or "model_type" in config:
        return (
            f"{path} holds a model and no draft head. A model drafts by `draft: {{model: {path}}}`; a head is an "
            "EAGLE-3 folder, which `speculators` trains"
        )
    return (
        f"{path} holds no draft head that this version reads: an EAGLE-3 folder, as its authors publish it or as "
        "`speculators` writes it. Heads are trained there; qualgate trains none"
    )


@contextmanager
def _sizes(path: Path) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"{path / CONFIG} does not say the sizes of its layer ({type(error).__name__}: {error}). Fetch it again."
        ) from None


def _shape(sizes: Mapping[str, Any]) -> HeadShape:
    """Return the head's shape; ValueError for sizes that are not whole numbers or that no layer has."""
    shape = HeadShape(**sizes)
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
