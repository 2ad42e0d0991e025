"""Sizes, rates and times as people write them, and numbers as people read them.

``parse_*`` take a number (already in bytes, bytes per second or seconds) or a text with a unit, and
raise UsageError for anything else. ``format_*`` never raise on a number: what is not finite is "?".
They do not guess: "Mb" (bits) and "2 G" (of what?) are refused, not interpreted. ``estimate_bytes`` does, of what is in memory.
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from itertools import islice
from typing import Any

from windrow.errors import UsageError

_DECIMAL = [(1, "B"), *((1000 ** (i + 1), f"{p}B") for i, p in enumerate("kMGTPE"))]
_BINARY = [(1, "B"), *((1024 ** (i + 1), f"{p}iB") for i, p in enumerate("KMGTPE"))]
_COUNTS = [(1, ""), *((1000 ** (i + 1), p) for i, p in enumerate("kMGTPE"))]
_BYTES = {unit: Fraction(size) for size, unit in [*_DECIMAL, *_BINARY]}
# Written by almost everyone, and can mean nothing else.
_BYTES |= {"KB": Fraction(1000), "kiB": Fraction(1024)}
_PLAIN = {"": Fraction(1)}  # a text that is a number alone
_SHORT_TIMES = [(1e-9, "ns"), (1e-6, "us"), (1e-3, "ms"), (1, "s")]
_LONG_TIMES = [(60, "min", 1, "s"), (3600, "h", 60, "min"), (86400, "d", 3600, "h")]
_SECONDS = {unit: Fraction(1, 1000**power) for power, unit in enumerate(["s", "ms", "us", "ns"])}
_SECONDS |= {unit: Fraction(size) for size, unit, _, _ in _LONG_TIMES}
# The micro sign and the Greek letter, which look the same.
_SECONDS |= {"\u00b5s": Fraction(1, 10**6), "\u03bcs": Fraction(1, 10**6)}

# Two digits of exponent are more than any unit needs, and more would make endless integers.
_NUMBER = r"(?:[0-9]+(?:_[0-9]+)*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?"
_QUANTITY = re.compile(rf"\s*({_NUMBER})\s*([^\W\d_]*)\s*")
_LONGEST = 80  # characters; nobody writes a longer quantity

_SIZE = 'a size is written "2 GB", "1.5 GiB" or as a number of bytes (B, kB ... EB, KiB ... EiB)'
_RATE = 'a rate is written "450 MB/s", "3 GiB/min" or as a number of bytes per second'
_TIME = 'a time is written "5 min", "1 h 30 min", "250 ms" or as a number of seconds (ns ... d)'


def _parse(value: Any, forms: str, read: Callable[[str], Fraction | None]) -> Fraction:
    """Return a number, or what a text of reasonable length is read as; refuse everything else."""
    found = None
    if isinstance(value, str):
        found = read(value) if len(value) <= _LONGEST else None
    elif not isinstance(value, bool) and isinstance(value, numbers.Real) and math.isfinite(value):
        exact = value if isinstance(value, numbers.Rational) else Fraction(float(value))
        found = Fraction(int(exact.numerator), int(exact.denominator))
    if found is None or found < 0:
        raise UsageError(f"{forms}, but got {value!r}")
    return found


def _quantity(match: re.Match[str] | None, units: Mapping[str, Fraction]) -> Fraction | None:
    """Return the value of a "number unit" that was matched; None if there is no such unit."""
    if match is None or match[2] not in units:
        return None
    return Fraction(match[1]) * units[match[2]]


def parse_bytes(value: str | float) -> int:
    """Return a number of bytes, rounded to a whole one."""
    return round(_parse(value, _SIZE, lambda text: _quantity(_QUANTITY.fullmatch(text), _BYTES | _PLAIN)))


def parse_rate(value: str | float) -> float:
    """Return a number of bytes per second."""

    def read(text: str) -> Fraction | None:
        amount, slash, per = text.partition("/")
        parsed = _quantity(_QUANTITY.fullmatch(amount), _BYTES if slash else _PLAIN)
        time = _SECONDS.get(per.strip() if slash else "s")
        return None if parsed is None or time is None else parsed / time

    return float(_parse(value, _RATE, read))


def parse_seconds(value: str | float) -> float:
    """Return a number of seconds; several parts ("1 h 30 min") add up."""

    def read(text: str) -> Fraction | None:
        matches = list(_QUANTITY.finditer(text))
        units = _SECONDS | _PLAIN if len(matches) == 1 else _SECONDS
        parts = [_quantity(match, units) for match in matches]
        known = [part for part in parts if part is not None]
        if not parts or len(known) < len(parts) or "".join(m[0] for m in matches) != text:
            return None
        return sum(known, Fraction(0))

    return float(_parse(value, _TIME, read))


def _digits(value: float) -> str:
    """Write three digits, which are enough for people; four where they would be 1e+03."""
    return f"{value:.0f}" if 999.5 <= value < 1e6 else f"{value:.3g}"


def _scaled(value: float, units: Sequence[tuple[float, str]]) -> str:
    """Write a finite number in the largest unit it reaches once rounded."""
    sign, value = ("-", -value) if value < 0 else ("", float(value))
    size, unit = units[0]
    for larger, larger_unit in units[1:]:
        if float(_digits(value / size)) < round(larger / size):
            break
        size, unit = larger, larger_unit
    return f"{sign}{_digits(value / size)} {unit}".rstrip()


def format_bytes(value: float, *, binary: bool = False) -> str:
    """Write a number of bytes: "2 GB", or "1.86 GiB" if ``binary``."""
    return _scaled(value, _BINARY if binary else _DECIMAL) if math.isfinite(value) else "?"


def format_rate(value: float) -> str:
    """Write a number of bytes per second: "450 MB/s"."""
    return f"{format_bytes(value)}/s"


def format_count(value: float) -> str:
    """Write a number of things: "999", "1.23 k", "45.6 M"."""
    return _scaled(value, _COUNTS) if math.isfinite(value) else "?"


def format_seconds(value: float) -> str:
    """Write a number of seconds: "250 ms", "12.3 s", "5 min 20 s", "2 d 3 h"."""
    if not math.isfinite(value):
        return "?"
    sign, value = ("-", -value) if value < 0 else ("", value)
    if value == 0:
        return "0 s"
    if value < 59.95:  # what rounds to 60 s is a minute
        return sign + _scaled(value, _SHORT_TIMES)
    chosen = 0
    # Rounded to the smaller unit first, so that 59 min 59.7 s is an hour and not 60 min.
    while chosen + 1 < len(_LONG_TIMES):
        part = _LONG_TIMES[chosen][2]
        if round(value / part) * part < _LONG_TIMES[chosen + 1][0]:
            break
        chosen += 1
    size, unit, part, part_unit = _LONG_TIMES[chosen]
    whole, rest = divmod(round(value / part), size // part)
    return f"{sign}{whole} {unit}" + (f" {rest} {part_unit}" if rest else "")


#: Items of a value that are looked at for how large it is, and of each container in it.
MANY = 1000
#: Items of a container that count as nothing, but for what is large in itself.
FEW = 16
#: Bytes of a bin: of a weighted histogram. To ask a histogram what it has takes as long as to add it.
BIN_BYTES = 16
_NUMBERS = frozenset({type(None), bool, int, float, complex})


def estimate_bytes(value: Any) -> int:
    """Estimate how large a value is from the arrays, histograms, tables, texts and containers in it; 0 where that is not known."""
    if type(value) in _NUMBERS:
        return 0
    total, found, seen = 0.0, [(value, 1.0)], {id(value)}
    # Of the value's own code, or as another thread changes it: what was found so far has to do.
    with suppress(Exception):
        for one, times in islice(found, MANY):  # which grows meanwhile: what is near comes first
            size, inside = getattr(one, "nbytes", None), one
            if isinstance(one, (bytes, bytearray, str)):
                size = len(one)
            elif isinstance(one, type):
                size = 0
            elif hasattr(type(one), "storage_type"):
                size = BIN_BYTES * int(one.size)
            elif type(one).__name__ == "DataFrame" and hasattr(one, "memory_usage"):
                size = int(one.memory_usage().sum())
            if isinstance(size, int):
                total += times * size
                continue
            # No other mappings, which may read each value from a file.
            if not isinstance(one, (list, tuple, set, frozenset)):
                inside = (one if isinstance(one, dict) else getattr(one, "__dict__", {})).values()
            total += times * 8 * len(inside) if len(inside) > FEW else 0
            times *= max(len(inside) / MANY, 1.0)
            for item in islice(inside, MANY):
                if type(item) not in _NUMBERS and id(item) not in seen:
                    seen.add(id(item))
                    found.append((item, times))
    return int(total)
