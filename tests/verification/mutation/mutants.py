"""Small wrong changes of the product, drawn by a seed: what a suite has to notice.

Each changes one expression or statement of a function: a comparison's edge or direction, `and` for `or`, a sum for a
difference, a number by one, a condition turned, a call's statement left out, what is returned replaced by None. The
operators are those of Offutt et al. (1996), "An experimental determination of sufficient mutant operators".
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

COMPARED = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
COMPUTED = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "/", ast.Mod: "//"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """`before`, at this place of a file, becomes `after`. Lines from 1, columns in bytes from 0."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    before: str
    after: str

    def apply(self, source: bytes) -> bytes:
        lines = source.splitlines(keepends=True)
        start = sum(map(len, lines[: self.line - 1])) + self.column
        end = sum(map(len, lines[: self.end_line - 1])) + self.end_column
        return source[:start] + self.after.encode() + source[end:]

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {' '.join(self.before.split())[:60]} -> {' '.join(self.after.split())[:60]}"


def _changes(node: ast.AST) -> Iterator[str]:
    """What may stand in this node's place."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARED:
            yield f"{ast.unparse(left)} {COMPARED[type(op)]} {ast.unparse(right)}"
        case ast.BoolOp(op=op, values=values):
            word = " or " if isinstance(op, ast.And) else " and "
            yield f"({word.join(f'({ast.unparse(value)})' for value in values)})"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in COMPUTED and not _text(left, right):
            yield f"(({ast.unparse(left)}) {COMPUTED[type(op)]} ({ast.unparse(right)}))"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield f"({ast.unparse(operand)})"
        case ast.IfExp(test=test, body=body, orelse=other):
            yield f"(({ast.unparse(other)}) if ({ast.unparse(test)}) else ({ast.unparse(body)}))"
        case ast.Constant(value=bool() as value):
            yield str(not value)
        case ast.Constant(value=int() as value):
            yield str(value + 1)
        case ast.Constant(value=float() as value):
            yield repr(value * 2 or 1.0)
        case ast.Expr(value=ast.Call()):
            yield "pass"
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            yield "return None"
        case ast.Continue():
            yield "break"


def _text(*nodes: ast.AST) -> bool:
    return any(isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str) for node in nodes)


def _walk(node: ast.AST, inside: bool = False) -> Iterator[ast.AST]:
    """What runs inside functions; neither annotations nor what an f-string shows."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        for child in node.body:
            yield from _walk(child, True)
        return
    if inside:
        yield node
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list") or isinstance(node, ast.JoinedStr):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _walk(child, inside)


def of_file(path: Path, root: Path = ROOT) -> Iterator[Mutant]:
    source = path.read_bytes()
    lines = source.splitlines()
    for node in _walk(ast.parse(source)):
        for after in _changes(node):
            at = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
            first, last = lines[at[0] - 1 : at[2]][0], lines[at[2] - 1]
            before = first[at[1] : at[3]] if at[0] == at[2] else first[at[1] :] + b" ... " + last[: at[3]]
            yield Mutant(str(path.relative_to(root)), *at, before.decode(errors="replace"), after)


def drawn(seed: int, count: int, rooms: Sequence[str], root: Path = ROOT) -> list[Mutant]:
    """`count` mutants of these rooms: a room first, then a place in it, each equally likely; none twice."""
    chance = random.Random(seed)
    of_rooms = {
        room: [mutant for path in sorted((root / room).rglob("*.py")) for mutant in of_file(path, root)]
        for room in rooms
    }
    taken: dict[Mutant, None] = {}
    while len(taken) < count:
        taken[chance.choice(of_rooms[chance.choice(rooms)])] = None
    return list(taken)
