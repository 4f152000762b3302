// Small charts, as SVG.
import { svg } from './dom.js'
import { span, count } from './format.js'

// Bars of counts over time, with a text for screen readers.
export function sparkline (over) {
  const counts = over?.parked || []
  const most = Math.max(1, ...counts)
  const total = counts.reduce((sum, each) => sum + each, 0)
  const minutes = over ? over.bucket_ms / 60000 : 1
  const label = total
    ? `At most ${count(Math.ceil(Math.max(...counts) / minutes))} a minute in the last ${span(counts.length * (over?.bucket_ms || 0))}`
    : 'None in the time shown'
  return svg('svg', { class: 'spark', viewBox: `0 0 ${counts.length * 3 || 1} 20`, preserveAspectRatio: 'none', role: 'img', 'aria-label': label },
    svg('title', {}, label),
    counts.map((each, at) => each && svg('rect', {
      x: at * 3, width: 2, y: 20 - Math.max(1, 20 * each / most), height: Math.max(1, 20 * each / most)
    })))
}

const WIDTH = 640
const HEIGHT = 180
const LEFT = 52
const BOTTOM = 24

// Lines over time: lines are { name, kind, points: [[ms, value]] }; down is [from, to], the time of an outage.
export function plot (title, unit, lines, down) {
  const points = lines.flatMap(line => line.points)
  const end = Math.max(1, ...points.map(([ms]) => ms))
  const most = Math.max(1, ...points.map(([, value]) => value))
  const x = ms => LEFT + (WIDTH - LEFT - 8) * ms / end
  const y = value => 8 + (HEIGHT - BOTTOM - 8) * (1 - value / most)
  const ticks = [0, 0.5, 1]
  return svg('svg', { class: 'plot', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': title },
    svg('title', {}, title),
    down && svg('rect', { class: 'down', x: x(down[0]), width: Math.max(1, x(Math.min(down[1], end)) - x(down[0])), y: 8, height: HEIGHT - BOTTOM - 8 }),
    ticks.map(part => [
      svg('line', { class: 'axis', x1: LEFT, x2: WIDTH - 8, y1: y(most * part), y2: y(most * part) }),
      svg('text', { x: LEFT - 6, y: y(most * part) + 4, 'text-anchor': 'end' }, count(Math.round(most * part * 10) / 10)),
      svg('text', { x: x(end * part), y: HEIGHT - 6, 'text-anchor': part === 0 ? 'start' : part === 1 ? 'end' : 'middle' }, span(end * part))
    ]),
    svg('text', { x: LEFT + 4, y: 18 }, unit),
    lines.map(line => svg('polyline', { class: line.kind, points: line.points.map(([ms, value]) => `${x(ms).toFixed(1)},${y(value).toFixed(1)}`).join(' ') })))
}
