"""Draws how late retries come back, over how many are offered: an SVG file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from lateness_svg import duration, text

WIDTH, HEIGHT = 880, 420
LEFT, RIGHT, TOP, BOTTOM = 84, 24, 80, 64  # margins around the plot
COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7")


class Scales:
    """Retries a second to the right and lateness in ms upwards, both logarithmic."""

    def __init__(self, offered: dict[int, dict[int, Any]]) -> None:
        rates = [rate for found in offered.values() for rate in found]
        late = [max(each[key], 1) for found in offered.values() for each in found.values() for key in ("p50_ms", "p99_ms")]
        self.rates = sorted(set(rates))
        self.lowest, self.highest = (round_(math.log10(each(late))) for round_, each in ((math.floor, min), (math.ceil, max)))
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
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#e0e0e0"/>'
        yield text(LEFT - 8, y + 4, duration(10**power), 'text-anchor="end"')
    for rate in scales.rates:
        yield text(scales.x(rate), HEIGHT - BOTTOM + 20, f"{rate:,}/s", 'text-anchor="middle"')
    yield text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 16, "retries offered", 'text-anchor="middle"')


def lines(scales: Scales, offered: dict[int, dict[int, Any]]) -> Iterator[str]:
    for row, ((stripes, found), colour) in enumerate(zip(offered.items(), COLOURS)):
        for key, dash in (("p50_ms", "2 5"), ("p99_ms", "")):
            points = " ".join(f"{scales.x(rate):.1f},{scales.y(each[key]):.1f}" for rate, each in found.items())
            yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>'
        name = f"{stripes} stripe{'s' * (stripes > 1)}: median (dotted), p99"
        yield text(LEFT + 280 * row, 56, name, f'fill="{colour}"')


def draw(offered: dict[int, dict[int, Any]]) -> str:
    scales = Scales(offered)
    size = f'width="{WIDTH}" height="{HEIGHT}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {size}'
        ' font-family="sans-serif" font-size="13" fill="#202020">',
        f'<rect {size} fill="#ffffff"/>',
        text(LEFT, 28, "How late retries come back, by load", 'font-size="18" font-weight="bold"'),
        *axes(scales),
        *lines(scales, offered),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"
