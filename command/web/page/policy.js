// A policy: its delays, and the calls that a failing downstream gets. Needs no broker.
import { post } from './api.js'
import { button, field, h, select, set, table } from './dom.js'
import { count, span } from './format.js'
import { key, plot } from './chart.js'

const KINDS = ['exponential', 'linear', 'fixed', 'steps'].map(each => [each, each])
const JITTERS = ['spread:0.2', 'none', 'equal', 'full', 'decorrelated'].map(each => [each, each])

// Returns the fields by their names in the request: label, input, and the kinds that have the field.
function form () {
  const input = (value, more = {}) => h('input', { type: 'text', value, size: 8, ...more })
  return {
    kind: ['Kind', select(KINDS, 'exponential')],
    initial: ['First delay', input('1s'), kind => kind !== 'steps'],
    factor: ['Factor', input('2'), kind => kind === 'exponential'],
    max: ['Longest delay', input('5m'), kind => kind !== 'steps'],
    steps: ['Delays', input('10s,1m,1h'), kind => kind === 'steps'],
    jitter: ['Jitter', select(JITTERS, 'spread:0.2')],
    max_attempts: ['Most attempts', input('10'), kind => kind !== 'steps'],
    down: ['Downstream fails, from..to', input('1m..6m')]
  }
}

const delay = each => each.lowest_ms === each.highest_ms
  ? span(each.mean_ms)
  : `${span(each.lowest_ms)} to ${span(each.highest_ms)}`

function schedule (rows) {
  return table('Delays', [
    ['After failure', each => each.failure, 'number'],
    ['Delay', delay, 'number'],
    ['Since the first failure', each => span(each.total_ms), 'number']
  ], rows)
}

const KIND_OF = { 'back-off': 'one', 'at-once': 'two', breaker: 'three' }
const NAME_OF = {
  'back-off': 'With this policy',
  'at-once': 'Retried at once',
  breaker: 'With this policy and a circuit breaker'
}

function plots (rows, runs, down) {
  const line = run => ({
    kind: KIND_OF[run.name],
    points: run.over_time.map(each => [each.time_ms, each.calls_per_s])
  })
  const delays = { kind: 'one', points: rows.map(each => [each.total_ms, each.mean_ms / 1000]) }
  return [
    h('h3', {}, 'Calls that the downstream gets'),
    h('p', { class: 'muted small keys' },
      key('one', 'with this policy'), key('three', 'with a circuit breaker too'), key('two', 'retried at once'),
      key('down', 'the downstream fails')),
    plot('Calls a second, with this policy, with a circuit breaker too, and retried at once', 'calls a second',
      runs.map(line), down),
    table('Calls and parked messages', [
      ['Retries', run => NAME_OF[run.name]],
      ['Calls', run => count(run.calls), 'number'],
      ['Failed calls', run => count(run.failed_calls), 'number'],
      ['Most calls a second', run => count(Math.round(run.most_calls_per_s)), 'number'],
      ['Parked', run => `${count(run.parked)} of ${count(run.messages)}`, 'number']
    ], runs),
    h('h3', {}, 'Delay by failure'),
    plot('Delay after each failure', 'delay, s', [delays])
  ]
}

const UNITS = { ms: 1, s: 1e3, m: 6e4, h: 36e5, d: 864e5 }
const milliseconds = text => UNITS[text.replace(/[\d.]/g, '')] * parseFloat(text)

// Shows the fields of the kind that is chosen.
function choose (fields) {
  const kind = fields.kind[1].value
  for (const [, input, belongs] of Object.values(fields)) input.parentNode.hidden = Boolean(belongs) && !belongs(kind)
}

// Returns the fields that are shown and have a value.
function valuesOf (fields) {
  const shown = Object.entries(fields).filter(([, [, input]]) => !input.parentNode.hidden)
  const values = shown.map(([name, [, input]]) => [name, input.value.trim()])
  return Object.fromEntries(values.filter(([, value]) => value))
}

export default function policy (app, main) {
  const place = h('div', { 'aria-live': 'polite' })
  const fields = form()
  const compute = async () => {
    const { down, ...own } = valuesOf(fields)
    const [rows, runs] = await Promise.all([
      post('schedule', own),
      post('simulate', { ...own, down, seed: 1, breaker: true })
    ])
    const outage = down.split('..').map(milliseconds)
    set(place, ...plots(rows.results, runs.results, outage), h('h3', {}, 'Delays'), schedule(rows.results))
  }
  const run = button('Compute', compute, 'main')
  main.append(h('h2', {}, 'Policy'),
    h('p', {}, 'Computes the delays of a policy and the calls that a failing downstream gets. ',
      'It changes nothing on the broker.'),
    h('div', { class: 'grid card' }, Object.values(fields).map(([label, input]) => field(label, input))),
    run, place)
  choose(fields)
  fields.kind[1].addEventListener('change', () => choose(fields))
  run.firstChild.click() // off while it runs: an older answer cannot replace a newer one
}
