"""Draws how late retries come back, over how many are offered: an SVG file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from lateness_svg import duration, line, picture, text

WIDTH, HEIGHT = 880, 440
LEFT, RIGHT, TOP, BOTTOM = 84, 24, 100, 64  # margins around the plot
Rates = dict[int, Any]  # by retries a second


def series(waits: dict[int, Any]) -> dict[str, Rates]:
    """Returns the curves, by their names."""
    return {
        f"{stripes} stripe{'s' * (stripes > 1)}, {ahead} ahead": rates
        for ahead, found in waits.items()
        for stripes, rates in found["offered"].items()
    }


class Scales:
    """Retries a second to the right and lateness in ms upwards, both logarithmic."""

    def __init__(self, every: list[Rates]) -> None:
        late = [max(found[key], 1) for rates in every for found in rates.values() for key in ("p50_ms", "p99_ms")]
        self.rates = sorted({rate for rates in every for rate in rates})
        self.lowest, self.highest = math.floor(math.log10(min(late))), math.ceil(math.log10(max(late)))
        self.highest = max(self.highest, self.lowest + 1)

    def x(self, rate: float) -> float:
        first, last = (math.log10(self.rates[i]) for i in (0, -1))
        return LEFT + (WIDTH - LEFT - RIGHT) * (0.05 + 0.9 * (math.log10(rate) - first) / max(last - first, 1e-9))

    def y(self, ms: float) -> float:
        share = (math.log10(max(ms, 10**self.lowest)) - self.lowest) / (self.highest - self.lowest)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share


def axes(scales: Scales) -> Iterator[str]:
    for power in range(scales.lowest, scales.highest + 1):
        y = scales.y(10**power)
        yield line(LEFT, y, WIDTH - RIGHT, y, 'class="grid"')
        yield text(LEFT - 8, y + 4, duration(10**power), 'text-anchor="end"')
    for rate in scales.rates:
        yield text(scales.x(rate), HEIGHT - BOTTOM + 20, f"{rate:,}/s", 'text-anchor="middle"')
    yield text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 16, "retries offered", 'text-anchor="middle"')


def curves(scales: Scales, named: dict[str, Rates]) -> Iterator[str]:
    for row, (name, rates) in enumerate(named.items()):
        for key, dash in (("p50_ms", "2 5"), ("p99_ms", "none")):
            points = " ".join(f"{scales.x(rate):.1f},{scales.y(found[key]):.1f}" for rate, found in rates.items())
            yield f'<polyline class="line s{row}" points="{points}" stroke-dasharray="{dash}"/>'
        x, y = LEFT + 380 * (row % 2), 56 + 20 * (row // 2)
        yield line(x, y - 4, x + 14, y - 4, f'class="line s{row}"')
        yield text(x + 22, y, f"{name}: median (dotted), p99")


def draw(waits: dict[int, Any]) -> str:
    """:param waits: the offered load, by how much the broker sends ahead, by stripes, by retries a second"""
    named = series(waits)
    scales = Scales(list(named.values()))
    return picture(WIDTH, HEIGHT, "How late retries come back, by load", [*axes(scales), *curves(scales, named)])
