// Small charts, as SVG.
import { svg } from './dom.js'
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

function sparklineLabel (counts, bucketMs) {
  const most = Math.max(0, ...counts)
  if (!most) return 'No message was parked in this time'
  const rate = Math.ceil(most * 60000 / bucketMs)
  return `Up to ${count(rate)} parked a minute in the last ${span(counts.length * bucketMs)}`
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
  const outage = ([from, to]) => {
    const width = Math.max(1, x(Math.min(to, end)) - x(from))
    return svg('rect', { class: 'down', x: x(from), width, y: 8, height: HEIGHT - BOTTOM - 8 })
  }
  const tick = ([part, anchor]) => [
    svg('line', { class: 'axis', x1: LEFT, x2: WIDTH - 8, y1: y(most * part), y2: y(most * part) }),
    svg('text', { x: LEFT - 6, y: y(most * part) + 4, 'text-anchor': 'end' }, count(Math.round(most * part * 10) / 10)),
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
    svg('text', { x: LEFT + 4, y: 18 }, unit),
    lines.map(polyline))
}
