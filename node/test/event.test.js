'use strict'
// Events, and their receivers: listeners, bridges, the log.

const assert = require('node:assert/strict')
const diagnostics = require('node:diagnostics_channel')
const { test } = require('node:test')

const { MeterProvider, PeriodicExportingMetricReader, InMemoryMetricExporter, AggregationTemporality } =
  require('@opentelemetry/sdk-metrics')
const { Counter, Registry } = require('prom-client')

const { ArgumentError } = require('backhop')
const { metrics } = require('backhop/opentelemetry')
const { prometheus } = require('backhop/prom-client')

const { c, errors: { CLASSES, check, made }, inside } = require('./internals')
const { cases, compare, is, only, text } = require('./vectors')

const { Emitter } = inside('observe/emitter')
const { Event, endOf } = inside('observe/event')

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
    compare(expect, { event: is(() => endOf({ outcome })) })
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
  const emitter = new Emitter('orders', [listener, counted, listener, counted])
  emitter.emit('parked', failure(new TypeError('no')))
  assert.deepEqual(events, ['parked'])
})

test('a listener is given each event with what it has, and the error itself', () => {
  const events = []
  const emitter = new Emitter('orders', event => events.push(event))
  const error = new TypeError('no')
  emitter.emit('retried', failure(error))
  const [event] = events
  assert.deepEqual({ ...event }, {
    name: 'retried', text: 'TypeError: no', error, id: '17', queue: 'orders', connection: '', host: '', attempt: 0,
    attempts: 2, deferrals: 0, delay: 1000, count: 0, reason: '', breaker: '', errorClass: 'TypeError',
    errorText: 'TypeError: no',
    lateness: undefined, duration: 1.5, recovery: undefined
  })
  assert.deepEqual([event.level, event.isWarning], ['info', false])
  assert.match(String(event), /^retried: message "17" of "orders".* again in 1 s: TypeError: no$/)
})

test('an event as JSON has what applies to it, and its error as text', () => {
  const events = []
  const emitter = new Emitter('orders', event => events.push(event))
  emitter.emit('retried', failure(new TypeError('no'), Buffer.from('17')))
  const odd = { get message () { throw new Error('mine') } }
  emitter.emit('retried', () => ({ id: '18', attempts: 1, delay: 0, error: odd, errorText: 'odd' }))
  assert.deepEqual(events.map(event => JSON.parse(JSON.stringify(event))), [{
    level: 'info', name: 'retried', text: 'TypeError: no', error: 'TypeError: no', errorClass: 'TypeError',
    errorText: 'TypeError: no', id: '17', queue: 'orders', attempts: 2, delay: 1000, duration: 1.5
  }, {
    level: 'info', name: 'retried', text: 'odd', error: 'odd', errorText: 'odd', id: '18', queue: 'orders', attempts: 1
  }])
})

test('no listeners in an array are none', () => {
  assert.equal(new Emitter('orders', []).isObserved, false)
})

test('where nobody listens nothing is made of what goes its way', () => {
  const emitter = new Emitter('orders')
  for (const name of ['delivered', 'succeeded', 'failed', 'retried', 'dropped']) {
    emitter.emit(name, () => assert.fail('it is made'))
  }
  assert.equal(emitter.isObserved, false)
})

test('diagnostics_channel has the events without any wiring', () => {
  const events = []
  const listen = event => events.push(event.name)
  const emitter = new Emitter('orders')
  diagnostics.subscribe('backhop:event', listen)
  assert.equal(emitter.isObserved, true)
  emitter.emit('retried', failure(new Error('no')))
  diagnostics.unsubscribe('backhop:event', listen)
  emitter.emit('retried', failure(new Error('no')))
  assert.deepEqual(events, ['retried'])
})

test('a listener that throws becomes a warning, and the others are told', async () => {
  const events = []
  const emitter = new Emitter('throwing', [() => { throw new Error('mine') }, event => events.push(event.name)])
  emitter.emit('retried', failure(new Error('no')))
  await turn()
  assert.deepEqual(events, ['retried'])
  assert.ok(warnings.some(({ message, code }) => code === 'BACKHOP_LISTENER' && message.includes('mine')))
})

test('P4-10: a listener may throw anything, and a text of megabytes is a warning of some kilobytes', async () => {
  const heard = []
  const long = 'x'.repeat(10_000_000)
  const thrown = [undefined, null, long, new Error(long)]
  const emitter = new Emitter('anything', [...thrown.map(each => () => { throw each }), ({ name }) => heard.push(name)])
  emitter.emit('retried', failure(new Error('no')))
  new Emitter('anything').emit('parked', () => ({ ...failure(new Error(long))(), reason: 'exhausted' }))
  await turn()
  assert.deepEqual(heard, ['retried'])
  const told = warnings.filter(({ message }) => message.includes('anything'))
  assert.deepEqual(told.map(({ code }) => code), [...thrown.map(() => 'BACKHOP_LISTENER'), 'BACKHOP_PARKED'])
  for (const { message } of told) assert.ok(message.length < 5000, String(message.length))
})

test('a listener whose promise rejects becomes a warning, and ends nothing', async () => {
  const rejecting = async () => { throw new Error('later') }
  const thenable = () => ({ get then () { throw new Error('no promise') } })
  const emitter = new Emitter('rejecting', [rejecting, thenable])
  emitter.emit('retried', failure(new Error('no')))
  new Emitter('another', () => {}).emit('dropped', () => ({})) // whose event is another one's by then
  await turn()
  const told = warnings.filter(({ code, message }) => code === 'BACKHOP_LISTENER' && message.includes('rejecting'))
  assert.deepEqual(told.map(({ message }) => /no promise|later/.exec(message)[0]), ['no promise', 'later'])
  for (const { message } of told) assert.match(message, /retried/)
})

test('a listener that is broken is no warning a message', async t => {
  const now = performance.now()
  t.mock.method(performance, 'now', () => now)
  const broken = [() => { throw new Error('sync') }, async () => { throw new Error('async') }]
  const emitters = broken.map((listen, i) => new Emitter(`broken ${i}`, listen))
  for (let i = 0; i < 300; i++) {
    for (const emitter of emitters) emitter.emit('retried', failure(new Error('no'), String(i)))
  }
  await turn()
  const told = warnings.filter(({ code, message }) => code === 'BACKHOP_LISTENER' && message.includes('broken'))
  assert.equal(told.length, 20)
})

test('300 that are parked at once are no 300 warnings, and each that is has its event', async t => {
  const now = performance.now()
  t.mock.method(performance, 'now', () => now) // all of it is in one second, however long it takes
  const emitter = new Emitter('flood')
  for (let i = 0; i < 300; i++) {
    emitter.emit('parked', () => ({ ...failure(new Error('no'), String(i))(), reason: 'exhausted' }))
  }
  await turn()
  const told = warnings.filter(({ message }) => message.includes('flood'))
  assert.equal(told.length, 10)
  assert.deepEqual([told[0].code, told[0].event.id, told[0].event.reason], ['BACKHOP_PARKED', '0', 'exhausted'])
})

test('what is no listener is refused', () => {
  for (const onEvent of [null, 7, 'log', {}, [undefined], [7]]) {
    assert.throws(() => new Emitter('orders', onEvent),
      error => error instanceof ArgumentError && /onEvent is/.test(error.message))
  }
  assert.throws(() => prometheus({ register: {} }), ArgumentError)
  assert.throws(() => metrics({ meterProvider: {} }), ArgumentError)
  assert.throws(() => prometheus({ registry: new Registry() }), ArgumentError)
})

test('a metric that the registry has already leaves nothing half registered, and the error says what to do', () => {
  const register = new Registry()
  const own = new Counter({ name: 'backhop_parked_total', help: 'mine', registers: [register] })
  assert.throws(() => prometheus({ register }), error => {
    return error instanceof ArgumentError &&
      /backhop_parked_total.*give one prometheus\(\) to all.*another registry/.test(error.message)
  })
  assert.deepEqual(register.getMetricsAsArray(), [own])
  register.clear()
  prometheus({ register })
  assert.throws(() => prometheus({ register }), ArgumentError)
})

test('more classes of errors than are told apart are refused by name and limit', () => {
  const errorTypes = Array.from({ length: 40 }, (_, i) => `Error${i}`)
  const says = error => error instanceof ArgumentError && /errorTypes.*40.*at most 32/.test(error.message)
  const register = new Registry()
  assert.throws(() => prometheus({ register, errorTypes }), says)
  assert.throws(() => metrics({ errorTypes }), says)
  assert.equal(register.getMetricsAsArray().length, 0)
  prometheus({ register, errorTypes: [...errorTypes.slice(0, 32), ...errorTypes.slice(0, 32)] })
})

test('metrics of one provider tell the copies of all that they are given to as one sum', async () => {
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE)
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 2 ** 30 })
  const provider = new MeterProvider({ readers: [reader] })
  const register = new Registry()
  const one = metrics({ meterProvider: provider })
  const emitters = [
    new Emitter('a', [one, prometheus({ register })], { copies: () => 5 }),
    new Emitter('b', one, { copies: () => 1 }),
    new Emitter('c', metrics({ meterProvider: provider }), { copies: () => 0 }),
    new Emitter('d', metrics({ meterProvider: provider }), { copies: () => 2, countFor: () => () => {} })
  ]
  await reader.forceFlush()
  const [{ scopeMetrics: [{ metrics: found }] }] = exporter.getMetrics()
  const gauges = found.filter(({ descriptor }) => descriptor.name === 'backhop.copies.unconfirmed')
  assert.deepEqual(gauges.map(({ dataPoints }) => dataPoints.map(({ value }) => value)), [[8]])
  assert.match(await register.metrics(), /^backhop_copies_unconfirmed 5$/m)
  assert.equal(emitters.length, 4)
  await provider.shutdown()
})

test('T3: metrics of one provider have the ready consumers of each queue', async () => {
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE)
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 2 ** 30 })
  const provider = new MeterProvider({ readers: [reader] })
  const register = new Registry()
  const given = [prometheus({ register }), metrics({ meterProvider: provider })]
  const sources = [['a', ['ready', 'paused']], ['a', ['ready', 'ready']], ['b', ['reconnecting']], ['c', []]]
  const emitters = sources.map(([queue, states]) => {
    return new Emitter(queue, given, { copies: () => 0, consumers: () => ({ queue, states }) })
  })
  await reader.forceFlush()
  const [{ scopeMetrics: [{ metrics: found }] }] = exporter.getMetrics()
  const { dataPoints } = found.find(({ descriptor }) => descriptor.name === 'backhop.consumers.ready')
  assert.deepEqual(dataPoints.map(({ value, attributes }) => [attributes['messaging.destination.name'], value]),
    [['a', 3], ['b', 0]])
  const text = await register.metrics()
  assert.deepEqual(text.match(/^backhop_consumers_ready\{.*$/gm), [
    'backhop_consumers_ready{queue="a"} 3', 'backhop_consumers_ready{queue="b"} 0'
  ])
  assert.equal(emitters.length, 4)
  await provider.shutdown()
})

test('the state of a breaker is a gauge of each queue and breaker', async () => {
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE)
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 2 ** 30 })
  const provider = new MeterProvider({ readers: [reader] })
  const register = new Registry()
  const events = []
  const receivers = [prometheus({ register }), metrics({ meterProvider: provider })]
  const emitter = new Emitter('orders', [...receivers, event => events.push(event)])
  const { BH_EVENT_BREAKER_OPENED: OPENED, BH_EVENT_BREAKER_CLOSED: CLOSED } = c
  for (const [kind, name] of [[OPENED, 'api'], [OPENED, 'db'], [CLOSED, 'api']]) {
    emitter.emitDescribed(kind, native => native.set_string(c.BH_FIELD_BREAKER, name), [])
  }
  await reader.forceFlush()
  const [{ scopeMetrics: [{ metrics: found }] }] = exporter.getMetrics()
  const [{ dataPoints }] = found.filter(({ descriptor }) => descriptor.name === 'backhop.breaker.state')
  assert.deepEqual(dataPoints.map(({ value, attributes }) => [attributes['backhop.breaker'], value]),
    [['api', 0], ['db', 2]])
  const text = await register.metrics()
  assert.match(text, /^backhop_breaker_state\{queue="orders",breaker="api"\} 0$/m)
  assert.match(text, /^backhop_breaker_state\{queue="orders",breaker="db"\} 2$/m)
  assert.deepEqual(events.map(({ name, breaker }) => [name, breaker]), [
    ['breaker_opened', 'api'], ['breaker_opened', 'db'], ['breaker_closed', 'api']
  ])
  await provider.shutdown()
})

test('labels are bounded, whatever 10,000 messages and errors are called', async () => {
  const register = new Registry()
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE)
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 2 ** 30 })
  const provider = new MeterProvider({ readers: [reader] })
  const receivers = [prometheus({ register }), metrics({ meterProvider: provider })]
  const emitter = new Emitter('orders', receivers, { copies: () => 3 })
  for (let i = 0; i < 10_000; i++) {
    const error = Object.assign(new Error(`error ${i}`), { name: `Error${i}` })
    emitter.emit('retried', () => ({ ...failure(error, `id ${i}`)(), errorClass: `Error${i}` }))
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

test('NT17: the event of a cancelled consumer names the consumer timeout', () => {
  const { status } = CLASSES.BH_ERR_CANCELLED
  const native = made(c.bh_event_new(c.BH_EVENT_CANCELLED))
  check(native.set_int(c.BH_FIELD_STATUS, status))
  assert.match(String(native.text()), /a message was held longer than the consumer timeout; it consumes again$/)
})
