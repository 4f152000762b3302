'use strict'
// Spans of attempts, whatever headers, tracers and errors do.

const assert = require('node:assert/strict')
const { afterEach, beforeEach, test } = require('node:test')

const { AsyncLocalStorageContextManager } = require('@opentelemetry/context-async-hooks')
const { context, propagation, trace } = require('@opentelemetry/api')
const { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } = require('@opentelemetry/sdk-trace-base')

const { Drop, Park, RetryAfter } = require('backhop')
const { tracing } = require('backhop/opentelemetry')

const { inside } = require('./internals')
const { PUBLISHER, TRACEPARENT, propagator } = require('./propagator')
const warnings = require('./warnings')

const { Emitter } = inside('observe/emitter')

const turn = () => new Promise(resolve => setImmediate(resolve))

let exporter
let provider
let emitter

beforeEach(() => {
  exporter = new InMemorySpanExporter()
  provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] })
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
  propagation.setGlobalPropagator(propagator)
  emitter = new Emitter('orders', tracing({ tracerProvider: provider }))
})

afterEach(() => {
  context.disable()
  propagation.disable()
})

function messageOf ({ headers = {}, id = '17', routingKey = '', attempt = 1, traceparent = '' } = {}) {
  return { id, attempt, headers, routingKey, history: { traceparent } }
}

function span () {
  const spans = exporter.getFinishedSpans()
  assert.equal(spans.length, 1)
  exporter.reset()
  return spans[0]
}

/** Returns the warnings about a listener's faults; in this turn. */
async function complaints (emitter, handle) {
  const before = warnings.length
  const outcome = await Promise.resolve().then(() => emitter.handle(messageOf(), handle)).then(
    result => ({ result }), thrown => ({ thrown })
  )
  await turn()
  return { ...outcome, codes: warnings.slice(before).map(({ code }) => code) }
}

test('of headers only strings go to a propagator, and a stranger\'s keeps no message from its handler', () => {
  const hostile = [
    { toString: 'x', valueOf: 'y' }, { toString () { throw new Error('mine') } }, null, [1], 5n, 7,
    Buffer.from(TRACEPARENT)
  ]
  for (const traceparent of hostile) {
    assert.equal(emitter.handle(messageOf({ headers: { traceparent } }), () => 'handled'), 'handled')
    assert.equal(span().parentSpanContext, undefined)
  }
  emitter.handle(messageOf({ headers: { traceparent: TRACEPARENT } }), () => {})
  assert.equal(span().parentSpanContext.spanId, PUBLISHER.spanId)
})

test('a propagator that throws costs the span, and nothing else', async () => {
  propagation.disable()
  propagation.setGlobalPropagator({ ...propagator, extract () { throw new Error('broken') } })
  const { result, codes } = await complaints(emitter, () => 'handled')
  assert.deepEqual([result, codes], ['handled', ['BACKHOP_LISTENER']])
})

const broken = () => { throw new Error('SDK is broken') }
const spanOf = methods =>
  ({ startSpan: (...args) => Object.assign(provider.getTracer('x').startSpan(...args), methods) })
for (const [what, getTracer] of Object.entries({
  'a provider that throws': broken,
  'a tracer that throws': () => ({ startSpan: broken }),
  'a span that is none': () => ({ startSpan: () => undefined }),
  'a span that cannot end': () => spanOf({ end: broken }),
  'a span that takes no exception': () => spanOf({ recordException: broken })
})) {
  test(`${what} is a warning, and the handler runs, once, with its own end`, async () => {
    const failure = new TypeError('mine')
    for (const isAsync of [false, true]) {
      const emitter = new Emitter(`${what} ${isAsync}`, tracing({ tracerProvider: { getTracer } }))
      let calls = 0
      const wrap = value => isAsync ? turn().then(value) : value()
      const succeeded = await complaints(emitter, () => wrap(() => { calls++; return 'handled' }))
      const failed = await complaints(emitter, () => wrap(() => { calls++; throw failure }))
      assert.deepEqual([calls, succeeded.result, failed.thrown === failure], [2, 'handled', true])
      assert.ok(failed.codes.length > 0 && failed.codes.every(code => code === 'BACKHOP_LISTENER'))
    }
  })
}

test('a context manager that throws as it is left costs nothing', async () => {
  const manager = new AsyncLocalStorageContextManager().enable()
  const { with: within } = manager
  for (const when of ['before', 'after']) {
    manager.with = (...args) => {
      if (when === 'before') broken()
      within.apply(manager, args)
      return broken()
    }
    context.disable()
    context.setGlobalContextManager(manager)
    let calls = 0
    const { result, codes } = await complaints(new Emitter(when, tracing({ tracerProvider: provider })), () => ++calls)
    assert.deepEqual([result, codes], [1, ['BACKHOP_LISTENER']])
  }
})

test('what was thrown goes through unchanged, however odd, and its span ends', async () => {
  class Weird { get stack () { throw new Error('no stack') } }
  const unprintable =
    new Proxy({}, { get () { throw new Error('no property') }, getPrototypeOf () { throw new Error('no class') } })
  const thenable = { get then () { throw failure } }
  const failure = new Error('mine')
  for (const thrown of [new Weird(), unprintable, undefined, null, 7, Symbol('x'), Object.create(null)]) {
    const { thrown: came, codes } = await complaints(emitter, () => { throw thrown })
    assert.ok(Object.is(came, thrown))
    assert.deepEqual(codes, [])
    assert.equal(span().status.code, 2)
  }
  assert.throws(() => emitter.handle(messageOf(), () => thenable), error => error === failure)
  assert.equal(span().attributes['error.type'], 'Error')
})

test('P4-1: a handler that returns work which has not run has failed, and so says its span', async () => {
  function * work () {}
  for (const handle of [() => work(), async () => work()]) {
    await assert.rejects(async () => emitter.handle(messageOf(), handle), { name: 'ArgumentError' })
    assert.equal(span().attributes['error.type'], 'ArgumentError')
  }
})

test('error.type is what events have, and Drop is no failure', () => {
  const typeOf = thrown => {
    assert.throws(() => emitter.handle(messageOf(), () => { throw thrown }))
    return span()
  }
  const error = new TypeError('no')
  for (const thrown of [error, new RetryAfter('1s', error), new Park(error)]) {
    const { attributes, events } = typeOf(thrown)
    assert.deepEqual([attributes['error.type'], events[0].attributes['exception.type']], ['TypeError', 'TypeError'])
  }
  const { attributes, events, status } = typeOf(new Drop('old'))
  assert.deepEqual([attributes['error.type'], events, status.code], [undefined, [], 0])
})

test('the parent is the active span, of the same trace or of a message without one; else the publisher\'s', () => {
  const tracer = provider.getTracer('app')
  const handled = (within, headers) => {
    context.with(within, () => emitter.handle(messageOf({ headers }), () => {}))
    return span()
  }
  const active = context.active()
  const startUp = tracer.startSpan('start-up')
  const atStartUp = trace.setSpan(active, startUp)
  const received = trace.setSpanContext(active, { ...PUBLISHER, traceFlags: 1, isRemote: true })
  const theirs = tracer.startSpan('receive', {}, received)
  const published = { traceparent: TRACEPARENT }
  assert.equal(handled(atStartUp, published).parentSpanContext.spanId, PUBLISHER.spanId)
  assert.equal(handled(atStartUp, {}).parentSpanContext.spanId, startUp.spanContext().spanId)
  const nowhere = { traceparent: `00-${'0'.repeat(32)}-${'0'.repeat(16)}-01` }
  assert.equal(handled(atStartUp, nowhere).parentSpanContext.spanId, startUp.spanContext().spanId)
  assert.equal(handled(trace.setSpan(active, theirs), published).parentSpanContext.spanId, theirs.spanContext().spanId)
  const invalid = trace.wrapSpanContext({ traceId: '0'.repeat(32), spanId: '0'.repeat(16), traceFlags: 0 })
  assert.equal(handled(trace.setSpan(active, invalid), published).parentSpanContext.spanId, PUBLISHER.spanId)
  assert.equal(handled(active, {}).parentSpanContext, undefined)
})

test('an attempt\'s attributes', () => {
  emitter.handle(messageOf({ id: '', attempt: 2 }), () => {})
  const bare = {
    'messaging.system': 'rabbitmq', 'messaging.operation.name': 'process', 'messaging.operation.type': 'process',
    'messaging.destination.name': 'orders', 'backhop.attempt': 2
  }
  assert.deepEqual(span().attributes, bare)
  emitter.handle(messageOf({ attempt: 2, routingKey: 'order.new' }), () => {})
  assert.deepEqual(span().attributes, {
    ...bare, 'messaging.message.id': '17', 'messaging.rabbitmq.destination.routing_key': 'order.new'
  })
})

test('a copy\'s attributes', () => {
  const message = messageOf()
  emitter.handle(message, () => {})
  span()
  const { TRACE } = inside('observe/observer')
  const told = { id: '17', attempts: 2, trace: message[TRACE], duration: 1, errorClass: 'TypeError', errorText: 'no' }
  emitter.emit('retried', () => ({ ...told, delay: 1500 }))
  const both = {
    'messaging.system': 'rabbitmq', 'messaging.operation.type': 'send', 'messaging.destination.name': 'orders',
    'messaging.message.id': '17', 'backhop.attempts': 2
  }
  assert.deepEqual(span().attributes, { ...both, 'messaging.operation.name': 'retry', 'backhop.delay': 1.5 })
  emitter.emit('parked', () => ({ ...told, reason: 'exhausted' }))
  assert.deepEqual(span().attributes, { ...both, 'messaging.operation.name': 'park', 'backhop.reason': 'exhausted' })
})

test('a message that waits for its breaker has a span of its copy, and none of a handler', () => {
  const message = messageOf({ headers: { traceparent: TRACEPARENT } })
  emitter.emit('deferred', () => ({ id: '17', ...emitter.waiting(message) }))
  const { name, parentSpanContext } = span()
  assert.deepEqual([name, parentSpanContext.spanId], ['defer orders', PUBLISHER.spanId])
  assert.equal(new Emitter('orders').waiting(messageOf()), undefined)
})
