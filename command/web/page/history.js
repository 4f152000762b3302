// The history of actions, by this page and by the command; and saved files.
import { address, get } from './api.js'
import { button, h, problem, set, table } from './dom.js'
import { bytes, clock, count, messages, relative } from './format.js'
import { openAction, openLoad } from './action.js'
import { isBusy, isRunning } from './state.js'

function outcome (app, each) {
  if (!each.ended_ms) {
    const runs = app.state.jobs.some(job => isRunning(job) && job.id === each.id)
    if (runs) return h('a', { href: '#/jobs' }, 'is running')
    return h('span', { class: 'warn' }, 'was killed, or runs elsewhere')
  }
  const done = each.replayed ?? each.dropped ?? each.loaded ?? 0
  return [
    h('span', { class: 'whole' }, `${count(done)} of ${count(each.messages ?? done)}`),
    each.parked_again > 0 && `, ${count(each.parked_again)} parked again`,
    each.stopped && `; stopped: ${each.stopped}`,
    each.code > 0 && ` (exit code ${each.code})`
  ]
}

function savedFiles (app, saved) {
  if (!saved.length) return null
  const what = 'A drop writes its messages to such a file first. "Load…" publishes them to their parked queues again.'
  return [h('h3', {}, 'Saved files'), h('p', { class: 'muted small' }, what), table('Saved files', [
    ['When', each => h('span', { title: clock(each.time_ms) }, relative(each.time_ms)), 'time'],
    ['File', each => h('a', { href: address(`saved/${each.file}`), download: each.file }, each.file), 'error'],
    ['Size', each => bytes(each.bytes), 'number'],
    ['Loaded again', each => each.loaded ? messages(each.loaded) : '–', 'number'],
    ['', each => app.session.may_drop && button('Load…', () => openLoad(app, each.file))]
  ], [...saved].sort((a, b) => b.time_ms - a.time_ms))]
}

// Returns whether an entry is a replay that ended early, or was killed, and may go on.
function hasRest (app, each) {
  if (each.action !== 'replay' || !app.session.may_replay) return false
  return Boolean(each.code || !each.ended_ms) && !isBusy(app.state, each.queue)
}

// Returns what a replay needs to go on, with the rest of its limit.
function restOf ({ queue, where, ramp, rate, stop_after: stopAfter, limit, replayed }) {
  const rest = limit ? { limit: Math.max(1, limit - (replayed || 0)) } : {}
  return { queues: [queue], where, ramp, rate, stop_after: stopAfter, ...rest }
}

function selection (each) {
  return [
    (each.where || []).map(text => h('div', {}, h('code', {}, text))),
    each.like && h('code', {}, `like ${each.like}`)
  ]
}

function goOn (app, each) {
  const onclick = () => openAction(app, 'replay', restOf(each))
  return hasRest(app, each) && h('button', { type: 'button', onclick }, 'Go on…')
}

function list (app, actions) {
  if (!actions.length) {
    return h('div', { class: 'card' }, 'No message was replayed, dropped or loaded yet. ' +
      'This list has the actions of this page, and of sub-commands with the same --history file.')
  }
  return table('Actions', [
    ['When', each => h('span', { title: clock(each.begun_ms) }, relative(each.begun_ms)), 'time'],
    ['Who', each => each.user],
    ['What', each => each.action],
    ['Queue', each => each.queue || each.file],
    ['Selection', selection, 'error'],
    ['Result', each => outcome(app, each)],
    ['', each => goOn(app, each)]
  ], actions)
}

export default async function history (app, main) {
  const place = h('div')
  main.append(h('h2', {}, 'History'), place)
  try {
    const [{ actions }, { saved }] = await Promise.all([get('history'), get('saved')])
    set(place, savedFiles(app, saved), saved.length > 0 && h('h3', {}, 'Actions'), list(app, actions))
  } catch (error) {
    set(place, problem(error))
  }
}
