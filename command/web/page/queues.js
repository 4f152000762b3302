// The work queues with their consumers, and the ladder with its next due times.
import { h, set, table } from './dom.js'
import { clock, count, messages, relative, seconds, span } from './format.js'
import { isBusy, queuesOf } from './state.js'

function due (each, now) {
  if (!each.due_by_ms) return '–'
  const remaining = each.due_by_ms - now
  const text = remaining > 0 ? `in ${seconds(remaining)} at the latest` : relative(each.due_by_ms, now)
  return h('span', { title: clock(each.due_by_ms) }, text)
}

function ladder (waiting, now) {
  const most = Math.max(1, ...waiting.map(each => each.ready))
  return table('Wait queues', [
    ['Delay', each => span(each.delay_ms), 'number'],
    ['Messages', each => count(each.ready), 'number'],
    ['', each => h('progress', { value: each.ready, max: most, 'aria-label': `${count(each.ready)} messages` })],
    ['Next one due', each => due(each, now)],
    ['Overdue', each => each.late ? h('b', { class: 'danger' }, count(each.late)) : '0', 'number'],
    ['Queue', each => h('code', {}, each.queue)]
  ], waiting)
}

// Returns a figure of a queue as text. A queue without figures is missing, or the user may not look at it.
function shown (queue, key) {
  if (queue?.[key] != null) return count(queue[key])
  return queue?.refused ? 'no access' : 'missing'
}

function consumers (each) {
  return each.consumers === 0 && each.ready > 0 ? h('b', { class: 'danger' }, 'none') : shown(each, 'consumers')
}

function parked (state, each) {
  if (isBusy(state, each.queue)) return 'held by an action'
  return shown(queuesOf(state, 'parked').find(({ queue }) => queue === `${each.queue}.parked`), 'ready')
}

function workQueues (state) {
  return table('Work queues', [
    ['Queue', each => each.queue],
    ['Ready', each => shown(each, 'ready'), 'number'],
    ['Consumers', consumers, 'number'],
    ['Parked', each => parked(state, each), 'number']
  ], queuesOf(state, 'work'))
}

function refusal (state) {
  const refused = state.depths.filter(each => each.refused).length
  return refused > 0 && h('div', { class: 'card problem' },
    `Access is refused: ${count(refused)} ${refused === 1 ? 'queue' : 'queues'}. `,
    'The user of this program needs the permission to read them.')
}

function draw (state) {
  if (!state.depths) {
    const text = state.problem || 'Waiting for the first figures…'
    return [h('div', { class: state.problem ? 'card problem' : 'card' }, text)]
  }
  const waiting = queuesOf(state, 'waiting').filter(each => each.ready > 0).sort((a, b) => a.delay_ms - b.delay_ms)
  const total = waiting.reduce((sum, each) => sum + each.ready, 0)
  return [
    refusal(state),
    workQueues(state),
    h('h3', {}, 'Messages that wait for a retry'),
    h('p', {}, total
      ? `${messages(total)} of all work queues.`
      : queuesOf(state, 'waiting').some(each => each.refused)
        ? 'Their number is unknown: access to wait queues is refused.'
        : 'No message waits for a retry.'),
    waiting.length > 0 && ladder(waiting, state.time_ms)
  ].filter(Boolean)
}

export default function queues (app, main) {
  const place = h('div')
  main.append(h('h2', {}, 'Queues'), place)
  app.onState(state => set(place, ...draw(state)))
}
