"""Samples, and how to format them."""

from __future__ import annotations

import math
from collections.abc import Sequence

_TIMES = ((1.0, 1.0, "s"), (1e-3, 1e-3, "ms"), (1e-6, 1e-6, "us"), (0.0, 1e-9, "ns"))
_SIZES = ((1 << 20, 1 << 20, "MiB"), (1 << 10, 1 << 10, "KiB"), (0, 1, "B"))


class Sample:
    """Measured values of one thing, all in one unit."""

    def __init__(self, values: Sequence[float]) -> None:
        self.values = sorted(values)

    def __len__(self) -> int:
        return len(self.values)

    def at(self, share: float) -> float:
        """Return the quantile at `share`, interpolated between two neighbouring values."""
        if not self.values:
            return math.nan
        place = share * (len(self.values) - 1)
        low = math.floor(place)
        high = min(low + 1, len(self.values) - 1)
        return self.values[low] + (self.values[high] - self.values[low]) * (place - low)

    @property
    def median(self) -> float:
        return self.at(0.5)

    @property
    def most(self) -> float:
        return self.at(1.0)


def seconds(value: float) -> str:
    """Format a time with three significant digits and a fitting unit."""
    return _in(value, _TIMES)


def size(value: float) -> str:
    """Format a number of bytes with three significant digits."""
    return _in(value, _SIZES)


def _in(value: float, units: Sequence[tuple[float, float, str]]) -> str:
    fitting = (f"{three(value / unit)} {name}" for least, unit, name in units if abs(value) >= least)
    return next(fitting, "-")  # NaN fits no unit


def three(value: float) -> str:
    """Format a number with three significant digits and separators between thousands."""
    if math.isnan(value):
        return "-"
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def times(value: float) -> str:
    """Format a ratio."""
    return "-" if math.isnan(value) else f"{three(value)}x"


def paired(values: Sequence[float], base: Sequence[float]) -> float:
    """Return the median of the ratios of two rows, round by round: what slows one round down slows both."""
    return Sample([value / other for value, other in zip(values, base, strict=True)]).median


def spread(sample: Sample) -> str:
    """Format the range of the middle half of the values."""
    return f"{seconds(sample.at(0.25))} .. {seconds(sample.at(0.75))}"
