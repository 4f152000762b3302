// Small charts, as SVG.
import { h, svg } from './dom.js'
import { span, count } from './format.js'

// Bars of counts over time, with a text for screen readers.
export function sparkline (over) {
  const counts = over?.parked || []
  const most = Math.max(1, ...counts)
  const label = sparklineLabel(counts, over?.bucket_ms || 0)
  const bar = (each, at) => {
    const height = Math.max(1, 20 * each / most)
    return svg('rect', { x: at * 3, width: 2, y: 20 - height, height })
  }
  return svg('svg', {
    class: 'spark',
    viewBox: `0 0 ${counts.length * 3 || 1} 20`,
    preserveAspectRatio: 'none',
    role: 'img',
    'aria-label': label
  }, svg('title', {}, label), counts.map((each, at) => each > 0 && bar(each, at)))
}

// A wide sparkline with its time and its highest rate.
export function chart (over) {
  const counts = over?.parked || []
  const bucketMs = over?.bucket_ms || 0
  return h('div', { class: 'card' }, sparkline(over), h('div', { class: 'scale muted small' },
    h('span', {}, `${span(counts.length * bucketMs)} ago`),
    h('span', {}, sparklineLabel(counts, bucketMs)),
    h('span', {}, 'now')))
}

function sparklineLabel (counts, bucketMs) {
  const most = Math.max(0, ...counts)
  if (!most) return 'No message was parked in this time'
  const rate = Math.ceil(most * 60000 / bucketMs)
  return `Up to ${count(rate)} parked a minute in the last ${span(counts.length * bucketMs)}`
}

const WIDTH = 640
const HEIGHT = 196
const LEFT = 52
const BOTTOM = 24
const TOP = 24

// Returns an even scale value that is at least `value`: 1, 2, 4, 6, 8 or 10 times a power of ten.
function roundUp (value) {
  const power = 10 ** Math.floor(Math.log10(value))
  return [1, 2, 4, 6, 8, 10].find(each => each * power >= value) * power
}

// Explains a line, or the area of an outage (kind down).
export function key (kind, text) {
  const sign = kind === 'down'
    ? svg('rect', { x: 1, y: 1, width: 34, height: 10 })
    : svg('polyline', { class: kind, points: '0,6 36,6' })
  return h('span', {}, svg('svg', { viewBox: '0 0 36 12', 'aria-hidden': 'true' }, sign), text)
}

// Lines over time: lines are { name, kind, points: [[ms, value]] }; down is [from, to], the time of an outage.
export function plot (title, unit, lines, down) {
  const points = lines.flatMap(line => line.points)
  const end = Math.max(1, ...points.map(([ms]) => ms))
  const most = roundUp(Math.max(1, ...points.map(([, value]) => value)))
  const x = ms => LEFT + (WIDTH - LEFT - 8) * ms / end
  const y = value => TOP + (HEIGHT - BOTTOM - TOP) * (1 - value / most)
  const outage = ([from, to]) => {
    const width = Math.max(1, x(Math.min(to, end)) - x(from))
    return svg('rect', { class: 'down', x: x(from), width, y: TOP, height: HEIGHT - BOTTOM - TOP })
  }
  const tick = ([part, anchor]) => [
    svg('line', { class: 'axis', x1: LEFT, x2: WIDTH - 8, y1: y(most * part), y2: y(most * part) }),
    svg('text', { x: LEFT - 6, y: y(most * part) + 4, 'text-anchor': 'end' }, count(most * part)),
    svg('text', { x: x(end * part), y: HEIGHT - 6, 'text-anchor': anchor }, span(end * part))
  ]
  const polyline = ({ kind, points }) => svg('polyline', {
    class: kind,
    points: points.map(([ms, value]) => `${x(ms).toFixed(1)},${y(value).toFixed(1)}`).join(' ')
  })
  return svg('svg', { class: 'plot', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': title },
    svg('title', {}, title),
    down && outage(down),
    [[0, 'start'], [0.5, 'middle'], [1, 'end']].map(tick),
    svg('text', { x: 0, y: 12 }, unit),
    lines.map(polyline))
}
