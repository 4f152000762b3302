'use strict'
// What is seen of a message that fails, comes back and is parked: its events, metrics and spans, over each client.

const assert = require('node:assert/strict')
const { once } = require('node:events')
const { afterEach, beforeEach } = require('node:test')

const { AsyncLocalStorageContextManager } = require('@opentelemetry/context-async-hooks')
const { context, propagation, trace } = require('@opentelemetry/api')
const { AmqplibInstrumentation } = require('@opentelemetry/instrumentation-amqplib')
const { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } = require('@opentelemetry/sdk-trace-base')
const { Registry } = require('prom-client')

const instrumentation = new AmqplibInstrumentation() // before amqplib is loaded, whose functions it patches
instrumentation.disable()

const { Worker, buildInfo } = require('backhop')
const { tracing } = require('backhop/opentelemetry')
const { prometheus } = require('backhop/prom-client')

const { Broker, NEEDS_BROKER, QUICK, URL, describe, it, until } = require('./broker')
const { CLIENTS } = require('./clients')

require('../warnings')

const PUBLISHER = { traceId: '0af7651916cd43dd8448eb211c80319c', spanId: 'b7ad6b7169203331' }
const TRACEPARENT = `00-${PUBLISHER.traceId}-${PUBLISHER.spanId}-01`

/** W3C's header, as an SDK's propagator reads and writes it. */
const propagator = {
  inject (of, carrier, setter) {
    const { traceId, spanId } = trace.getSpanContext(of) ?? {}
    if (traceId) setter.set(carrier, 'traceparent', `00-${traceId}-${spanId}-01`)
  },
  extract (of, carrier, getter) {
    const [, traceId, spanId] = String(getter.get(carrier, 'traceparent') ?? '').split('-')
    return traceId ? trace.setSpanContext(of, { traceId, spanId, traceFlags: 1, isRemote: true }) : of
  },
  fields: () => ['traceparent']
}

class Working {
  constructor (queue, options) {
    this.worker = new Worker(URL, { queue, ...options })
  }

  async begin (handle) {
    const connected = once(this.worker, 'connected')
    this.running = this.worker.run(handle)
    await connected
  }

  async stop () {
    await this.worker.stop()
    await this.running
  }
}

const connect = {
  Worker: async (queue, options) => new Working(queue, options),
  ...Object.fromEntries(['amqplib, promises', 'node-amqp'].map(client => [client, async (queue, options) => {
    const consumer = await CLIENTS[client].connect(URL, queue, options)
    await consumer.retrier.declare()
    return consumer
  }]))
}

describe('what is seen of a message', NEEDS_BROKER, () => {
  let broker
  let consumer
  let exporter
  let provider
  let register
  let events

  beforeEach(async () => {
    broker = await Broker.connect()
    exporter = new InMemorySpanExporter()
    provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] })
    context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
    propagation.setGlobalPropagator(propagator)
    register = new Registry()
    events = []
  })

  afterEach(async () => {
    instrumentation.disable()
    context.disable()
    propagation.disable()
    await consumer.stop()
    await broker.close()
  })

  async function failThreeTimes (client, options) {
    const queue = await broker.queue()
    const onEvent = [event => events.push(event), prometheus({ register }), tracing({ provider, ...options })]
    consumer = await connect[client](queue, { policy: QUICK, namespace: broker.namespace, onEvent })
    const active = []
    await consumer.begin(async () => {
      await new Promise(setImmediate)
      active.push(trace.getActiveSpan()?.spanContext().spanId)
      throw new TypeError(`no ${active.length}`)
    })
    await broker.publish('body', queue, { messageId: '17', headers: { traceparent: TRACEPARENT } })
    await until(() => events.some(({ name }) => name === 'parked'), 'it is parked')
    const spans = exporter.getFinishedSpans().filter(({ instrumentationScope: { name } }) => name === 'backhop')
    return { queue, active, spans, named: name => spans.filter(span => span.name === `${name} ${queue}`) }
  }

  for (const client of Object.keys(connect)) {
    const needs = client === 'Worker' && !buildInfo().worker ? { skip: 'without librabbitmq' } : {}
    it(`over ${client}: it fails, is late, and is parked`, needs, async () => {
      const { queue, active, named } = await failThreeTimes(client)
      const isOfIt = ({ id, name }) => id === '17' && name !== 'connected'
      assert.deepEqual(events.filter(isOfIt).map(({ name, attempt, attempts, delay, reason }) => {
        return [name, attempt || attempts, name === 'retried' ? delay : reason]
      }), [
        ['delivered', 1, ''], ['failed', 1, ''], ['retried', 1, 100],
        ['delivered', 2, ''], ['failed', 2, ''], ['retried', 2, 200],
        ['delivered', 3, ''], ['failed', 3, ''], ['parked', 3, 'exhausted']
      ])
      assert.ok(events.every(event => event.queue === queue))
      const failed = events.filter(({ name }) => name === 'failed')
      assert.ok(failed.every(({ error, errorClass, duration }) => {
        return error instanceof TypeError && errorClass === 'TypeError' && duration > 0
      }))
      const copied = events.filter(({ name }) => name === 'retried' || name === 'parked')
      assert.deepEqual(copied.map(({ error }) => error.message), ['no 1', 'no 2', 'no 3'])
      const text = await register.metrics()
      const valueOf = (name, labels) => {
        const line = text.split('\n').find(each => each.startsWith(`${name}{queue="${queue}"${labels}} `))
        return Number(line?.split(' ').at(-1))
      }
      assert.equal(valueOf('messaging_process_duration_seconds_count', ',error_type="TypeError"'), 3)
      assert.equal(valueOf('backhop_parked_total', ',reason="exhausted"'), 1)
      assert.equal(valueOf('backhop_retry_lateness_seconds_count', ''), 2)
      assert.equal(valueOf('backhop_retry_delay_seconds_sum', ''), 0.3)
      const attempts = named('process')
      assert.deepEqual(attempts.map(({ attributes }) => attributes['backhop.attempt']), [1, 2, 3])
      assert.deepEqual(attempts.map(span => span.spanContext().spanId), active)
      for (const span of attempts) {
        assert.equal(span.spanContext().traceId, PUBLISHER.traceId)
        assert.equal(span.parentSpanContext.spanId, PUBLISHER.spanId)
        assert.deepEqual([span.status.code, span.events[0].attributes['exception.type']], [2, 'TypeError'])
      }
      const [parked] = await broker.take(`${queue}.parked`, 1)
      assert.equal(parked.properties.headers.traceparent, TRACEPARENT)
      assert.equal(valueOf('backhop_retries_total', ',error_type="TypeError"'), 2)
      const linked = attempts.map(({ links }) => links.map(link => link.context.spanId))
      assert.deepEqual(linked, [[], [active[0]], [active[1]]])
      await until(() => named('park').length === 1, 'its spans end')
      assert.deepEqual(named('retry').map(span => span.parentSpanContext.spanId), active.slice(0, 2))
      assert.deepEqual(named('park').map(span => span.parentSpanContext.spanId), active.slice(2))
    })
  }

  it('beside the instrumentation of amqplib, whose span is the parent, and without an error as status', async () => {
    instrumentation.setTracerProvider(provider)
    instrumentation.enable()
    const { queue, named, active } = await failThreeTimes('amqplib, promises', { failureIsError: false })
    const attempts = named('process')
    assert.deepEqual(attempts.map(span => [span.status.code, span.events.length]), [[0, 1], [0, 1], [0, 1]])
    assert.deepEqual(attempts.map(({ links }) => links.map(link => link.context.spanId)), [[], [active[0]], [active[1]]])
    await consumer.retrier.drain()
    await until(() => exporter.getFinishedSpans().filter(({ name }) => name === `${queue} process`).length === 3, 'its spans end')
    const theirs = exporter.getFinishedSpans().filter(({ name }) => name === `${queue} process`)
    assert.deepEqual(attempts.map(span => span.parentSpanContext.spanId), theirs.map(span => span.spanContext().spanId))
    const published = exporter.getFinishedSpans().filter(({ name }) => name.startsWith('publish'))
    assert.equal(published.length, 1) // no copy is
    const [parked] = await broker.take(`${queue}.parked`, 1)
    const { traceId, spanId } = published[0].spanContext()
    assert.equal(parked.properties.headers.traceparent, `00-${traceId}-${spanId}-01`)
  })
})
