'use strict'
// How handlers, consumers and retriers end, by the ids of findings, on a broker: AMQP_URL names it.

const assert = require('node:assert/strict')
const { afterEach, beforeEach, mock } = require('node:test')

const { Breaker, MissingError, Park, Policy, RetryAfter, Throttled, Worker, buildInfo } = require('backhop')

const { inside } = require('../internals')
const { Broker, CONNECTS, NEEDS_BROKER, URL, amqplibUrl, describe, it, until } = require('./broker')
const { CARRIERS } = require('./carriers')
const { channelsOf } = require('./clients')

const { frames } = inside('adapters/frames')

const NEEDS_CLIENT = CONNECTS ? {} : { skip: 'an amqplib before 0.10.7, whose default this RabbitMQ refuses' }
const FIRST = ['worker', 'promises'] // in the fast profile
const POLICY = new Policy({ kind: 'fixed', initial: 100, jitter: 'none', maxAttempts: 5, maxRetryAfter: 0 })
const warnings = []
process.on('warning', warning => warnings.push(warning))

describe('an end', NEEDS_BROKER, () => {
  let broker
  let queue
  let closing
  let events

  beforeEach(async () => {
    [closing, events, warnings.length] = [[], [], 0]
    broker = await Broker.connect()
    queue = await broker.queue()
  })

  afterEach(async () => {
    for (const close of closing.reverse()) await close()
    await broker.close()
  })

  const happened = name => events.filter(event => event.name === name).length

  async function connected (name, options, url = URL) {
    const carrier = await CARRIERS[name].connect(url, queue, {
      policy: POLICY, namespace: broker.namespace, onEvent: event => events.push(event), ...options
    })
    closing.push(() => carrier.stop())
    await carrier.retrier?.declare()
    return carrier
  }

  async function consuming (name, handle) {
    const carrier = await connected(name)
    await carrier.begin(handle)
    return carrier
  }

  /** Begins a handler that runs until `release` is called. */
  async function running (name) {
    const run = {}
    const released = new Promise(resolve => { run.release = resolve })
    closing.push(run.release)
    run.carrier = await consuming(name, async message => {
      run.message = message
      await released
    })
    await broker.publish('runs', queue)
    await until(() => run.message, 'the handler runs')
    return run
  }

  for (const name of Object.keys(CARRIERS)) {
    const needs = {
      skip: name === 'worker' && !buildInfo().worker ? 'built without librabbitmq' : false, long: !FIRST.includes(name)
    }
    const isWorker = name === 'worker'

    it(`P4-1: ${name} awaits a thenable`, needs, async () => {
      const waiting = []
      await consuming(name, ({ attempt }) => {
        return { then: (resolve, reject) => waiting.push(attempt === 1 ? () => reject(new Error('no')) : resolve) }
      })
      await broker.publish('x', queue)
      for (const end of ['failed', 'succeeded']) {
        await until(() => waiting.length, 'the handler is called')
        assert.equal(happened(end), 0)
        waiting.pop()()
        await until(() => happened(end), end)
      }
      await broker.holds(queue, 0)
    })

    it(`P4-2: ${name} settles outcomes whose fields were removed, replaced or cannot be read`, needs, async () => {
      const seen = []
      const outcomes = {
        'no delay': () => Object.create(RetryAfter.prototype),
        'wrong delay': () => Object.assign(new RetryAfter(7), { delay: NaN }),
        unreadable: () =>
          Object.defineProperty(new Throttled(7, 'busy'), 'delay', { get () { throw new Error('no') } }),
        park: () => Object.create(Park.prototype)
      }
      await consuming(name, ({ body, attempt, deferrals }) => {
        seen.push(`${body} ${attempt} ${deferrals}`)
        if (attempt === 1 && !deferrals) throw outcomes[body]()
      })
      for (const body of Object.keys(outcomes)) await broker.publish(body, queue)
      await until(() => happened('succeeded') === 3 && happened('parked') === 1, () => events.join('\n'))
      const again = ['no delay 2 0', 'unreadable 1 1', 'wrong delay 2 0']
      assert.deepEqual(seen.sort(), [...Object.keys(outcomes).map(body => `${body} 1 0`), ...again].sort())
      assert.deepEqual(await broker.bodies(`${queue}.parked`, 1), ['park'])
    })

    const ends = isWorker
      ? {
          stop: ({ worker }) => worker.stop({ timeout: '60s' }),
          dispose: ({ worker }) => worker[Symbol.asyncDispose]()
        }
      : {
          drain: ({ retrier }) => retrier.drain({ timeout: '60s' }),
          dispose: ({ consumer, retrier }) => (consumer ?? retrier)[Symbol.asyncDispose]()
        }
    for (const [how, end] of Object.entries(ends)) {
      const needsDispose = how === 'dispose' && !Symbol.asyncDispose
        ? { skip: 'Node before 18.18 has no asyncDispose' }
        : {}
      it(`P4-3: ${how} of ${name} waits for a handler that runs`, { ...needs, ...needsDispose }, async () => {
        const { carrier, message, release } = await running(name)
        let hasEnded = false
        const ended = end(carrier).then(() => { hasEnded = true })
        await until(() => message.signal.aborted, 'it ends')
        await broker.count(queue) // time for an end that comes too early
        assert.deepEqual([hasEnded, happened('succeeded')], [false, 0])
        release()
        await ended
        assert.equal(happened('succeeded'), 1)
        await carrier.stop()
        await broker.holds(queue, 0)
        assert.deepEqual([happened('stale'), message.attempt], [0, 1])
      })
    }

    it(`N4-4: a handler over ${name} that awaits its own ${isWorker ? 'stop' : 'drain'} goes on`, needs, async () => {
      const carrier = await connected(name)
      const ended = []
      let release
      const released = new Promise(resolve => { release = resolve })
      closing.push(release)
      let isOtherHere = false
      await carrier.begin(async ({ body }) => {
        if (String(body) === 'other') {
          isOtherHere = true
          await released
        } else {
          await until(() => isOtherHere, 'the other one has its message')
          if (isWorker) await carrier.worker.stop({ timeout: '60s' })
          else await Promise.all([carrier.retrier.drain(), carrier.retrier.drain({ timeout: '60s' })])
        }
        ended.push(String(body))
      })
      for (const body of ['stops', 'other']) await broker.publish(body, queue)
      await until(() => isOtherHere, 'the handlers run')
      if (!isWorker) {
        await broker.count(queue) // time for a drain that does not wait for the other one
        assert.deepEqual(ended, [])
        release()
      }
      await until(() => ended.includes('stops'), 'the handler that stops goes on')
      release()
      await (isWorker ? carrier.running : carrier.retrier.drain())
      await carrier.stop()
      assert.deepEqual([ended.sort(), happened('succeeded'), happened('stale')], [['other', 'stops'], 2, 0])
      await broker.holds(queue, 0)
    })

    it(`N4-6: ${name} settles a message without its prototype and its properties`, needs, async () => {
      const seen = []
      const carrier = await connected(name, { breaker: new Breaker('an API') })
      await carrier.begin(message => {
        const call = `${message.body} ${message.attempt}`
        seen.push(call)
        for (const property of ['history', 'signal', 'queue', 'redelivered']) {
          Object.defineProperty(message, property, { value: null })
        }
        Object.freeze(Object.setPrototypeOf(message, null))
        if (call === 'fails 1') throw new Error('no')
      })
      for (const body of ['fails', 'succeeds']) await broker.publish(body, queue)
      await until(() => happened('succeeded') === 2, () => events.join('\n'))
      assert.deepEqual(seen.sort(), ['fails 1', 'fails 2', 'succeeds 1'])
      assert.deepEqual([happened('retried'), happened('refused'), happened('stale')], [1, 0, 0])
      await broker.holds(queue, 0)
    })

    if (isWorker) continue

    it(`N4-1: a drained retrier over ${name} has closed its channels, and opens others`, needs, async () => {
      const carrier = await connected(name)
      const own = channelsOf(carrier)
      for (const messages of [1, 2]) {
        if (name !== 'wrap' || messages === 1) { // the application's consumer goes on
          await carrier.begin(({ attempt }) => {
            if (attempt === 1) throw new Error('no')
          })
        }
        await broker.publish('x', queue)
        await until(() => happened('succeeded') === messages, () => events.join('\n'))
        await carrier.retrier.drain()
        await until(() => channelsOf(carrier) === own, () => `${channelsOf(carrier)} channels, and not ${own}`)
      }
      assert.deepEqual(events.filter(({ level }) => level === 'warning' || level === 'error'), [])
      await broker.holds(queue, 0)
    })

    it(`N4-4: a drain over ${name} that waits long for a handler warns`, needs, async () => {
      const { carrier: { retrier }, release } = await running(name)
      const { setTimeout: timer } = globalThis
      mock.method(globalThis, 'setTimeout', (run, ms, ...rest) => timer(run, ms === 20_000 ? 1 : ms, ...rest))
      closing.push(() => mock.restoreAll())
      const drained = retrier.drain()
      const warning = await until(() => warnings.find(({ code }) => code === 'BACKHOP_DRAIN'), 'it warns')
      assert.match(warning.message,
        new RegExp(`^drain\\(\\) of queue "${queue}" has waited for 20 s, and a handler still runs: `))
      release()
      await drained
    })

    it(`D1: a drain over ${name} returns after a consume that rejected`, needs, async () => {
      const { retrier } = await connected(name, { mode: 'none' })
      await broker.channel.deleteQueue(queue)
      await assert.rejects(retrier.consume(() => {}), MissingError)
      await retrier.drain()
      assert.deepEqual(retrier._emitter.source.consumers().states, [])
      assert.equal(retrier._emitter.healths.size, 0)
    })

    if (name === 'wrap') {
      it('P4-1: handle of a retrier throws or rejects if work is returned that has not run', async () => {
        const { retrier, channel } = await connected(name)
        await broker.publish('x', queue)
        const message = retrier.read(await until(() => channel.get(queue), 'it arrives'))
        assert.throws(() => retrier.handle(message, () => () => {}),
          { name: 'ArgumentError', message: /returned a function/ })
        const promise = retrier.handle(message, async () => [Promise.resolve()])
        await assert.rejects(promise, { name: 'ArgumentError', message: /returned an array with promises/ })
        assert.equal(await retrier.handle(message, async () => [1]).then(([one]) => one), 1)
        retrier.settle(message)
      })

      continue // its channel is the application's
    }

    it(`cancelled consumers over ${name} leave no channel and no listener, without a drain`, needs, async () => {
      const carrier = await connected(name)
      const own = channelsOf(carrier)
      const listeners = () => carrier.connection.listenerCount('tag.change') // of node-amqp
      const listened = listeners()
      for (let count = 1; count <= 3; count++) {
        await carrier.begin(() => {})
        await broker.publish('x', queue)
        await until(() => happened('succeeded') === count, () => events.join('\n'))
        await carrier.consumer.cancel()
        await until(() => channelsOf(carrier) === own, () => `${channelsOf(carrier)} channels, and not ${own}`)
      }
      assert.equal(listeners(), listened)
      await broker.holds(queue, 0)
    })

    it(`W1: a consumer over ${name} that the broker cancels leaves no channel`, needs, async () => {
      let release
      const released = new Promise(resolve => { release = resolve })
      closing.push(release)
      const seen = []
      const carrier = await consuming(name, async ({ body }) => {
        seen.push(String(body))
        if (String(body) === 'slow') await released
      })
      const before = channelsOf(carrier)
      await broker.publish('slow', queue)
      await until(() => seen.includes('slow'), 'the handler has it')
      for (let count = 1; count <= 3; count++) {
        await broker.channel.deleteQueue(queue)
        await until(() => happened('cancelled') === count, 'the broker cancels it')
        await broker.channel.assertQueue(queue, { arguments: { 'x-queue-type': 'classic' } })
        await until(async () => (await broker.channel.checkQueue(queue)).consumerCount === 1, 'it consumes again')
        await broker.publish(`after ${count}`, queue)
        await until(() => seen.includes(`after ${count}`), 'it is handled')
      }
      release()
      await until(() => channelsOf(carrier) === before, () => `${channelsOf(carrier)} channels, and not ${before}`)
      assert.equal((await broker.channel.checkQueue(queue)).consumerCount, 1)
    })
  }

  // amqplib 2.3 throws a RangeError if it has to write more than 64 KiB of headers.
  it('W10: over amqplib a message with 70,000 bytes of headers stays, the next is retried', NEEDS_CLIENT, async () => {
    const long = content => {
      const size = Buffer.alloc(4)
      size.writeUInt32BE(content.length)
      return Buffer.concat([size, content])
    }
    const entry = Buffer.concat([Buffer.from('\x04longS'), long(Buffer.from('x'.repeat(70_000)))])
    const properties = Buffer.concat([Buffer.of(0x20, 0), long(entry)]) // headers alone
    const seen = []
    const carrier = await connected('promises', {}, amqplibUrl(URL))
    await carrier.begin(({ body, attempt, headers }) => {
      seen.push(`${body} ${attempt} ${headers.long?.length}`)
      if (attempt === 1) throw new Error('no')
    })
    const channel = await carrier.connection.createChannel()
    const message = { exchange: '', routingKey: queue, mandatory: false, properties, content: Buffer.from('large') }
    channel.connection.stream.write(frames(channel.ch, message, 131_072))
    const refused = await until(() => events.find(({ name }) => name === 'refused'), 'it is refused')
    assert.equal(refused.error.name, 'FrameError')
    await broker.publish('small', queue)
    await until(() => happened('succeeded'), () => events.join('\n'))
    assert.deepEqual(seen, ['large 1 70000', 'small 1 undefined', 'small 2 undefined'])
    assert.equal(happened('disconnected'), 0)
  })

  it('D1: a worker whose run rejected stops at once', { skip: !buildInfo().worker }, async () => {
    const worker = new Worker(URL, { queue: `${queue}.none`, policy: POLICY, namespace: broker.namespace })
    await assert.rejects(worker.run(() => {}), MissingError)
    await worker.stop()
  })

  it('N4-7: the warnings and events of a worker name its options', { skip: !buildInfo().worker }, async () => {
    const worker = new Worker(URL, {
      queue: `${queue}.none`, policy: POLICY, namespace: broker.namespace, onEvent: event => events.push(event)
    })
    await assert.rejects(worker.run(() => {}), /by workQueue: "quorum"/)
    const warning = await until(() => warnings.find(({ code }) => code === 'BACKHOP_DRAINED'), 'it warns')
    const { event } = warning
    for (const text of [warning.message, String(event), event.text, event.error.message]) {
      assert.match(text, /by workQueue: "quorum"/)
      assert.doesNotMatch(text, /work_queue|bh_/)
    }
  })
})
