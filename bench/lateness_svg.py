"""Draws how late messages came back, over the delay that they should have had: an SVG file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

WIDTH, HEIGHT = 880, 520
LEFT, RIGHT, TOP, BOTTOM = 84, 24, 96, 64  # margins around the plot
LOWEST_MS = 0.1
SERIES = {  # contender: legend
    "librabbitmq": "one wait queue, per-message TTL",
    "backhop": "Backhop's ladder: a queue per rung",
}
# The colours of a plot follow the reader's light or dark ones. The classes s0 to s3 are series.
STYLE = """\
.back{fill:#fff;stroke:#d0d7de}text{font:13px system-ui,sans-serif;fill:#1f2328}.title{font-size:18px;font-weight:600}
.down{fill:#eef0f3}.grid{stroke:#e3e6ea}.axis{stroke:#57606a}.halo{stroke:#fff;stroke-width:4;paint-order:stroke}
.s0{stroke:#d55e00}.s1{stroke:#0072b2}.s2{stroke:#00795a}.s3{stroke:#a8478a}.line{fill:none;stroke-width:2}
.dots{stroke-width:3;stroke-linecap:round;stroke-opacity:.6}
@media (prefers-color-scheme:dark){.back{fill:#0d1117;stroke:#30363d}text{fill:#e6edf3}.down{fill:#1c222b}.grid{stroke:#262c34}.axis{stroke:#8b949e}
.halo{stroke:#0d1117}.s0{stroke:#ff9f5a}.s1{stroke:#6cb6ff}.s2{stroke:#3fd6a5}.s3{stroke:#f0a8d4}}"""


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


def picture(width: int, height: int, title: str, parts: Iterator[str] | list[str]) -> str:
    """An SVG file with its style, its background and its title."""
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>{title}</title>\n<style>{STYLE}</style>",
        f'<rect class="back" x="1" y="1" width="{width - 2}" height="{height - 2}" rx="10"/>',
        text(LEFT, 30, title, 'class="title"'),
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


def duration(ms: float) -> str:
    return f"{ms:g} ms" if ms < 1000 else f"{ms / 1000:g} s"


def axes(scales: Scales) -> Iterator[str]:
    for power in range(scales.lowest, scales.highest + 1):
        y = scales.y(10**power)
        yield line(LEFT, y, WIDTH - RIGHT, y, 'class="grid"')
        yield text(LEFT - 8, y + 4, duration(10**power), 'text-anchor="end"')
    for seconds in range(0, scales.longest_s + 1, 5):
        x = scales.x(seconds)
        yield line(x, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 5, 'class="axis"')
        yield text(x, HEIGHT - BOTTOM + 20, f"{seconds} s", 'text-anchor="middle"')
    yield line(LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, 'class="axis"')
    centre, middle = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
    yield text(centre, HEIGHT - 16, "delay chosen", 'text-anchor="middle"')
    upwards = f'text-anchor="middle" transform="rotate(-90 20 {middle:.1f})"'
    yield text(20, middle, "came back late by", upwards)


def points(scales: Scales, pairs: list[tuple[float, float]], kind: str) -> str:
    places = ((scales.x(delay / 1000), scales.y(late)) for delay, late in pairs)
    dots = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in places)
    return f'<path class="dots {kind}" d="{dots}"/>'


def legend(lateness: dict[str, Any]) -> Iterator[str]:
    for row, (contender, name) in enumerate(SERIES.items()):
        y = 56 + 20 * row
        each = lateness[contender]
        yield line(LEFT, y - 4, LEFT + 14, y - 4, f'class="line s{row}"')
        figures = f"median {each['p50_ms']:,.0f} ms, p99 {each['p99_ms']:,.0f} ms"
        yield text(LEFT + 22, y, f"{name}: {figures}")


def draw(lateness: dict[str, Any], target_ms: float) -> str:
    scales = Scales(lateness)
    target = scales.y(target_ms)
    count = len(lateness["backhop"]["delay_and_lateness_ms"])
    parts = [*legend(lateness), *axes(scales)]
    for row, contender in enumerate(SERIES):
        parts.append(points(scales, lateness[contender]["delay_and_lateness_ms"], f"s{row}"))
    parts.append(line(LEFT, target, WIDTH - RIGHT, target, 'class="axis" stroke-dasharray="6 4"'))
    parts.append(text(WIDTH - RIGHT, target - 8, f"target: p99 below {duration(target_ms)}", 'text-anchor="end" class="halo"'))
    return picture(WIDTH, HEIGHT, f"How late retries come back: {count:,} messages each", parts)
