"""Words that mean something in a formula, and units: which are one, and which are known to be different ones."""

from __future__ import annotations

import re

FUNCTIONS = frozenset({
    "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "asin", "acos", "atan", "sinh", "cosh",
    "tanh", "ln", "log", "lg", "exp", "max", "min", "gcd", "lcm", "abs", "floor", "ceil", "cbrt", "Re", "Im",
})  # fmt: skip
GREEK = frozenset({
    "alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta", "vartheta", "iota", "kappa",
    "lambda", "mu", "nu", "xi", "rho", "sigma", "tau", "upsilon", "phi", "varphi", "chi", "psi", "omega", "Gamma",
    "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Upsilon", "Phi", "Psi", "Omega", "ell", "hbar",
})  # fmt: skip
CONSTANTS = {"pi": "pi", "infty": "oo", "infinity": "oo", "Infinity": "oo", "inf": "oo", "oo": "oo", "imath": "i"}
# Words before a number without a meaning for it.
BEFORE = frozenset({"about", "approximately", "approx", "exactly", "roughly", "rs", "usd", "eur", "is", "answer", "the",
                    "therefore", "so", "thus", "equals", "always", "simply", "just", "indeed", "then"})  # fmt: skip
PERCENT = frozenset({"percent", "percentage", "pct"})
MANY = {"dozen": 12, "hundred": 100, "thousand": 1_000, "million": 10**6, "billion": 10**9, "trillion": 10**12}
# Behind a value, these make it another one.
CHANGING = frozenset({"squared", "cubed", "factorial", "plus", "minus", "over", "divided", "half", "halves", "third",
                      "thirds", "quarter", "quarters", "fourths", "fifths", "tenths", "hundredths", "not", "negative",
                      *MANY})  # fmt: skip
_UNITS = {
    "m": "m metre metres meter meters", "cm": "cm centimetre centimetres centimeter centimeters",
    "mm": "mm millimetre millimetres millimeter millimeters", "km": "km kilometre kilometres kilometer kilometers",
    "in": "in inch inches", "ft": "ft foot feet", "yd": "yd yard yards", "mi": "mi mile miles",
    "g": "g gram grams", "kg": "kg kilogram kilograms", "mg": "mg milligram milligrams", "lb": "lb lbs pound pounds",
    "s": "s sec secs second seconds", "min": "min mins minute minutes", "h": "h hr hrs hour hours", "d": "day days",
    "wk": "week weeks", "month": "month months", "yr": "yr yrs year years",
    "L": "l L litre litres liter liters", "mL": "ml mL millilitre millilitres milliliter milliliters",
    "mph": "mph mi/h", "km/h": "km/h kmh kph kmph", "m/s": "m/s", "J": "J joule joules", "kJ": "kJ",
    "W": "W watt watts",
    "N": "N newton newtons", "V": "V volt volts", "K": "K kelvin kelvins", "Hz": "Hz hertz",
    "$": "dollar dollars usd", "cent": "cent cents", "€": "euro euros eur", "rad": "rad radian radians",
    "°": "° degree degrees deg",
}  # fmt: skip
_KNOWN = {word: unit for unit, words in _UNITS.items() for word in words.split()}
_SQUARED = re.compile(r"(?:sq(?:uare)?\.?|cu(?:bic)?\.?)(?=[a-z])")
_BASE = re.compile(r"base(?:[0-9]+|two|eight|ten|sixteen)")
_BASES = {"basetwo": "base2", "baseeight": "base8", "baseten": "base10", "basesixteen": "base16"}


def unit_of(written: str) -> str | None:
    """Return the canonical name of the written unit; None for an unknown one such as `apples`."""
    plain = re.sub(r"[\s{}]", "", written).rstrip(".")
    if _BASE.fullmatch(plain):
        return _BASES.get(plain, plain)
    power = ""
    if match := _SQUARED.match(plain):
        power, plain = "2" if match[0].startswith("sq") else "3", plain[match.end() :]
    elif match := re.search(r"(?<=[A-Za-z])\^?([23])\Z", plain):
        power, plain = match[1], plain[: match.start()]
    unit = _KNOWN.get(plain) or _KNOWN.get(plain.lower())
    return unit and unit + power
