"""Decode Java and JavaScript text to calls as BFCL does, before `compat` judges them: the first call in the source.

BFCL reads such answers by tree-sitter's grammars, and so does this module, in the same versions (extra `bfcl`). Each
argument stays source text, for `compat_java` and `compat_javascript`.

As in the reference, with its surprises: what stands in brackets is read without them; one call is taken, whatever
follows; arguments are assignments, `a = 1`, and other arguments are dropped, but for a name (and JavaScript's `true`),
which is given without a parameter's name and so is never expected; two of one name cannot be decoded. Texts lose their
quotes when they are the whole argument. Java's values are put together from their tokens without the blanks, and taken
from the source by the place of their UTF-8 bytes, which shifts everything behind a letter beyond ASCII. Where nothing
is called the format is wrong, and the answer can be decoded all the same.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import Any

from qualgate.scoring.tools.compat_decode import CannotDecode
from qualgate.scoring.tools.compat_java import TooLong

MAX_SOURCE = 2**13  # characters that are read: on hostile text the grammars take time that grows with their square
NO_CALL: dict[str, Any] = {}  # decoded, and no list of calls


class NoGrammar(Exception):
    """tree-sitter or the language's grammar is not installed. `str(error)` says what to do."""


def decode_source(text: str, language: str) -> Any:
    """Decode the calls of a prompt-mode answer, `[{name: {parameter: source text}}]`, or NO_CALL.

    language: java or javascript. CannotDecode where the reference's decoder raises, TooLong beyond MAX_SOURCE (our own
    limit, not the reference's), NoGrammar without the grammar.
    """
    text = text.strip("`\n ").removeprefix("[").removesuffix("]")
    if len(text) > MAX_SOURCE:
        raise TooLong(f"{language} source of more than {MAX_SOURCE:,} characters")
    try:
        root = _parsed(language, text.encode())
        return (_java if language == "java" else _javascript)(root, text)
    except CannotDecode:
        raise
    except (AttributeError, IndexError, RecursionError, ValueError) as error:  # as there: a part that is missing
        raise CannotDecode(f"{type(error).__name__}: {error}"[:200]) from None


@cache
def _grammar(language: str) -> tuple[Any, Any]:
    """Return tree-sitter's Parser class and a language's grammar. NoGrammar if either is not installed."""
    try:
        tree_sitter, grammar = (import_module(name) for name in ("tree_sitter", f"tree_sitter_{language}"))
    except ImportError as error:
        raise NoGrammar(
            f"BFCL decodes {language} by tree-sitter's grammar, and {error.name} is not installed: `qualgate doctor` "
            "shows how to get the extra `bfcl`; or give the decoded `calls`"
        ) from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the grammars that BFCL pins hand over an address
        return tree_sitter.Parser, tree_sitter.Language(grammar.language())


def _parsed(language: str, source: bytes) -> Any:
    parser, grammar = _grammar(language)
    root = parser(grammar).parse(source).root_node
    if root.has_error and any(node.type == "ERROR" for node in _nodes(root)):  # else something is only missing
        raise CannotDecode(f"a syntax error in the {language} source")
    return root


def _nodes(root: Any) -> Iterator[Any]:
    """Yield every node, without recursion, since an answer may nest them deeply."""
    cursor, inside = root.walk(), True
    while inside:
        yield cursor.node
        if cursor.goto_first_child():
            continue
        while inside and not cursor.goto_next_sibling():
            inside = cursor.goto_parent()


def _java(root: Any, source: str) -> Any:
    """Return the first method call in Java source as BFCL decodes it; NO_CALL without one."""

    def written(node: Any) -> str:
        return source[node.start_byte : node.end_byte]  # bytes for characters, as there

    for node in _nodes(root):
        if node.type == "method_invocation" and (arguments := node.child_by_field_name("arguments")):
            holder, name = node.child_by_field_name("object"), written(node.child_by_field_name("name"))
            argument_pairs = (_java_argument(child, written) for child in arguments.children)
            return _call(f"{written(holder)}.{name}" if holder else name, argument_pairs)
    return NO_CALL


def _java_argument(node: Any, written: Callable[[Any], str]) -> tuple[str | None, str] | None:
    """Return an argument's name (None: positional) and text; None for a node that the reference ignores."""
    match node.type:
        case "assignment_expression":
            name, value = node.children[0], node.children[2]
            is_text = value.type in ("string_literal", "character_literal")
            return written(name), written(value)[1:-1] if is_text else _java_value(value, written)
        case "identifier" | "class_literal":
            return None, written(node)
    return None


def _java_value(node: Any, written: Callable[[Any], str]) -> str:
    """Return a value's text: its tokens joined, except for the forms that the reference writes in its own way."""
    match node.type:
        case "array_creation_expression":
            kind, values = (node.child_by_field_name(field) for field in ("type", "value"))
            return f"new {_java_value(kind, written)}[]{_java_value(values, written)}"
        case "object_creation_expression":
            kind, group = (node.child_by_field_name(field) for field in ("type", "arguments"))
            arguments = [child for child in group.children if child.type not in (",", "(", ")")] if group else []
            return f"new {_java_value(kind, written)}({', '.join(_java_value(part, written) for part in arguments)})"
        case "string_literal" | "character_literal" | "identifier" | "class_literal" | "type_identifier":
            return written(node)
        case "method_invocation":
            return written(node)
    return "".join(_java_value(child, written) for child in node.children) if node.child_count else written(node)


def _javascript(root: Any, source: str) -> Any:
    for statement in root.children:
        for node in statement.children if statement.type == "expression_statement" else ():
            if node.type == "call_expression":
                name, arguments = node.children[:2]
                return _call(name.text.decode(), map(_javascript_argument, arguments.children))
    return NO_CALL


def _javascript_argument(node: Any) -> tuple[str | None, str] | None:
    """Return an argument's name (None: positional) and text; None for a node that the reference ignores."""
    match node.type:
        case "assignment_expression":
            name, value = (node.children[index].text.decode() for index in (0, 2))
            quoted = value[:1] in ('"', "'") and value.endswith(value[:1])
            return name, value[1:-1] if quoted else value
        case "identifier" | "true":
            return None, node.text.decode()
    return None


def _call(name: str, arguments: Any) -> list[dict[str, dict[str | None, str]]]:
    given: dict[str | None, str] = {}
    for parameter, value in filter(None, arguments):
        if parameter in given:
            raise CannotDecode(f"{'two arguments without a name' if parameter is None else parameter + ' twice'}")
        given[parameter] = value
    return [{name: given}]
