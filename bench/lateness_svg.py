"""Draws how late messages came back, over the delay that they should have had: an SVG file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

WIDTH, HEIGHT = 880, 520
LEFT, RIGHT, TOP, BOTTOM = 84, 24, 96, 64  # margins around the plot
LOWEST_MS = 0.1
SERIES = {  # contender: colour, legend
    "librabbitmq": ("#d55e00", "one wait queue, per-message TTL"),
    "backhop": ("#0072b2", "Backhop's ladder: a queue per rung"),
}


class Scales:
    """Delays in s to the right, linear; lateness in ms upwards, logarithmic."""

    def __init__(self, lateness: dict[str, Any]) -> None:
        pairs = [pair for each in lateness.values() for pair in each["delay_and_lateness_ms"]]
        self.longest_s = math.ceil(max(delay for delay, _ in pairs) / 5000) * 5
        self.lowest = math.floor(math.log10(max(min(late for _, late in pairs), LOWEST_MS)))
        self.highest = math.ceil(math.log10(max(late for _, late in pairs)))

    def x(self, delay_s: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * delay_s / self.longest_s

    def y(self, late_ms: float) -> float:
        power = math.log10(max(late_ms, 10**self.lowest))
        share = (power - self.lowest) / (self.highest - self.lowest)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share


def text(x: float, y: float, content: str, attributes: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {attributes}>{content}</text>'


def line(x1: float, y1: float, x2: float, y2: float, attributes: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {attributes}/>'


def duration(ms: float) -> str:
    return f"{ms:g} ms" if ms < 1000 else f"{ms / 1000:g} s"


def axes(scales: Scales) -> Iterator[str]:
    for power in range(scales.lowest, scales.highest + 1):
        y = scales.y(10**power)
        yield line(LEFT, y, WIDTH - RIGHT, y, 'stroke="#e0e0e0"')
        yield text(LEFT - 8, y + 4, duration(10**power), 'text-anchor="end"')
    for seconds in range(0, scales.longest_s + 1, 5):
        x = scales.x(seconds)
        yield line(x, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 5, 'stroke="#404040"')
        yield text(x, HEIGHT - BOTTOM + 20, f"{seconds} s", 'text-anchor="middle"')
    yield line(LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, 'stroke="#404040"')
    centre, middle = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
    yield text(centre, HEIGHT - 16, "delay chosen", 'text-anchor="middle"')
    upwards = f'text-anchor="middle" transform="rotate(-90 20 {middle:.1f})"'
    yield text(20, middle, "came back late by", upwards)


def points(scales: Scales, pairs: list[tuple[float, float]], colour: str) -> str:
    places = ((scales.x(delay / 1000), scales.y(late)) for delay, late in pairs)
    dots = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in places)
    style = 'stroke-width="3" stroke-linecap="round" stroke-opacity="0.6"'
    return f'<path d="{dots}" stroke="{colour}" {style}/>'


def legend(lateness: dict[str, Any]) -> Iterator[str]:
    for row, (contender, (colour, name)) in enumerate(SERIES.items()):
        y = 54 + 20 * row
        each = lateness[contender]
        yield f'<circle cx="{LEFT + 6}" cy="{y - 4}" r="5" fill="{colour}"/>'
        figures = f"median {each['p50_ms']:,.0f} ms, p99 {each['p99_ms']:,.0f} ms"
        yield text(LEFT + 20, y, f"{name}: {figures}")


def draw(lateness: dict[str, Any], target_ms: float) -> str:
    scales = Scales(lateness)
    size = f'width="{WIDTH}" height="{HEIGHT}"'
    target = scales.y(target_ms)
    count = len(lateness["backhop"]["delay_and_lateness_ms"])
    title = f"How late retries come back: {count:,} messages each"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {size}'
        ' font-family="sans-serif" font-size="13" fill="#202020">',
        f'<rect {size} fill="#ffffff"/>',
        text(LEFT, 28, title, 'font-size="18" font-weight="bold"'),
        *legend(lateness),
        *axes(scales),
    ]
    for contender, (colour, _) in SERIES.items():
        parts.append(points(scales, lateness[contender]["delay_and_lateness_ms"], colour))
    dashed = 'stroke="#404040" stroke-dasharray="6 4"'
    label = f"target: p99 below {duration(target_ms)}"
    parts.append(line(LEFT, target, WIDTH - RIGHT, target, dashed))
    haloed = 'text-anchor="end" stroke="#ffffff" stroke-width="4" paint-order="stroke"'
    parts += [text(WIDTH - RIGHT, target - 8, label, haloed), "</svg>"]
    return "\n".join(parts) + "\n"
