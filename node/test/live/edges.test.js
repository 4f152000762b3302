'use strict'
// Sharp edges that hard use found, by their ids, on a broker: AMQP_URL names it, as
// tests/broker/broker sets it.

const assert = require('node:assert/strict')
const { afterEach, beforeEach, mock } = require('node:test')

const amqplib = require('amqplib')

const { Policy, Topology, WaitTimeoutError, Worker, buildInfo } = require('backhop')
const { Retrier } = require('backhop/amqplib')

const {
  Broker, NEEDS_BROKER, NEEDS_CTL, QUICK, URL, amqplibUrl, control, describe, it, until
} = require('./broker')
const { CARRIERS } = require('./carriers')
const { CLIENTS } = require('./clients')
const { Proxy } = require('./proxy')

const NEEDS_WORKER = buildInfo().worker ? {} : { skip: 'built without librabbitmq' }
const { 'amqplib, consume': Amqplib, 'node-amqp, consume': NodeAmqp } = CLIENTS
const { 'amqplib, promises': AmqplibWrapped, 'node-amqp': NodeAmqpWrapped } = CLIENTS // the application consumes

const LOOK_MS = 60_000 // BH_LOOK_MS
const warnings = []
process.on('warning', warning => warnings.push(warning))

describe('an edge', NEEDS_BROKER, () => {
  let broker
  let queue
  let options
  let closing

  beforeEach(async () => {
    warnings.length = 0
    closing = []
    broker = await Broker.connect()
    queue = await broker.queue()
    options = { queue, policy: QUICK, namespace: broker.namespace }
  })

  afterEach(async () => {
    for (const close of closing.reverse()) await close()
    await broker.close()
  })

  async function channelOf () {
    const connection = await amqplib.connect(amqplibUrl(URL))
    connection.on('error', () => {})
    closing.push(() => connection.close())
    return connection.createChannel()
  }

  /** A consumer that has declared, and does not consume yet. */
  async function connected (Consumer, url, more) {
    const consumer = await Consumer.connect(url, queue, { ...options, ...more })
    closing.push(() => consumer.stop())
    return consumer
  }

  async function declared (Consumer, url, more) {
    const consumer = await connected(Consumer, url, more)
    await consumer.retrier.declare()
    return consumer
  }

  async function consuming (Consumer, handle, more) {
    const consumer = await connected(Consumer, URL, more)
    await consumer.begin(handle)
    return consumer
  }

  function working (handle, more) {
    const worker = new Worker(URL, { ...options, ...more })
    const running = worker.run(handle)
    closing.push(async () => {
      await worker.stop({ timeout: 0 }).catch(() => {})
      await running
    })
    return worker
  }

  it('NT1: a handler of `read` that rejects with undefined or null has failed', async () => {
    const channel = await channelOf()
    const retrier = new Retrier(null, options)
    await retrier.declare(channel)
    for (const thrown of [undefined, null]) {
      await broker.publish('x', queue)
      for (let attempt = 1; attempt <= 3; attempt++) {
        const incoming = await until(() => channel.get(queue), `attempt ${attempt}`)
        const message = retrier.read(incoming, channel)
        assert.equal(message.attempt, attempt)
        try {
          await retrier.handle(message, () => Promise.reject(thrown))
          assert.fail()
        } catch (error) {
          assert.equal(error, thrown)
          retrier.settle(message, error)
        }
      }
      const [parked] = await broker.take(`${queue}.parked`, 1)
      assert.equal(parked.properties.headers['backhop-error'], 'the handler rejected without an error')
    }
  })

  for (const [name, begin] of [
    ['amqplib', handle => consuming(Amqplib, handle)],
    ['node-amqp', handle => consuming(NodeAmqp, handle)],
    ['a worker', NEEDS_WORKER.skip ? undefined : handle => working(handle)]
  ]) {
    const needs = { skip: begin ? false : NEEDS_WORKER.skip, long: name === 'node-amqp' }

    it(`NT8: any number of handlers over ${name} listens to the signal`, needs, async () => {
      let listening = 0
      let release
      const released = new Promise(resolve => { release = resolve })
      closing.push(release)
      await begin(async ({ signal }) => {
        signal.addEventListener('abort', release)
        listening++
        await released
        signal.removeEventListener('abort', release)
      })
      for (let i = 0; i < 20; i++) await broker.publish(String(i), queue)
      await until(() => listening === 20, 'twenty listen')
      assert.deepEqual(warnings.filter(({ name }) => name === 'MaxListenersExceededWarning'), [])
      release()
    })
  }

  for (const [name, Carrier] of Object.entries(CARRIERS).filter(([name]) => name !== 'wrap')) {
    it(`NT9: handlers over ${name} that never end leave their slots at the limit`, {
      skip: name === 'worker' && NEEDS_WORKER.skip, long: !['worker', 'promises'].includes(name)
    }, async () => {
      const handled = []
      const carrier = await Carrier.connect(URL, queue, { policy: QUICK, namespace: broker.namespace })
      closing.push(() => carrier.stop())
      carrier.settings = { prefetch: 2, timeout: 200 }
      await carrier.retrier?.declare()
      await carrier.begin(({ body }) => String(body) === 'hangs' ? new Promise(() => {}) : handled.push(String(body)))
      for (const body of ['hangs', 'hangs', 'good', 'good']) await broker.publish(body, queue)
      await until(() => handled.length === 2, 'the good ones are handled')
      const [parked] = await broker.take(`${queue}.parked`, 2)
      assert.equal(parked.properties.headers['backhop-error'], 'the handler ran for longer than its limit of 0.2 s')
    })
  }

  it('NT6: a message that an earlier program published again keeps its count by that program\'s header', async () => {
    const channel = await channelOf()
    const wait = `${queue}.wait`
    const back = { 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': queue }
    await channel.assertQueue(wait, { arguments: back })
    closing.push(() => channel.deleteQueue(wait))
    await broker.publish('x', queue, { headers: { 'x-retries': 0 } })
    for (let retries = 1; retries <= 2; retries++) { // the earlier program: two failures
      const { content, properties } = await until(() => channel.get(queue, { noAck: true }), 'it arrives')
      const headers = { ...properties.headers, 'x-retries': retries }
      channel.sendToQueue(wait, content, { ...properties, headers, expiration: '1' })
    }
    const attempts = []
    await consuming(Amqplib, ({ attempt }) => { attempts.push(attempt) }, {
      legacyCounter: 'x-retries', waitQueues: [wait]
    })
    await until(() => attempts.length, 'it is handled')
    assert.deepEqual(attempts, [3])
  })

  it('NT10: a retrier whose callback gets messages of another queue warns, once', async () => {
    const channel = await channelOf()
    const retrier = await Retrier.declare(channel, options)
    const other = await broker.queue()
    const seen = []
    const callback = retrier.wrap(message => { seen.push(message.routingKey) })
    await channel.consume(queue, callback)
    await channel.consume(other, callback)
    for (const to of [queue, other, other]) await broker.publish('x', to)
    await until(() => seen.length === 3, 'three messages')
    const told = warnings.filter(({ code }) => code === 'BACKHOP_FOREIGN')
    assert.equal(told.length, 1)
    assert.match(told[0].message,
      new RegExp(`^the message came from the queue "${other}", .* make a retrier for each queue`))
  })

  it('NT12: a message that a framework rejects is parked if the work queue dead-letters there', async () => {
    const channel = await channelOf()
    const work = `${queue}.work`
    await channel.assertQueue(work, {
      arguments: { 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': `${work}.parked` }
    })
    closing.push(async () => {
      for (const each of [work, `${work}.parked`]) await channel.deleteQueue(each)
    })
    const retrier = await Retrier.declare(channel, { ...options, queue: work })
    await broker.publish('not json', work)
    channel.nack(await until(() => channel.get(work), 'it arrives'), false, false) // as NestJS does
    await until(() => broker.count(`${work}.parked`), 'it is parked')
    assert.equal(await retrier.replay(), 1)
    assert.deepEqual(await broker.bodies(work, 1), ['not json'])
  })

  it('NT16: a drain and a stop reject alike if a handler is not done in time', NEEDS_WORKER, async () => {
    let release
    const released = new Promise(resolve => { release = resolve })
    let began = 0
    const handle = async () => {
      began++
      await released
    }
    const worker = new Worker(URL, options)
    const running = worker.run(handle)
    await broker.publish('x', queue)
    await until(() => began === 1, 'the worker handles')
    await assert.rejects(worker.stop({ timeout: 1 }), WaitTimeoutError)
    await running
    await worker.stop()
    const { retrier } = await consuming(Amqplib, handle)
    await until(() => began === 2, 'the retrier handles')
    await assert.rejects(retrier.drain({ timeout: 1 }), WaitTimeoutError)
    release()
  })

  it('NT19: the listener of a failure gets null if the handler threw null', async () => {
    const failed = []
    await consuming(Amqplib, () => { throw null }, {
      policy: new Policy({ maxAttempts: 1 }),
      onEvent: event => { if (event.name === 'failed') failed.push(event.error) }
    })
    await broker.publish('x', queue)
    await broker.take(`${queue}.parked`, 1)
    assert.deepEqual(failed, [null])
  })

  for (const Consumer of [Amqplib, NodeAmqp]) {
    it(`F3: cancel over ${Consumer.name} returns during an alarm, and no handler gets more`, {
      ...NEEDS_CTL, long: true
    }, async () => {
      let seen = 0
      const policy = new Policy({ kind: 'fixed', initial: 100, jitter: 'none', maxAttempts: 1000 })
      const isBlocked = []
      const { consumer } = await consuming(Consumer, () => {
        seen++
        throw new Error('507')
      }, { policy, onEvent: ({ name }) => { if (name === 'blocked') isBlocked.push(name) } })
      await broker.publish('x', queue)
      await until(() => seen > 1, 'it comes again')
      control('set-alarm')
      try {
        await until(() => isBlocked.length, 'the connection is blocked')
        await consumer.cancel()
        const before = seen
        await new Promise(setImmediate)
        assert.equal(seen, before)
      } finally {
        control('clear-alarm')
      }
    })
  }

  for (const Consumer of [Amqplib, NodeAmqp]) {
    it(`F2: a success over ${Consumer.name} whose connection was lost is acknowledged at the next delivery`, {
      long: Consumer !== Amqplib
    }, async () => {
      const proxy = await Proxy.to(URL)
      closing.push(() => proxy.close())
      const calls = []
      const events = []
      const seen = name => events.some(event => event.name === name)
      const more = { onEvent: event => events.push(event) }
      const handle = async ({ body }) => {
        calls.push(String(body))
        if (String(body) !== 'slow' || calls.length > 1) return
        proxy.cut()
        await until(() => seen('disconnected'), 'the connection is lost')
      }
      const lost = await Consumer.connect(proxy.url, queue, { ...options, ...more })
      closing.push(() => lost.stop())
      await lost.begin(handle)
      await broker.publish('slow', queue, { messageId: 'slow' })
      await until(() => seen('stale'), () => events.join('\n'))
      if (lost.isClosed) await consuming(Consumer, handle, more) // the application connects again
      await until(() => events.some(({ name, id }) => name === 'succeeded' && id === 'slow'), () => events.join('\n'))
      await broker.publish('next', queue, { messageId: 'next' })
      await until(() => calls.includes('next'), () => events.join('\n'))
      assert.deepEqual(calls, ['slow', 'next'])
    })
  }

  it('F2, F4-3: a message whose handler outlives the consumer timeout is not called beside it, nor after its success', {
    ...NEEDS_CTL, long: true, real: true
  }, async () => {
    const set = (timeout, tick) => {
      const settings = { consumer_timeout: timeout, channel_tick_interval: tick }
      for (const [name, ms] of Object.entries(settings)) control('eval', `application:set_env(rabbit, ${name}, ${ms}).`)
    }
    const quorum = await broker.queue({ 'x-queue-type': 'quorum' })
    set(3000, 500)
    try {
      const { calls, events, again, connections } = watching()
      await consuming(Amqplib, async ({ body }) => {
        calls.push(String(body))
        if (String(body) === 'slow') await until(() => calls.includes('later'), 'it is delivered again')
      }, { queue: quorum, ...again })
      await broker.publish('slow', quorum, { messageId: 'slow' })
      await until(() => connections() === 2, () => events.join('\n'))
      await broker.publish('later', quorum, { messageId: 'later' })
      await until(() => events.filter(({ name, id }) => name === 'succeeded' && id === 'slow').length,
        () => events.join('\n'))
      await broker.publish('next', quorum, { messageId: 'next' })
      await until(() => calls.includes('next'), () => events.join('\n'))
      assert.deepEqual(calls, ['slow', 'later', 'next'])
    } finally {
      set(1800000, 60000)
    }
  })

  /** Returns what a test of lost channels looks at, and options of its consumer: `again`. */
  function watching () {
    const events = []
    const backOff = new Policy({ kind: 'fixed', initial: 100, jitter: 'none' })
    return {
      calls: [],
      events,
      again: { backOff, onEvent: event => events.push(event) },
      connections: () => events.filter(({ name }) => name === 'connected').length
    }
  }

  /**
   * Has the broker close the channel of a consumer, as a second acknowledgement does. message: one
   * of the consumer's
   */
  function breakChannel ({ connection }, { incoming }) {
    if (incoming) { // of node-amqp
      for (let i = 0; i < 2; i++) incoming.acknowledge()
      return
    }
    const own = connection.connection.channels.find(entry => entry?.channel.consumers?.size)
    own.channel.ack({ fields: { deliveryTag: 4711 } })
  }

  for (const Consumer of [Amqplib, NodeAmqp]) {
    const needs = { long: Consumer !== Amqplib }

    /**
     * Publishes one more message when the broker has delivered the others again, and resolves when
     * it was handled.
     */
    async function returned ({ calls, events, connections }) {
      await until(() => connections() === 2, () => events.join('\n'))
      await broker.publish('last', queue, { messageId: 'last' })
      await until(() => calls.includes('last'), () => events.join('\n'))
    }

    /** Begins a consumer of five messages. A sixth one can break the channel. */
    async function breaking (handle) {
      const watched = watching()
      const { calls, again } = watched
      let breaker
      const carrier = await consuming(Consumer, async message => {
        const body = String(message.body)
        if (body === 'breaks') {
          breaker = message
          await watched.broken
          return
        }
        if (body === 'first') throw new Error('507 queue is full')
        calls.push(body)
        if (body !== 'last') await handle(message, watched)
      }, again)
      watched.broken = new Promise(resolve => {
        watched.break = () => {
          breakChannel(carrier, breaker)
          resolve()
        }
      })
      for (const id of ['breaks', 'm0', 'm1', 'm2', 'm3', 'm4']) await broker.publish(id, queue, { messageId: id })
      await until(() => breaker && calls.length === 5, 'all are in hand')
      watched.carrier = carrier
      return watched
    }

    for (const [when, name, countOf] of [['is in flight', 'failed', 5], ['was confirmed', 'retried', 1]]) {
      it(`R4-2: over ${Consumer.name} a copy that ${when} as the channel was lost is one retry`, needs, async () => {
        let fail
        let count = countOf
        const fails = new Promise((resolve, reject) => { fail = reject })
        fails.catch(() => {})
        const watched = await breaking(() => fails)
        const { calls, events } = watched
        const { push } = events
        events.push = event => { // in the turn of this event, before any acknowledgement
          push.call(events, event)
          if (event.name === name && event.id !== 'first' && --count === 0) watched.break()
        }
        await broker.publish('first', queue, { messageId: 'first' })
        await until(() => events.some(each => each.name === 'retried'), 'the channel that publishes is open')
        fail(new Error('507 queue is full'))
        await returned(watched)
        assert.deepEqual((await broker.bodies(`${queue}.parked`, 6)).sort(), ['first', 'm0', 'm1', 'm2', 'm3', 'm4'])
        await watched.carrier.stop()
        assert.deepEqual(await broker.all(`${queue}.parked`), [])
        const copies = events.filter(each => each.name === 'retried' && each.id !== 'first').map(String)
        assert.deepEqual([copies.length, new Set(copies).size], [10, 10], events.join('\n'))
        if (name === 'failed') return // a copy that was not sent yet is made again, by another call
        const copied = events.find(each => each.name === name && each.id !== 'first').id
        assert.equal(calls.filter(each => each === copied).length, 3, events.join('\n'))
      })
    }

    it(`F4-3: a delivery over ${Consumer.name} waits for the call of an earlier one that succeeds`, needs, async () => {
      let release
      const released = new Promise(resolve => { release = resolve })
      const watched = await breaking(() => released)
      watched.break()
      await returned(watched)
      release()
      await watched.carrier.stop()
      await broker.holds(queue, 0)
      assert.deepEqual(watched.calls.sort(), ['last', 'm0', 'm1', 'm2', 'm3', 'm4'])
    })

    it(`F4-3: a delivery over ${Consumer.name} that waits is called if the earlier one fails`, needs, async () => {
      let fail
      const fails = new Promise((resolve, reject) => { fail = reject })
      fails.catch(() => {})
      const watched = await breaking((message, { calls }) => calls.includes('last') ? undefined : fails)
      watched.break()
      await returned(watched)
      fail(new Error('507 queue is full'))
      await until(() => watched.calls.length === 11, () => watched.calls.join(' '))
      await watched.carrier.stop()
      await broker.holds(queue, 0)
      assert.equal(watched.events.filter(({ name }) => name === 'retried').length, 0)
    })

    it(`P4-16: messages over ${Consumer.name} whose acknowledgements were lost are called no more`, needs, async () => {
      let release
      const released = new Promise(resolve => { release = resolve })
      const watched = await breaking(() => released)
      watched.break() // the channel is open for the client, and its acknowledgements come too late
      release()
      await returned(watched)
      await watched.carrier.stop()
      await broker.holds(queue, 0)
      assert.deepEqual(watched.calls.sort(), ['last', 'm0', 'm1', 'm2', 'm3', 'm4'])
    })

    it(`house 2.1: a consumer over ${Consumer.name} that is cancelled at once consumes as its back-off says`, {
      long: true
    }, async () => {
      let passed = 0 // ms: each consumer lasts for a minute
      const { now } = performance
      mock.method(performance, 'now', () => now.call(performance) + passed)
      closing.push(() => mock.restoreAll())
      const work = `${queue}.work`
      closing.push(() => broker.channel.deleteQueue(work))
      const events = []
      const delays = () => events.filter(({ name }) => name === 'cancelled').map(({ delay }) => delay)
      const consumed = () => events.filter(({ name }) => name === 'connected').length
      let seen = 0
      const backOff = new Policy({ initial: 10, factor: 2, jitter: 'none' })
      await consuming(Consumer, () => { seen++ }, {
        queue: work, workQueue: 'classic', backOff, onEvent: event => events.push(event)
      })
      for (let count = 1; count <= 4; count++) {
        await until(() => consumed() === count, () => events.join('\n'))
        passed += 60_000
        await broker.channel.deleteQueue(work)
        await until(() => delays().length === count, () => events.join('\n'))
      }
      assert.deepEqual(delays(), [10, 20, 40, 80])
      await until(() => consumed() === 5, () => events.join('\n'))
      await broker.publish('x', work)
      await until(() => seen === 1, 'a message is settled')
      await broker.holds(work, 0)
      await broker.channel.deleteQueue(work)
      await until(() => delays().length === 5, () => events.join('\n'))
      assert.equal(delays()[4], 10)
      assert.deepEqual(events.filter(({ name }) => name === 'unavailable').map(String), [])
    })
  }

  it('F4-3, P4-16: a wrapped handler is called once for a message whose channel was lost', async () => {
    const [first, second] = [await channelOf(), await channelOf()]
    first.on('error', () => {})
    const retrier = await Retrier.declare(first, options)
    const calls = []
    const ends = {}
    const handle = ({ body }) => {
      calls.push(String(body))
      if (String(body) !== 'last') return new Promise(resolve => { ends[body] = resolve })
    }
    await first.consume(queue, retrier.wrap(handle))
    for (const id of ['slow', 'quick']) await broker.publish(id, queue, { messageId: id })
    await until(() => calls.length === 2, 'both are in hand')
    const isClosed = new Promise(resolve => first.once('close', resolve))
    first.ack({ fields: { deliveryTag: 4711 } }) // the broker closes the channel
    ends.quick()
    await isClosed
    await second.consume(queue, retrier.wrap(handle, { channel: second }))
    await broker.publish('last', queue)
    await until(() => calls.includes('last'), 'all is delivered again')
    ends.slow()
    await retrier.drain()
    await second.close()
    await broker.holds(queue, 0)
    assert.deepEqual(calls, ['slow', 'quick', 'last'])
  })

  /** Returns the binding of the work queue to the return exchange. */
  const bindingOfQueue = () =>
    new Topology(options).declarations.find(({ what, name }) => what === 'binding' && name === queue)

  for (const Consumer of [Amqplib, AmqplibWrapped, NodeAmqp, NodeAmqpWrapped]) {
    const needs = { long: Consumer !== Amqplib }

    /** Begins a consumer that looks for the return exchange often; each message fails once. */
    async function looking ({ pause = 200, ...more } = {}, url = URL, connect = declared) {
      const { setTimeout: timer } = globalThis
      const often = (run, ms, ...args) => timer(run, ms === LOOK_MS ? pause : ms, ...args)
      mock.method(globalThis, 'setTimeout', often)
      closing.push(() => mock.restoreAll())
      const seen = []
      const events = []
      const consumer = await connect(Consumer, url, { onEvent: event => events.push(event), ...more })
      await consumer.begin(({ body, attempt }) => {
        seen.push([String(body), attempt])
        if (attempt === 1) throw new Error('507 queue is full')
      })
      return { consumer, seen, events }
    }

    it(`F4: a consumer over ${Consumer.name} mends a binding made while its exchange was deleted`, needs, async () => {
      const { seen, events } = await looking({ pause: 1 })
      const { source: exchange, routingKey } = bindingOfQueue()
      // Not one event for each deletion: RabbitMQ may refuse both binds of a look that declares the
      // exchange, and the next look mends that.
      const isRouted = async body => {
        if (await broker.hasExchange(exchange)) await broker.publish(body, routingKey, { exchange })
        return seen.some(([first]) => first === body)
      }
      for (let count = 1; count <= 20; count++) {
        await broker.channel.deleteExchange(exchange)
        await until(() => isRouted(String(count)), () => events.join('\n'))
      }
    })

    it(`W7: a consumer over ${Consumer.name} reports a silence and a later answer`, { long: true }, async () => {
      const proxy = await Proxy.to(URL)
      const more = { confirmTimeout: '500ms' }
      closing.push(() => proxy.close())
      const { seen, events, consumer: { consumer } } = await looking(more, `${proxy.url}?heartbeat=0`)
      const eventsOf = name => events.filter(event => event.name === name)
      const before = eventsOf('connected').length
      const state = () => consumer?.state // undefined with wrap
      proxy.hold()
      await until(() => eventsOf('unavailable').length, 'it is silent')
      const [{ text, connection, error }] = eventsOf('unavailable')
      assert.match(text, /^the broker has not answered for 0.5 s/)
      assert.deepEqual([connection, error.name, state() ?? 'reconnecting'],
        ['consume', 'WaitTimeoutError', 'reconnecting'])
      proxy.release()
      await until(() => eventsOf('connected').length > before, 'the broker answers')
      assert.equal(state() ?? 'ready', 'ready')
      await broker.publish('x', queue)
      await until(() => seen.length === 2, 'it is handled, fails and succeeds')
    })

    it(`W7: a consumer over ${Consumer.name} reports a silence while a look replays`, needs, async () => {
      const proxy = await Proxy.to(URL)
      closing.push(() => proxy.close())
      let isHeld = false
      const { consumer, events } = await looking({ confirmTimeout: '500ms' }, `${proxy.url}?heartbeat=0`)
      const unroutable = mock.getter(consumer.retrier.topology, '_unroutableQueue', () => {
        if (!isHeld) proxy.hold() // the look before the replay was answered
        isHeld = true
        return `${broker.namespace}.unroutable`
      })
      const { text } = await until(() => events.find(({ name }) => name === 'unavailable'), 'it is silent')
      assert.match(text, /^the broker has not answered for 0.5 s/)
      assert.ok(unroutable.mock.callCount())
      const before = events.filter(({ name }) => name === 'connected').length
      proxy.release()
      await until(() => events.filter(({ name }) => name === 'connected').length > before, 'the broker answers')
    })

    it(`F4: a consumer over ${Consumer.name} binds its queue again`, needs, async () => {
      const { seen, consumer: { consumer } } = await looking()
      const { source, routingKey } = bindingOfQueue()
      await broker.channel.unbindQueue(queue, source, routingKey)
      const returns = async () => {
        await broker.publish('probe', routingKey, { exchange: source })
        return seen.some(([body]) => body === 'probe')
      }
      await until(returns, 'what is published to the return exchange arrives')
      await until(() => (consumer?.state ?? 'ready') === 'ready', 'it is ready')
    })

    if (Consumer !== NodeAmqp && Consumer !== NodeAmqpWrapped) continue // amqplib does not connect again
    it(`F1: an idle consumer over ${Consumer.name} looks again after a lost connection`, needs, async () => {
      const proxy = await Proxy.to(URL)
      closing.push(() => proxy.close())
      const { seen, events, consumer: { connection } } = await looking({}, proxy.url)
      const again = new Promise(resolve => connection.once('ready', resolve))
      proxy.cut()
      await again
      const unroutable = `${broker.namespace}.unroutable`
      await broker.publish('lost', unroutable, { headers: { 'backhop-queue': queue, 'backhop-attempts': 1 } })
      await until(() => events.some(({ name }) => name === 'replayed'), () => events.join('\n'))
      await until(() => seen.length === 2, 'it is handled, fails and succeeds')
    })
  }

  it('F5: deliveries after the broker cancelled the consumer do not end the connection', async () => {
    const seen = []
    const consumer = await consuming(Amqplib, ({ body }) => { seen.push(String(body)) })
    const { connection } = consumer.connection
    const own = connection.channels.find(entry => entry?.channel.consumers?.size)
    const [tag] = own.channel.consumers.keys()
    own.channel.emit('cancel', { consumerTag: tag })
    const fields = { consumerTag: tag, deliveryTag: 1, exchange: '', routingKey: queue }
    own.channel.emit('delivery', { fields, properties: {}, content: Buffer.from('late') })
    await broker.publish('next', queue)
    await until(() => seen.includes('next'), 'it consumes again')
    assert.deepEqual(seen, ['next'])
    assert.equal(consumer.isOpen, true)
  })
})
