// The playground of the site. The core, as WebAssembly, computes; this reads the form and draws.
/* global WASM */ // the core, in base64: docs/_tools/playground adds it
import { field, h, select, set, svg, table } from './dom.js'
import { count } from './format.js'
import { key, plot } from './chart.js'

const words = (...list) => list.map(each => [each, each])
const KINDS = words('exponential', 'linear', 'fixed', 'steps')
const JITTERS = words('spread:0.2', 'none', 'equal', 'full', 'decorrelated')
const STRATEGIES = words('ladder', 'message-ttl', 'reject', 'delayed-exchange', 'native')
const SERIES = words('R5', 'R10', 'R20', 'R40')
const text = (placeholder = '') => h('input', { type: 'text', placeholder, autocomplete: 'off', spellcheck: 'false' })

// The fields by their names in the request: input, hint, and the kinds that have the field. Empty: the core's default.
const GROUPS = {
  Policy: {
    kind: [select(KINDS, 'exponential'), 'formula of the delays'],
    initial: [text('1s'), 'delay after the first failure', kind => kind !== 'steps'],
    factor: [text('2'), 'between two delays', kind => kind === 'exponential'],
    steps: [text('10s, 1m, 1h'), 'the delays, with commas', kind => kind === 'steps'],
    max: [text('5m'), 'no delay is longer', kind => kind !== 'steps'],
    jitter: [select(JITTERS, 'spread:0.2'), 'random part of each delay'],
    'max-attempts': [text('10'), 'then it is parked; 0: no limit', kind => kind !== 'steps'],
    'max-age': [text('no limit'), 'since the first failure']
  },
  'Wait queues': {
    strategy: [select(STRATEGIES, 'ladder'), 'where messages wait'],
    series: [select(SERIES, 'R10'), 'rungs in a decade']
  },
  Load: {
    rate: [text('20'), 'new messages a second'],
    capacity: [text('500'), 'calls a second that the API takes'],
    down: [text('1m..6m'), 'the API fails from..to']
  }
}
const FIELDS = Object.assign({}, ...Object.values(GROUPS))

// The part of an address that has fields, for example to send it to a colleague.
const ADDRESS = '#policy?'
const DEFAULTS = Object.fromEntries(Object.entries(FIELDS).map(([name, [input]]) => [name, input.value]))

const RUNS = {
  'back-off': ['one', 'With this policy'],
  breaker: ['three', 'With this policy and a circuit breaker'],
  'at-once': ['two', 'Retried at once']
}

// --- The core --------------------------------------------------------------------------------------------------------

async function load () {
  const bytes = Uint8Array.from(atob(WASM), each => each.charCodeAt(0))
  const none = () => 0
  const imports = new Proxy({}, { get: () => new Proxy({}, { get: () => none }) }) // it makes no system calls
  const { instance } = await WebAssembly.instantiate(bytes, imports)
  instance.exports._initialize()
  return instance.exports
}

function ask (core, fields) {
  const lines = new TextEncoder().encode(fields.map(([name, value]) => `${name}=${value}\n`).join('') + '\0')
  const room = core.playground_room(lines.length)
  new Uint8Array(core.memory.buffer, room, lines.length).set(lines)
  const answer = core.playground_answer(room)
  const all = new Uint8Array(core.memory.buffer, answer)
  return JSON.parse(new TextDecoder().decode(all.subarray(0, all.indexOf(0))))
}

// --- Drawings --------------------------------------------------------------------------------------------------------

const WIDE = 640
const MARGIN = 84
const ROW = 26
const MOST_ROWS = 20

// Each row has the delays after one failure: a line from the shortest to the longest, and a circle for each rung. Its
// area is the share of the messages.
function ladder (delays) {
  const rows = delays.slice(0, MOST_ROWS)
  const from = Math.min(...rows.map(each => each.lowest_ms))
  const to = Math.max(from + 1, ...rows.map(each => each.highest_ms))
  const x = ms => MARGIN + (WIDE - MARGIN - 24) * Math.log(ms / from) / Math.log(to / from)
  const y = at => 44 + ROW * at
  const ends = [rows.find(each => each.lowest_ms === from).lowest, rows.find(each => each.highest_ms === to)?.highest]
  const circle = at => rung => svg('circle', {
    class: 'rung', cx: x(rung.delay_ms).toFixed(1), cy: y(at), r: (1 + 9 * Math.sqrt(rung.share)).toFixed(1)
  }, svg('title', {}, `${rung.delay}: ${rung.percent}`))
  const row = (each, at) => [
    svg('text', { x: 8, y: y(at) + 4 }, each.failure),
    svg('line', { class: 'range', x1: x(each.lowest_ms), x2: x(each.highest_ms) + 0.1, y1: y(at), y2: y(at) }),
    each.rungs.map(circle(at)),
    svg('line', { class: 'mean', x1: x(each.mean_ms), x2: x(each.mean_ms), y1: y(at) - 9, y2: y(at) + 9 })
  ]
  const title = `Delays after ${rows.length} failures, from ${ends[0]} to ${ends[1] ?? ends[0]}, and their rungs`
  return svg('svg', { class: 'plot', viewBox: `0 0 ${WIDE} ${y(rows.length)}`, role: 'img', 'aria-label': title },
    svg('title', {}, title),
    svg('text', { x: 0, y: 16 }, 'failure'),
    svg('text', { x: MARGIN, y: 16 }, ends[0]),
    svg('text', { x: WIDE - 4, y: 16, 'text-anchor': 'end' }, ends[1]),
    svg('line', { class: 'axis', x1: MARGIN, x2: WIDE - 8, y1: 26, y2: 26 }),
    rows.map(row))
}

const range = each => each.lowest_ms === each.highest_ms ? each.mean : `${each.lowest} to ${each.highest}`
const shares = each => each.rungs.map(rung => `${rung.delay}: ${rung.percent}`.replaceAll(' ', '\u00a0')).join(', ')

function delayTable (delays) {
  const columns = [
    ['After failure', each => each.failure, 'number'],
    ['Delay', range, 'number'],
    ['Mean', each => each.mean, 'number'],
    ['Since the first failure', each => each.total, 'number'],
    ['Rungs', shares]
  ]
  return table('Delays', delays.some(each => each.rungs.length) ? columns : columns.slice(0, -1), delays)
}

function loadPart ({ runs, down }) {
  const line = run => ({ kind: RUNS[run.name][0], points: run.over_time })
  const keys = [...runs].sort((a, b) => Object.keys(RUNS).indexOf(a.name) - Object.keys(RUNS).indexOf(b.name))
  return [
    h('h2', {}, 'Load of the API'),
    h('p', { class: 'keys' }, keys.map(run => key(...RUNS[run.name])), key('down', 'The API fails')),
    plot('Calls a second: with this policy, with a circuit breaker too, and retried at once', 'calls a second',
      runs.map(line), down),
    table('Calls and parked messages', [
      ['Retries', run => RUNS[run.name][1]],
      ['Calls', run => count(run.calls), 'number'],
      ['Failed calls', run => count(run.failed_calls), 'number'],
      ['Most calls a second', run => count(Math.round(run.most_calls_per_s)), 'number'],
      ['Parked', run => `${count(run.parked)} of ${count(run.messages)}`, 'number']
    ], keys)
  ]
}

function delayPart ({ delays, failures, end, queues }) {
  return [
    h('h2', {}, 'Delays and rungs'),
    h('p', { class: 'summary' }, end, ' ', queues),
    delays.length > 0 && ladder(delays),
    delays.length > 0 && delayTable(delays),
    failures > delays.length && h('p', {}, `The first ${delays.length} of ${count(failures)} failures are shown.`)
  ]
}

// --- The form --------------------------------------------------------------------------------------------------------

// Hides the fields that the kind does not have. Returns the values of the others.
function read () {
  const kind = FIELDS.kind[0].value
  for (const [input, , belongs] of Object.values(FIELDS)) input.parentNode.hidden = Boolean(belongs) && !belongs(kind)
  const shown = Object.entries(FIELDS).filter(([, [input]]) => !input.parentNode.hidden)
  return shown.map(([name, [input]]) => [name, input.value.trim()]).filter(([, value]) => value)
}

function readAddress () {
  if (!location.hash.startsWith(ADDRESS)) return
  for (const [name, value] of new URLSearchParams(location.hash.slice(ADDRESS.length))) {
    if (Object.hasOwn(FIELDS, name)) FIELDS[name][0].value = value
  }
}

// The address of a page with the default policy stays as it is.
function writeAddress (fields) {
  const own = fields.filter(([name, value]) => value !== DEFAULTS[name])
  if (own.length) window.history.replaceState(null, '', ADDRESS + new URLSearchParams(own))
  else if (location.hash.startsWith(ADDRESS)) window.history.replaceState(null, '', location.pathname + location.search)
}

function mark (wrong) {
  for (const [name, [input]] of Object.entries(FIELDS)) {
    if (name === wrong) input.setAttribute('aria-invalid', 'true')
    else input.removeAttribute('aria-invalid')
  }
}

function begin (place, core) {
  const problem = h('p', { class: 'problem', role: 'alert', hidden: true })
  const results = h('div', { class: 'results' })
  let timer
  const compute = () => {
    const fields = read()
    const answer = ask(core, fields)
    writeAddress(fields)
    mark(answer.field)
    problem.hidden = !answer.error
    results.classList.toggle('old', Boolean(answer.error)) // of the last policy that was right
    set(problem, answer.error || '')
    if (!answer.error) set(results, delayPart(answer), loadPart(answer))
  }
  const soon = () => { // a simulation takes some tenths of a second
    clearTimeout(timer)
    timer = setTimeout(compute, 250)
  }
  const one = ([name, [input, hint]]) => {
    input.id = `playground-${name}`
    input.name = name
    return field(name, input, hint)
  }
  const group = ([name, fields]) => h('fieldset', {}, h('legend', {}, name), Object.entries(fields).map(one))
  const form = h('form', { onsubmit: event => event.preventDefault(), oninput: soon },
    Object.entries(GROUPS).map(group))
  set(place, form, problem, results)
  readAddress()
  compute()
}

const excuse = reason => h('p', { class: 'problem', role: 'alert' }, reason,
  ' The commands backhop schedule and backhop simulate print the same.')

const place = document.getElementById('policy-playground')
if (typeof WebAssembly === 'undefined') {
  set(place, excuse('This browser has no WebAssembly, so this page cannot compute.'))
} else {
  load().then(core => begin(place, core)).catch(error => {
    set(place, excuse(`The playground cannot start: ${error.message}.`))
  })
}
