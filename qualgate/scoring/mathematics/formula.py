r"""Sums, products, powers, functions, brackets: what stands between two commas or signs of relation.

- `2\frac{1}{3}` and `2 1/3` are mixed numbers; `1/2x` is 1/(2x): what stands side by side holds together
- `\frac12` and `\sqrt12` take one digit, as LaTeX does; `2^10` takes both, as people mean it
- up to three letters side by side are a product; `90^\circ` is 90 with a unit, `1011_2` 1011 with its base for a unit
- `(1,2)` is a pair, be it a point or an open interval; `[1,2)` is an interval
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from fractions import Fraction

from qualgate.scoring.mathematics.cursor import END, Cursor
from qualgate.scoring.mathematics.tree import Node, Unread, number
from qualgate.scoring.mathematics.words import CONSTANTS, FUNCTIONS, GREEK, unit_of
from qualgate.scoring.outcome import quote

RELATIONS = {
    "=": "=", "<": "<", ">": ">", "le": "<=", "leq": "<=", "leqslant": "<=", "ge": ">=", "geq": ">=", "geqslant": ">=",
    "lt": "<", "gt": ">", "ne": "!=", "neq": "!=", "approx": "=", "in": "in", "equiv": "=", "to": "=", "implies": "=",
    "Rightarrow": "=", "Longrightarrow": "=", "rightarrow": "=",
}  # fmt: skip
SEPARATORS = (("symbol", ","), ("symbol", ";"), ("word", "and"), ("word", "or"), ("text", "and"), ("text", "or"))
_FENCES = {
    "lfloor": ("rfloor", "floor"),
    "lceil": ("rceil", "ceil"),
    "lvert": ("rvert", "abs"),
    "vert": ("vert", "abs"),
    "langle": ("rangle", ""),
}
_CLOSING = {"(": (")", "]"), "[": ("]", ")"), r"\{": (r"\}",), "{": ("}",)}
_ACCENTS = frozenset(
    {"vec", "hat", "bar", "overline", "widehat", "overrightarrow", "boxed", "fbox", "mathbf", "boldsymbol"}
)
_MATRICES = frozenset({"matrix", "pmatrix", "bmatrix", "Bmatrix", "smallmatrix", "array"})


class Formula(Cursor):
    """Reads a formula; of lists and relations within brackets it knows only that there are some."""

    @abstractmethod
    def listed(self) -> Node:
        """Read everything up to a closing bracket or the end."""

    @abstractmethod
    def related(self) -> Node:
        """Read one item of a list."""

    def added(self) -> Node:
        """Read a sum of terms."""
        self.deeper()
        sign = self._sign()
        left = self.multiplied()
        if sign:
            left = Node("neg", (left,)) if sign == "neg" else Node(sign, (number(0), left)) if sign != "add" else left
        while sign := self._sign():
            right = self.multiplied()
            if sign == "neg":
                right = Node("neg", (right,))
            op = sign if sign in ("pm", "mp") else "add"
            left = Node(op, (*left.args, right)) if op == "add" == left.op else Node(op, (left, right))
        self.depth -= 1
        return left

    def _sign(self) -> str | None:
        if self.takes("+"):
            return "add"
        if self.takes("-"):
            return "neg"
        return self.takes_command("pm", "mp")

    def multiplied(self) -> Node:
        """Read the factors of one term, the first with a sign of its own: `2x + -3`."""
        left = self.signed()
        while True:
            if self.takes("*") or self.takes_command("times", "cdot", "ast"):
                left = _product(left, self.signed())
            elif self.takes("/") or self.takes_command("div"):
                left = Node("div", (left, self.signed()))
            else:
                return left

    def signed(self) -> Node:
        """Read a factor behind an operator, which may have a sign, as in `2 * -3`."""
        if self.takes("-"):
            return Node("neg", (self.beside(),))
        self.takes("+")
        return self.beside()

    def beside(self) -> Node:
        """Read factors that stand side by side as their product (`2x`); two numbers are a mixed number (`1 1/2`)."""
        left = self.raised()
        while self._begins_factor():
            if self.next[0] == "number" and left.op == "number":
                left = self._mixed(left)
                continue
            right = self.raised()
            left = _beside(left, right)
        return left

    def _mixed(self, whole: Node) -> Node:
        """Read the fraction of a mixed number such as `2 1/3`, whose whole number is read.

        Unread if it is no proper fraction.
        """
        numerator = self.raised()
        if not (self.takes("/") and self.next[0] == "number"):
            raise Unread("malformed", "two numbers stand side by side")
        denominator = self.raised()
        if whole.places or not _whole(Node("div", (numerator, denominator))):
            raise Unread("malformed", "two numbers stand side by side")
        return Node("add", (whole, Node("div", (numerator, denominator))))

    def _begins_factor(self) -> bool:
        """Return whether the next token begins a factor, so that a product without a sign goes on."""
        kind, sign = self.next
        match kind:
            case "number":
                return True
            case "word":
                known = sign in FUNCTIONS or sign in CONSTANTS or sign == "sqrt" or len(sign) == 1
                return (known and sign != "U") or (
                    len(sign) <= 3 and unit_of(sign) is None and self.next not in SEPARATORS
                )
            case "command":
                return sign not in RELATIONS and sign not in _OPERATORS
            case "begin":
                return True
        return sign in ("(", "[", r"\{", "{") or (sign == "|" and not self.bars)

    def raised(self) -> Node:
        """Read a factor with its powers."""
        self.deeper()
        base = self.postfixed(self.atom())
        while self._power():
            if self._circled():
                base = Node("unit", (base,), "°")
                continue
            if self.takes("-"):
                exponent = Node("neg", (self.raised(),))
            else:
                exponent = self.group() if self.takes("{") else self.raised()
            if exponent.op == "text":  # `3^\text{rd}`
                base = Node("unit", (base,), exponent.name)
                continue
            base = self.postfixed(Node("pow", (base, exponent)))
        self.depth -= 1
        return base

    def _power(self) -> bool:
        """Take `^`, or Python's `**`; return whether one followed."""
        if self.tokens[self.place : self.place + 2] == [("symbol", "*"), ("symbol", "*")]:
            self.place += 2
            return True
        return self.takes("^")

    def _circled(self) -> bool:
        r"""Take a degree sign, `\circ` or `{\circ}`, if it is next; return whether it was."""
        if self.takes_command("circ"):
            return True
        if self.tokens[self.place : self.place + 3] == [("symbol", "{"), ("command", "circ"), ("symbol", "}")]:
            self.place += 3
            return True
        return False

    def postfixed(self, value: Node) -> Node:
        """Read what is attached to a value: `!`, `%`, a subscript, a degree sign."""
        while True:
            if self.takes("!"):
                value = Node("call", (value,), "factorial")
            elif self.takes("%"):
                value = Node("percent", (value,))
            elif self.takes("_"):
                value = self._subscript(value)
            elif self.takes_command("degree", "degrees"):
                value = Node("unit", (value,), "°")
            else:
                return value

    def _subscript(self, value: Node) -> Node:
        below = self._written() if self.takes("{") else self.take()[1]
        if value.op == "number":
            return Node("unit", (value,), f"base {below}")
        if value.op != "name":
            raise Unread("unknown", f"a subscript {quote(below)} of what is no name")
        return Node("name", name=f"{value.name}_{below}")

    def _written(self) -> str:
        """Read up to the closing brace as plain text."""
        parts, opened = [], 1
        while opened:
            kind, sign = self.take()
            if (kind, sign) == END:
                raise Unread("malformed", "} is missing before the end")
            opened += (kind == "symbol") * ((sign == "{") - (sign == "}"))
            parts.append(sign)
        return "".join(parts[:-1])

    def group(self) -> Node:
        """Read the formula up to the closing brace."""
        inside = self.listed()
        self.need("}")
        return inside

    def argument(self) -> Node:
        """Read a command's argument: a group, or one token (of a number one digit)."""
        if self.takes("{"):
            return self.group()
        kind, sign = self.next
        if kind == "number" and len(sign) > 1 and sign.isdigit():
            self.tokens[self.place] = (kind, sign[1:])
            return number(int(sign[0]))
        if kind == "word" and len(sign) > 1:
            self.tokens[self.place] = (kind, sign[1:])
            return Node("name", name=sign[0])
        return self.atom()

    def atom(self) -> Node:
        """Read a factor without operators: a number, a name, a function, a bracket."""
        self.deeper()
        kind, sign = self.take()
        reading = _READINGS.get(kind)
        if reading is None:
            raise Unread("malformed", "something is missing at the end" if kind == END[0] else f"{quote(sign)} alone")
        read = reading(self, sign)
        self.depth -= 1
        return read

    def number(self, sign: str) -> Node:
        """Read a number as it is written."""
        if "(" in sign:
            whole, _, repeated = sign.rstrip(")").partition("(")
            once = Fraction(whole if whole not in (".", "") else "0")
            decimals = len(whole.partition(".")[2])
            return number(once + Fraction(int(repeated), (10 ** len(repeated) - 1) * 10**decimals))
        return number(Fraction(sign), len(sign.partition(".")[2].partition("e")[0]))

    def word(self, sign: str) -> Node:
        """Read letters side by side."""
        if sign in CONSTANTS:
            return _constant(CONSTANTS[sign])
        if sign == "sqrt":
            return Node("call", (self.argument() if self.next == ("symbol", "{") else self.raised(),), "sqrt")
        if sign in FUNCTIONS:
            return self.called(sign)
        if len(sign) > 3:
            return Node("text", name=sign)
        letters = [Node("name", name=letter) for letter in sign]
        while self.takes("'"):
            letters[-1] = Node("name", name=letters[-1].name + "'")
        return letters[0] if len(letters) == 1 else Node("mul", tuple(letters))

    def command(self, sign: str) -> Node:
        """Read a command."""
        match sign:
            case "frac" | "dfrac" | "tfrac" | "cfrac":
                return Node("div", (self.argument(), self.argument()), "frac")
            case "sqrt":
                index = (self.listed(), self.need("]"))[0] if self.takes("[") else None
                inside = self.raised() if self.next == ("symbol", "(") else self.argument()
                return Node(
                    "call", (inside,) if index is None else (inside, index), "sqrt" if index is None else "root"
                )
            case "binom" | "dbinom" | "tbinom":
                return Node("call", (self.argument(), self.argument()), "binomial")
            case "emptyset" | "varnothing":
                return Node("set")
        if sign in CONSTANTS:
            return _constant(CONSTANTS[sign])
        if sign in FUNCTIONS:
            return self.called(sign)
        if sign in GREEK:
            return Node("name", name=sign)
        if sign in _ACCENTS:
            return self.argument()
        if sign in _FENCES:
            closing, name = _FENCES[sign]
            inside = self.listed()
            if not self.takes_command(closing):
                raise Unread("malformed", f"\\{closing} is missing")
            return Node("call", (inside,), name) if name else bracketed(inside, "(", ")")
        kind = "malformed" if sign in _OPERATORS or sign in RELATIONS else "unknown"
        raise Unread(kind, f"\\{sign[:40]} is not read" if kind == "unknown" else f"\\{sign} alone")

    def called(self, name: str) -> Node:
        """Read a function: its base or power, and its argument with or without brackets."""
        base = power = None
        while self.next in (("symbol", "_"), ("symbol", "^")):
            below = self.take()[1] == "_"
            negative = not below and self.takes("-")
            operand = self.argument()
            operand = Node("neg", (operand,)) if negative else operand
            base, power = (operand, power) if below else (base, operand)
        if self.next[1] in ("(", "[", "{") and self.next[0] == "symbol":
            inside = self.postfixed(self.atom())
        else:
            inside = self.raised()
            while self._begins_factor() and not self._begins_function():
                inside = _product(inside, self.raised())
        if inside.op == "unit" and unit_of(inside.name) == "°":
            inside = Node("mul", (*inside.args, Node("name", name="pi"), number(Fraction(1, 180))))
        if inside.op in ("tuple", "list") and name in ("max", "min", "gcd", "lcm"):
            arguments = inside.args
        else:
            arguments = (inside,)
        inverse = power is not None and power == Node("neg", (number(1),))
        call = Node("call", (*arguments, base) if base else arguments, f"arc{name}" if inverse else name)
        return call if power is None or inverse else Node("pow", (call, power))

    def _begins_function(self) -> bool:
        return self.next[0] in ("command", "word") and self.next[1] in FUNCTIONS

    def symbol(self, sign: str) -> Node:
        """Read the content of a bracket or of bars."""
        if sign == "{":
            return self.group()
        if sign == "|":
            self.bars += 1
            inside = self.listed()
            self.bars -= 1
            self.need("|")
            return Node("call", (inside,), "abs")
        if sign not in _CLOSING:
            raise Unread("malformed", f"{quote(sign)} alone")
        bars, self.bars = self.bars, 0
        closing = _CLOSING[sign]
        inside = None if self.next[1] in closing and self.next[0] == "symbol" else self.listed()
        closed = self.need(*closing)
        self.bars = bars
        return bracketed(inside, sign, closed)

    def text(self, sign: str) -> Node:
        """Read words that are marked as text."""
        return Node("text", name=sign)

    def begin(self, environment: str) -> Node:
        """Read a matrix."""
        if environment not in _MATRICES:
            raise Unread("unknown", f"the environment {environment} is not read")
        rows: list[tuple[Node, ...]] = []
        while self.next != ("end", environment):
            row = [self.related()]
            while self.takes("&"):
                row.append(self.related())
            rows.append(tuple(row))
            if not self.takes(r"\\") and self.next != ("end", environment):
                raise Unread("malformed", f"\\end{{{environment}}} is missing")
        self.take()
        if len({len(row) for row in rows}) != 1:
            raise Unread("malformed", "rows of a matrix are of different lengths")
        return Node("matrix", tuple(Node("row", row) for row in rows))


_OPERATORS = frozenset({
    "times", "cdot", "ast", "div", "pm", "mp", "cup", "cap", "setminus", "backslash", "rangle", "rfloor", "rceil",
    "rvert", "vert", "circ", "degree", "degrees",
})  # fmt: skip
_READINGS: dict[str, Callable[[Formula, str], Node]] = {
    "number": Formula.number,
    "word": Formula.word,
    "command": Formula.command,
    "symbol": Formula.symbol,
    "text": Formula.text,
    "begin": Formula.begin,
}


def _constant(name: str) -> Node:
    return Node("infinity") if name == "oo" else Node("name", name=name)


def _product(left: Node, right: Node) -> Node:
    return Node("mul", (*left.args, right)) if left.op == "mul" else Node("mul", (left, right))


def _beside(left: Node, right: Node) -> Node:
    """Combine two neighbours: a product, or a mixed number (also in percent or with a unit)."""
    if right.op in ("percent", "unit") and left.op == "number":
        inner = _beside(left, right.args[0])
        return Node(right.op, (inner,), right.name) if inner.op == "add" else _product(left, right)
    mixed = left.op == "number" and not left.places and right.op == "div" and right.name == "frac" and _whole(right)
    return Node("add", (left, right)) if mixed else _product(left, right)


def _whole(quotient: Node) -> bool:
    """Return whether the quotient is a proper fraction of whole numbers, which may follow a whole number."""
    above, below = quotient.args
    return above.op == below.op == "number" and not above.places and not below.places and above.value < below.value


def bracketed(inside: Node | None, opened: str, closed: str) -> Node:
    """Return the node of a bracketed expression. Unread if the brackets have no meaning."""
    if inside is None:
        if opened == r"\{":
            return Node("set")
        raise Unread("malformed", f"nothing stands between {opened} and {closed}")
    items = inside.args if inside.op == "list" else (inside,)
    if opened == r"\{":
        return Node("set", items)
    if opened + closed == "()":
        return Node("tuple", items) if inside.op == "list" else inside
    if inside.op == "list" and len(items) == 2:
        return Node("interval", items, opened + closed)
    if opened + closed != "[]":
        raise Unread("malformed", f"{opened} is closed by {closed}")
    return Node("tuple", items, "[]") if inside.op == "list" else inside
