'use strict'
// Events, metrics and spans of a message that fails, comes back and is parked, over each client.

const assert = require('node:assert/strict')
const diagnostics = require('node:diagnostics_channel')
const { once } = require('node:events')
const { afterEach, beforeEach } = require('node:test')

const { AsyncLocalStorageContextManager } = require('@opentelemetry/context-async-hooks')
const { context, propagation, trace } = require('@opentelemetry/api')
const { AmqplibInstrumentation } = require('@opentelemetry/instrumentation-amqplib')
const { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } = require('@opentelemetry/sdk-trace-base')
const { Registry } = require('prom-client')

const instrumentation = new AmqplibInstrumentation() // before amqplib is loaded, whose functions it patches
instrumentation.disable()

const { Park, Policy, Worker, buildInfo } = require('backhop')
const { tracing } = require('backhop/opentelemetry')
const { Retrier } = require('backhop/amqplib')
const { prometheus } = require('backhop/prom-client')

const { Broker, NEEDS_BROKER, NEEDS_CTL, QUICK, URL, control, describe, it, until } = require('./broker')
const { CLIENTS } = require('./clients')
const { Proxy } = require('./proxy')
const { PUBLISHER, TRACEPARENT, propagator } = require('../propagator')
const warnings = require('../warnings')

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
  ...Object.fromEntries(Object.keys(CLIENTS).map(client => [client, async (queue, options, url = URL) => {
    const consumer = await CLIENTS[client].connect(url, queue, options)
    await consumer.retrier.declare()
    return consumer
  }]))
}

const NEEDS_WORKER = buildInfo().worker ? {} : { skip: 'without librabbitmq' }
const FIRST = ['Worker', 'amqplib, promises'] // in the fast profile
const needsOf = client => ({ ...client === 'Worker' ? NEEDS_WORKER : {}, long: !FIRST.includes(client) })

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
    const traces = tracing({ tracerProvider: provider, ...options })
    const onEvent = [event => events.push(event), prometheus({ register }), traces]
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
    it(`over ${client}: it fails, is late, and is parked`, needsOf(client), async () => {
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
      const texts = ['TypeError: no 1', 'TypeError: no 2', 'TypeError: no 3']
      assert.deepEqual(failed.map(({ errorText }) => errorText), texts)
      const copied = events.filter(({ name }) => name === 'retried' || name === 'parked')
      assert.deepEqual(copied.map(({ error }) => error.message), ['no 1', 'no 2', 'no 3'])
      assert.deepEqual(copied.map(({ errorText }) => errorText), texts)
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
      const both = {
        'messaging.system': 'rabbitmq', 'messaging.destination.name': queue, 'messaging.message.id': '17'
      }
      const sent = { ...both, 'messaging.operation.type': 'send' }
      assert.deepEqual(attempts[1].attributes, {
        ...both,
        'messaging.operation.name': 'process',
        'messaging.operation.type': 'process',
        'messaging.rabbitmq.destination.routing_key': queue,
        'backhop.attempt': 2,
        'error.type': 'TypeError'
      })
      assert.deepEqual(named('retry')[1].attributes, {
        ...sent, 'messaging.operation.name': 'retry', 'backhop.attempts': 2, 'backhop.delay': 0.2
      })
      assert.deepEqual(named('park')[0].attributes, {
        ...sent, 'messaging.operation.name': 'park', 'backhop.attempts': 3, 'backhop.reason': 'exhausted'
      })
    })

    it(`over ${client}: untrusted headers and a broken tracer block no handler`, needsOf(client), async () => {
      const queue = await broker.queue()
      const broken = { getTracer: () => { throw new Error('the SDK is broken') } }
      const onEvent = [tracing({ tracerProvider: broken }), event => events.push(event)]
      consumer = await connect[client](queue, { policy: QUICK, namespace: broker.namespace, onEvent })
      await consumer.begin(() => {})
      const hostile = { headers: { traceparent: { toString: 'x', valueOf: 'y' } } }
      for (const options of [hostile, { headers: { traceparent: TRACEPARENT } }]) {
        await broker.publish('', queue, options)
      }
      await until(() => events.filter(({ name }) => name === 'succeeded').length === 2, 'both are handled')
      await consumer.stop()
      events.length = 0
      onEvent[0] = tracing({ tracerProvider: provider })
      consumer = await connect[client](queue, { policy: QUICK, namespace: broker.namespace, onEvent })
      await consumer.begin(() => {})
      await broker.publish('', queue, hostile)
      await until(() => events.some(({ name }) => name === 'succeeded'), 'it is handled')
      assert.ok(!events.some(({ name }) => name === 'refused' || name === 'failed'))
    })

    it(`over ${client}: a span that is active has no child of another trace`, needsOf(client), async () => {
      const queue = await broker.queue()
      const options = { policy: QUICK, namespace: broker.namespace, onEvent: tracing({ tracerProvider: provider }) }
      const startUp = provider.getTracer('app').startSpan('start-up')
      await context.with(trace.setSpan(context.active(), startUp), async () => {
        consumer = await connect[client](queue, options)
        await consumer.begin(() => {})
      })
      await broker.publish('body', queue, { headers: { traceparent: TRACEPARENT } })
      const attempt = () => exporter.getFinishedSpans().find(({ name }) => name === `process ${queue}`)
      await until(attempt, 'it is handled')
      assert.equal(attempt().parentSpanContext.spanId, PUBLISHER.spanId)
    })
  }

  const connecting = ['amqplib, promises', 'amqplib, consume', 'node-amqp', 'node-amqp, consume']
  for (const client of connecting) {
    it(`over ${client}: a lost connection is told under a consumer of the retrier's own, an orderly close is not`, {
      ...needsOf(client)
    }, async () => {
      const queue = await broker.queue()
      const proxy = await Proxy.to(URL)
      const isOfIt = ({ name }) => name === 'disconnected' || name === 'cancelled'
      const about = () => events.filter(isOfIt).map(({ name, count }) => [name, count])
      try {
        const options = { policy: QUICK, namespace: broker.namespace, onEvent: event => events.push(event) }
        consumer = await connect[client](queue, options, proxy.url)
        await consumer.begin(() => {})
        await consumer.stop()
        consumer = await connect[client](queue, options, proxy.url)
        await consumer.begin(() => {})
        const isClosed = once(consumer.connection, 'close')
        consumer.isStopped = true
        if (consumer.connection.disconnect) {
          consumer.connection.implOptions.reconnect = false
          consumer.connection.disconnect()
        } else {
          consumer.connection.close()
        }
        await isClosed
        await new Promise(setImmediate)
        assert.deepEqual(about(), [])
        consumer = await connect[client](queue, options, proxy.url)
        await consumer.begin(() => {})
        const isLost = new Promise(resolve => consumer.connection.once('error', resolve))
        proxy.cut()
        await isLost
        await broker.publish('body', queue)
        if (client.startsWith('node-amqp')) {
          await until(() => events.some(({ name }) => name === 'succeeded'), 'it consumes again')
        }
        assert.deepEqual(about(), client.endsWith('consume') ? [['disconnected', 0]] : [])
      } finally {
        await consumer.stop()
        proxy.close()
      }
    })
  }

  for (const client of connecting) {
    it(`over ${client}: that the broker takes no publishes is told with nothing in hand`, {
      ...NEEDS_CTL, long: true
    }, async () => {
      const queue = await broker.queue()
      const options = { policy: QUICK, namespace: broker.namespace, onEvent: event => events.push(event) }
      consumer = await connect[client](queue, options)
      await consumer.begin(() => {})
      const { channel, connection } = consumer
      control('set-alarm')
      try { // the broker notifies connections that publish
        if (channel) channel.publish('', queue, Buffer.from('body'))
        else connection.publish(queue, 'body')
        await until(() => events.some(({ name }) => name === 'blocked'), 'it is blocked')
      } finally {
        control('clear-alarm')
      }
      await until(() => events.some(({ name }) => name === 'unblocked'), 'it takes publishes again')
    })
  }

  it('by a Worker: a late subscriber of diagnostics_channel has events of messages, too', NEEDS_WORKER, async () => {
    const queue = await broker.queue()
    consumer = await connect.Worker(queue, { policy: QUICK, namespace: broker.namespace })
    const listen = event => events.push(event)
    diagnostics.subscribe('backhop:event', listen)
    try {
      await consumer.begin(() => { throw new TypeError('mine') })
      await broker.publish('body', queue)
      await until(() => events.some(({ name }) => name === 'parked'), 'it is parked')
    } finally {
      diagnostics.unsubscribe('backhop:event', listen)
    }
    const each = ['delivered', 'failed', 'retried']
    const names = events.map(({ name }) => name).filter(name => name !== 'connected')
    assert.deepEqual(names, [...each, ...each, 'delivered', 'failed', 'parked'])
    assert.ok(events.filter(({ name }) => name === 'retried').every(({ error }) => error instanceof TypeError))
  })

  it('by a Worker: who listens once it runs has all but the retries', NEEDS_WORKER, async () => {
    const queue = await broker.queue()
    consumer = await connect.Worker(queue, { policy: QUICK, namespace: broker.namespace })
    await consumer.begin(() => { throw new TypeError('mine') })
    for (const name of ['delivered', 'failed', 'retried', 'parked']) {
      consumer.worker.on(name, event => events.push(event))
    }
    await broker.publish('body', queue)
    await until(() => events.some(({ name }) => name === 'parked'), 'it is parked')
    const each = ['delivered', 'failed']
    assert.deepEqual(events.map(({ name }) => name), [...each, ...each, ...each, 'parked'])
  })

  const AGEING = new Policy({ initial: 60_000, maxAge: 1000 })
  const parking = [['exhausted', TypeError, QUICK], ['permanent', Park, QUICK], ['too-old', TypeError, AGEING]]
  for (const [why, Thrown, policy] of parking) {
    it(`by a Worker: without a listener, parked and its warning have the error: ${why}`, NEEDS_WORKER, async () => {
      const queue = await broker.queue()
      const thrown = new Thrown('mine')
      for (const isListened of [true, false]) {
        consumer = await connect.Worker(queue, { policy, namespace: broker.namespace })
        if (isListened) consumer.worker.on('parked', event => events.push(event))
        await consumer.begin(() => { throw thrown })
        await broker.publish('body', queue)
        const warned = () =>
          warnings.find(({ code, event }) => code === 'BACKHOP_PARKED' && event.queue === queue)?.event
        const event = await until(() => isListened ? events[0] : warned(), 'it is told')
        assert.deepEqual([event.reason, event.error === thrown], [why, true])
        assert.match(event.errorText, /mine/)
        await consumer.stop()
      }
    })
  }

  {
    let channel
    let retrier
    let queue

    const consumes = async handle => {
      queue = await broker.queue()
      consumer = await connect['amqplib, promises'](queue, { policy: QUICK, namespace: broker.namespace })
      channel = await consumer.connection.createChannel()
      const onEvent = [event => events.push(event), prometheus({ register }), tracing({ tracerProvider: provider })]
      retrier = new Retrier(null, { queue, policy: QUICK, namespace: broker.namespace, onEvent })
      await retrier.declare(channel)
      await channel.consume(queue, handle)
      await broker.publish('body', queue, { messageId: '17', headers: { traceparent: TRACEPARENT } })
    }
    const isParked = async () => {
      await until(() => events.some(({ name }) => name === 'parked'), 'it is parked')
      await retrier.drain()
      return events.map(({ name }) => name)
    }
    const each = (...names) => [...names, 'retried', ...names, 'retried', ...names, 'parked']
    const spans = () => exporter.getFinishedSpans().filter(({ name }) => name === `process ${queue}`)

    it('by read and settle: read begins it, and tells how long it took and how late it came', async () => {
      await consumes(async incoming => {
        const message = retrier.read(incoming, channel)
        await new Promise(setImmediate)
        retrier.settle(message, new TypeError('no'))
      })
      assert.deepEqual(await isParked(), each('delivered', 'failed'))
      assert.ok(events.filter(({ name }) => name === 'failed').every(({ duration }) => duration > 0))
      assert.match(await register.metrics(), /^backhop_retry_lateness_seconds_count\{.*\} 2$/m)
      assert.deepEqual(spans(), [])
    })

    it('by read, handle and settle: the handler runs within its span, and the clock begins with it', async () => {
      const active = []
      let waited
      await consumes(async incoming => {
        const message = retrier.read(incoming, channel)
        const read = performance.now()
        await until(() => performance.now() > read + 20)
        const handle = async given => {
          waited = performance.now() - read
          await new Promise(setImmediate)
          active.push(trace.getActiveSpan().spanContext().spanId)
          throw new TypeError(`${given === message}`)
        }
        await retrier.handle(message, handle).catch(error => retrier.settle(message, error))
      })
      assert.deepEqual(await isParked(), each('delivered', 'failed'))
      const failed = events.filter(({ name }) => name === 'failed')
      assert.deepEqual(failed.map(({ errorText }) => errorText), Array(3).fill('TypeError: true'))
      assert.ok(waited >= 20)
      assert.deepEqual(spans().map(span => span.spanContext().spanId), active)
      assert.deepEqual(spans().map(({ links }) => links.map(link => link.context.spanId)),
        [[], [active[0]], [active[1]]])
      assert.throws(() => retrier.handle({}, () => {}), /what handle is given/)
    })

    it('by errorHandler: what failed is told without how long and how late, and without a span', async () => {
      await consumes(incoming => retrier.errorHandler()(channel, incoming, new TypeError('no')))
      assert.deepEqual(await isParked(), each('failed'))
      const failed = events.filter(({ name }) => name === 'failed')
      assert.ok(failed.every(({ duration, error }) => duration === undefined && error instanceof TypeError))
      assert.doesNotMatch(await register.metrics(), /^backhop_retry_lateness_seconds_count\{.*\} [1-9]/m)
      assert.deepEqual(spans(), [])
    })
  }

  it('beside the instrumentation of amqplib, whose span is the parent, and without an error as status', async () => {
    instrumentation.setTracerProvider(provider)
    instrumentation.enable()
    const { queue, named, active } = await failThreeTimes('amqplib, promises', { failureIsError: false })
    const attempts = named('process')
    assert.deepEqual(attempts.map(span => [span.status.code, span.events.length]), [[0, 1], [0, 1], [0, 1]])
    assert.deepEqual(attempts.map(({ links }) => links.map(link => link.context.spanId)),
      [[], [active[0]], [active[1]]])
    await consumer.retrier.drain()
    await until(() => exporter.getFinishedSpans().filter(({ name }) => name === `${queue} process`).length === 3,
      'its spans end')
    const theirs = exporter.getFinishedSpans().filter(({ name }) => name === `${queue} process`)
    assert.deepEqual(attempts.map(span => span.parentSpanContext.spanId), theirs.map(span => span.spanContext().spanId))
    const published = exporter.getFinishedSpans().filter(({ name }) => name.startsWith('publish'))
    assert.equal(published.length, 1) // no copy is
    const [parked] = await broker.take(`${queue}.parked`, 1)
    const { traceId, spanId } = published[0].spanContext()
    assert.equal(parked.properties.headers.traceparent, `00-${traceId}-${spanId}-01`)
  })
})
