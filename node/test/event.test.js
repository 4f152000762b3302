'use strict'
// Events, and who is told: listeners, bridges, the log.

const assert = require('node:assert/strict')
const diagnostics = require('node:diagnostics_channel')
const { test } = require('node:test')

const { MeterProvider, PeriodicExportingMetricReader, InMemoryMetricExporter, AggregationTemporality } =
  require('@opentelemetry/sdk-metrics')
const { Registry } = require('prom-client')

const { ArgumentError } = require('backhop')
const { metrics } = require('backhop/opentelemetry')
const { prometheus } = require('backhop/prom-client')

const { c, errors: { CLASSES, check, made }, inside } = require('./internals')
const { cases, compare, is, only, text } = require('./vectors')

const { Event, Teller, endOf } = inside('event')

const warnings = []
process.on('warning', warning => { if (warning.name === 'BackhopWarning') warnings.push(warning) })
const turn = () => new Promise(resolve => setImmediate(resolve))

const failure = (error, id = '17') => () => ({
  id, attempts: 2, delay: 1000, error, errorClass: error.constructor.name, errorText: String(error), duration: 1.5
})

cases('event', ({ name, expect, outcome, event, fields = {}, cause, ...rest }) => {
  only(rest, '')
  only(fields, 'text reason error connection status')
  if (outcome) {
    compare(expect, { event: is(() => endOf(outcome)) })
    return
  }
  const names = Array.from({ length: c.BH_EVENT_LAST }, (_, kind) => c.bh_event_name(kind))
  const native = made(c.bh_event_new(names.indexOf(event)))
  for (const [field, value] of Object.entries(fields)) {
    if (field === 'status') check(native.set_int(c.BH_FIELD_STATUS, CLASSES[value].status))
    else check(native.set_string(c[`BH_FIELD_${field.toUpperCase()}`], text(value)))
  }
  if (cause !== undefined) check(native.set_cause(text(cause)))
  compare(expect, {
    of_each: is(() => Boolean(c.bh_event_is_of_each(names.indexOf(event)))),
    text: is(() => String(Event.of(native).text), text)
  })
})

test('who is given twice is told once', () => {
  const events = []
  const listener = event => events.push(event.name)
  const counted = prometheus({ register: new Registry() })
  const teller = new Teller('orders', [listener, counted, listener, counted])
  teller.tell('parked', failure(new TypeError('no')))
  assert.deepEqual(events, ['parked'])
})

test('a listener is given each event with what it has, and the error itself', () => {
  const events = []
  const teller = new Teller('orders', event => events.push(event))
  const error = new TypeError('no')
  teller.tell('retried', failure(error))
  const [event] = events
  assert.deepEqual({ ...event }, {
    name: 'retried', text: 'TypeError: no', error, id: '17', queue: 'orders', connection: '', host: '', attempt: 0,
    attempts: 2, delay: 1000, count: 0, reason: '', errorClass: 'TypeError', lateness: undefined, duration: 1.5,
    recovery: undefined
  })
  assert.deepEqual([event.level, event.isWarning], ['info', false])
  assert.match(String(event), /^retried: message "17" of "orders".* again in 1 s: TypeError: no$/)
})

test('where nobody listens nothing is made of what goes its way', () => {
  const teller = new Teller('orders')
  for (const name of ['delivered', 'succeeded', 'failed', 'retried', 'dropped']) {
    teller.tell(name, () => assert.fail('it is made'))
  }
  assert.equal(teller.isHeard, false)
})

test('diagnostics_channel has the events without any wiring', () => {
  const events = []
  const listen = event => events.push(event.name)
  const teller = new Teller('orders')
  diagnostics.subscribe('backhop:event', listen)
  assert.equal(teller.isHeard, true)
  teller.tell('retried', failure(new Error('no')))
  diagnostics.unsubscribe('backhop:event', listen)
  teller.tell('retried', failure(new Error('no')))
  assert.deepEqual(events, ['retried'])
})

test('a listener that throws becomes a warning, and the others are told', async () => {
  const events = []
  const teller = new Teller('throwing', [() => { throw new Error('mine') }, event => events.push(event.name)])
  teller.tell('retried', failure(new Error('no')))
  await turn()
  assert.deepEqual(events, ['retried'])
  assert.ok(warnings.some(({ message, code }) => code === 'BACKHOP_LISTENER' && message.includes('mine')))
})

test('300 that are parked at once are no 300 warnings, and each that is has its event', async t => {
  const now = performance.now()
  t.mock.method(performance, 'now', () => now) // all of it is in one second, however long it takes
  const teller = new Teller('flood')
  for (let i = 0; i < 300; i++) teller.tell('parked', () => ({ ...failure(new Error('no'), String(i))(), reason: 'exhausted' }))
  await turn()
  const told = warnings.filter(({ message }) => message.includes('flood'))
  assert.equal(told.length, 10)
  assert.deepEqual([told[0].code, told[0].event.id, told[0].event.reason], ['BACKHOP_PARKED', '0', 'exhausted'])
})

test('what is no listener is refused', () => {
  for (const onEvent of [null, 7, 'log', {}, [undefined], [7]]) {
    assert.throws(() => new Teller('orders', onEvent), error => error instanceof ArgumentError && /onEvent is/.test(error.message))
  }
  assert.throws(() => prometheus({ register: {} }), ArgumentError)
  assert.throws(() => metrics({ provider: {} }), ArgumentError)
  assert.throws(() => prometheus({ registry: new Registry() }), ArgumentError)
})

test('labels are bounded, whatever 10,000 messages and errors are called', async () => {
  const register = new Registry()
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE)
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 2 ** 30 })
  const provider = new MeterProvider({ readers: [reader] })
  const teller = new Teller('orders', [prometheus({ register }), metrics({ provider })], { copies: () => 3 })
  for (let i = 0; i < 10_000; i++) {
    const error = Object.assign(new Error(`error ${i}`), { name: `Error${i}` })
    teller.tell('retried', () => ({ ...failure(error, `id ${i}`)(), errorClass: `Error${i}` }))
  }
  const text = await register.metrics()
  const retries = [...text.matchAll(/^backhop_retries_total\{queue="orders",error_type="(\w+)"\} (\d+)$/gm)]
  assert.equal(retries.length, 33)
  assert.equal(retries.find(([, type]) => type === '_OTHER')[2], String(10_000 - 32))
  assert.match(text, /^backhop_copies_unconfirmed 3$/m)
  assert.ok(text.split('\n').length < 300)
  await reader.forceFlush()
  const [{ scopeMetrics: [{ metrics: found }] }] = exporter.getMetrics()
  const named = Object.fromEntries(found.map(({ descriptor, dataPoints }) => [descriptor.name, dataPoints]))
  assert.equal(named['backhop.retries'].length, 33)
  assert.deepEqual(named['backhop.copies.unconfirmed'].map(({ value }) => value), [3])
  await provider.shutdown()
})
