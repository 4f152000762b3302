// Actions that run, or ended since the program started.
import { address, post } from './api.js'
import { bdi, button, h, problem, redraw } from './dom.js'
import { clock, count, dayTime, messages, relative, seconds } from './format.js'
import { isRunning } from './state.js'
import { openAction, openLoad } from './action.js'

const WORDS = {
  running: 'is running',
  stopping: 'is stopping',
  waiting: 'goes on in a moment',
  done: 'is done',
  cancelled: 'was stopped by you',
  stopped: 'has stopped',
  interrupted: 'was interrupted'
}
const KINDS = { done: 'ok', stopped: 'problem', interrupted: 'problem' }
const NAMES = { replay: 'Replay', drop: 'Drop', load: 'Load' }

const before = job => job.done_before > 0 && h('p', { class: 'muted small' },
  `This action went on after a restart of backhop web. Done before: ${messages(job.done_before)}.`)

function loadProgress (it) {
  return [
    h('progress', { value: it.loaded, max: it.to_load, 'aria-label': 'Loaded' }),
    h('p', { class: 'number' }, `${count(it.loaded)} of ${messages(it.to_load)} loaded.`)
  ]
}

// Other messages share the wait queues, so this number is an estimate.
const waiting = it => it.waiting_again > 0 && `, about ${count(it.waiting_again)} waiting for a retry`

function replayProgress (it, request) {
  const rate = it.rate_limit ? `${it.rate_limit} a second now` : 'without a rate limit'
  const remaining = it.remaining_ms == null ? '' : `, ${seconds(it.remaining_ms)} remaining`
  return [
    h('progress', { value: it.replayed, max: it.to_replay, 'aria-label': 'Replayed' }),
    h('p', { class: 'number' }, `${count(it.replayed)} of ${messages(it.to_replay)}, ${rate}${remaining}`),
    request.ramp && h('p', { class: 'muted small' },
      `Ramp: ${request.ramp.replaceAll(',', ', ')} messages a second, ${request.ramp_step} each.`),
    h('p', { class: it.parked_again ? 'danger' : 'muted' }, `${messages(it.parked_again)} parked again`, waiting(it),
      request.stop_after > 0 ? `; it stops at ${count(request.stop_after)} failures.` : '.')
  ]
}

// Returns how far a running action is.
function progress (job) {
  const it = job.progress
  if (!it) return h('p', { class: 'muted' }, 'Reading the queue…')
  if (it.looked_at != null) {
    const looked = `${count(it.looked_at)} of ${messages(it.messages)}`
    return h('p', { class: 'muted number' }, `Reading the queue: ${looked}…`)
  }
  return it.loaded != null ? loadProgress(it) : [before(job), replayProgress(it, job.request)]
}

const LATER = ' A message that fails now waits for its retries first. Read the parked messages again later.'

function replayResult (job, it) {
  const again = [`${count(it.parked_again)} parked again`, waiting(it), '.']
  return h('p', {}, `${count(it.replayed)} of ${messages(it.to_replay)} replayed to `, bdi(it.to), '; ', again,
    it.stopped && ` Stopped: ${it.stopped}.`,
    it.in_flight > 0 && ` ${messages(it.in_flight)} in flight may be delivered twice.`,
    job.state !== 'done' && ' The rest is parked as before.',
    job.state === 'done' && it.replayed > it.parked_again && LATER)
}

function dropResult (job, it) {
  const link = h('a', { href: address(`saved/${job.file}`), download: job.file }, 'Download them')
  return h('p', {}, `${messages(it.messages)} saved and dropped. `, link)
}

function result (job) {
  const it = job.result
  if (!it) return null
  if (job.action === 'replay') return replayResult(job, it)
  return job.action === 'drop' ? dropResult(job, it) : h('p', {}, `${messages(it.loaded)} loaded.`)
}

// Opens the dialog with the selection again, and the rest of a limit.
function goOn (app, job) {
  if (job.action === 'load') return openLoad(app, job.file)
  const { expect, queue, ...request } = job.request
  const done = job.result?.replayed ?? job.progress?.replayed ?? 0
  if (request.limit) request.limit = Math.max(1, request.limit - done)
  openAction(app, job.action, { ...request, queues: [queue] })
}

// Returns what to do before the rest is replayed, if messages were parked again.
const advice = job => job.result?.parked_again > 0 && job.state !== 'done' && h('p', { class: 'small' },
  'First look why: the messages that were parked again are a group of the ', h('a', { href: '#/' }, 'first screen'),
  '. Go on after the cause is mended.')

function canGoOn (app, job) {
  if (isRunning(job) || job.state === 'done') return false
  return job.action === 'replay' ? app.session.may_replay : app.session.may_drop
}

function buttons (app, job) {
  const stop = () => post('stop', { job: job.job })
  if (isRunning(job)) return button(job.state === 'stopping' ? 'Stopping…' : 'Stop', stop, 'danger')
  const kind = job.result?.parked_again ? '' : 'main'
  return canGoOn(app, job) && button('Go on with the rest…', () => goOn(app, job), kind)
}

// Returns a button that stops all actions; false: fewer than two run.
function stopAll ({ jobs }) {
  const running = jobs.filter(isRunning)
  const stop = () => Promise.all(running.map(({ job }) => post('stop', { job })))
  return running.length > 1 && button(`Stop all ${running.length} actions`, stop, 'danger')
}

// Shows an action. If the program does not answer, the card is grey and has no buttons.
function card (app, job) {
  const { isLost } = app.state
  const selection = (job.request.where || []).map(each => [h('code', {}, each), ' '])
  return h('section', { class: `card ${isLost ? 'old' : KINDS[job.state] || ''}` },
    h('h3', {}, `${NAMES[job.action]} ${job.job} from `, bdi(job.queue || job.file), ` ${WORDS[job.state]}`),
    h('p', { class: 'muted small' },
      'By ', bdi(job.user), `, begun ${relative(job.begun_ms)} (${clock(job.begun_ms)}). `, selection),
    isRunning(job) ? progress(job) : before(job),
    result(job),
    job.problem && h('p', { class: 'small' }, job.problem),
    advice(job),
    !isLost && buttons(app, job))
}

function noAction () {
  return h('div', { class: 'card' }, 'No action has run since backhop web started. ' +
    'To replay or drop messages, open a group on the first screen. The screen History has earlier actions.')
}

// Says that the cards are old.
const lost = state => problem(new Error(
  `${state.time_ms ? `As of ${dayTime(state.time_ms)}; no answer` : 'No answer'}. ${state.problem}\n` +
  'An action that runs may go on, and the screen History has its end.'))

export default function jobs (app, main) {
  const place = h('div')
  let drawn = ''
  main.append(h('h2', {}, 'Actions'), place)
  app.onState(state => {
    const key = JSON.stringify([state.jobs, state.isLost && state.problem, Boolean(state.time_ms)])
    if (key === drawn) return
    drawn = key
    redraw(place, state.isLost ? lost(state) : stopAll(state), state.jobs.map(job => card(app, job)),
      !state.isLost && !state.jobs.length && (state.time_ms ? noAction() : 'Connecting…'))
  })
}
