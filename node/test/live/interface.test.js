'use strict'
// Edges of the interface that applications meet, on a broker: AMQP_URL names it.

const assert = require('node:assert/strict')
const { AsyncLocalStorage } = require('node:async_hooks')
const { spawn } = require('node:child_process')
const { once } = require('node:events')
const { afterEach, beforeEach } = require('node:test')

const amqp = require('amqp')
const amqplib = require('amqplib')

const { ConnectionFailedError, Policy, Worker, buildInfo } = require('backhop')
const { Retrier: AmqpRetrier } = require('backhop/amqp')
const { Retrier } = require('backhop/amqplib')

const {
  Broker, LIMIT, NEEDS_BROKER, NEEDS_CTL, QUICK, URL, amqplibUrl, control, describe, it, until
} = require('./broker')
const { CLIENTS } = require('./clients')
const { Proxy } = require('./proxy')

const NEEDS_WORKER = buildInfo().worker ? {} : { skip: 'built without librabbitmq' }
const warnings = []
process.on('warning', ({ name, message }) => { if (name === 'BackhopWarning') warnings.push(message) })
const warned = text => until(() => warnings.find(message => message.includes(text)), `it warns: ${text}`)

describe('the interface', NEEDS_BROKER, () => {
  let broker
  let closing
  let common

  beforeEach(async () => {
    warnings.length = 0
    closing = []
    broker = await Broker.connect()
    common = { policy: QUICK, namespace: broker.namespace }
  })

  afterEach(async () => {
    try {
      for (const close of closing.reverse()) await close()
    } finally {
      await broker.close()
    }
  }, { timeout: LIMIT })

  async function channelOf () {
    const connection = await amqplib.connect(amqplibUrl(URL))
    connection.on('error', () => {})
    closing.push(() => connection.close().catch(() => {}))
    const channel = await connection.createChannel()
    channel.on('error', () => {})
    return { connection, channel }
  }

  async function nodeAmqp () {
    const connection = amqp.createConnection({ url: URL.replace(/\/$/, '') }, { reconnect: false })
    connection.on('error', () => {})
    await once(connection, 'ready')
    closing.push(() => {
      connection.disconnect()
      connection.socket.destroy()
    })
    return connection
  }

  it('N1: a retrier without a channel of its own heals once it has declared with one', async () => {
    const queue = await broker.queue()
    const { channel } = await channelOf()
    const retrier = new Retrier(null, { queue, ...common })
    await assert.rejects(retrier.declare(), /the retrier has no channel: give one/)
    await retrier.declare(channel)
    await broker.channel.deleteExchange(`${broker.namespace}.wait.100`)
    const handle = retrier.errorHandler()
    await broker.publish('body', queue)
    let failures = 0
    const done = new Promise(resolve => {
      channel.consume(queue, message => {
        if (failures++) {
          channel.ack(message)
          resolve()
        } else {
          handle(channel, message, new Error('no'))
        }
      })
    })
    await done
    assert.equal(failures, 2)
  })

  it('N2: a retrier names its queue once, and consumes that alone', async () => {
    const [a, b] = [await broker.queue(), await broker.queue()]
    const { channel } = await channelOf()
    const seen = []
    const consumers = []
    for (const queue of [a, b]) {
      const retrier = new Retrier(channel, { queue, ...common })
      consumers.push(await retrier.consume(message => {
        seen.push([queue, message.queue, String(message.body)])
        if (message.attempt < 3) throw new Error('no')
      }))
    }
    await broker.publish('for b', b)
    await until(() => seen.length === 3)
    assert.deepEqual(seen, Array(3).fill([b, b, 'for b']))
    for (const consumer of consumers) await consumer.cancel()
  })

  it('N2: over node-amqp a delivery of another queue is left alone, and the warning says why', {
    long: true
  }, async () => {
    const [own, other] = [await broker.queue(), await broker.queue()]
    const connection = await nodeAmqp()
    const retrier = await AmqpRetrier.declare(connection, { queue: own, ...common })
    let handled = 0
    const listener = retrier.wrap(() => { handled++ })
    await new Promise(resolve => {
      connection.queue(other, { passive: true, autoDelete: false }, queue => {
        queue.subscribe({ ack: true, prefetchCount: 10 }, listener).addCallback(resolve)
      })
    })
    await broker.publish('body', other)
    await warned(`the message came from the queue "${other}", and the retrier is for the queue "${own}"`)
    assert.equal(handled, 0)
  })

  it('over node-amqp a subscription without ack is refused before a handler fails in vain', {
    long: true
  }, async () => {
    const own = await broker.queue()
    const connection = await nodeAmqp()
    const retrier = await AmqpRetrier.declare(connection, { queue: own, ...common })
    let handled = 0
    const listener = retrier.wrap(() => { handled++ })
    await new Promise(resolve => {
      connection.queue(own, { passive: true, autoDelete: false }, queue => {
        queue.subscribe({}, listener).addCallback(resolve)
      })
    })
    await broker.publish('body', own)
    await warned(`the consumer of "${own}" gets its messages without acknowledgements`)
    assert.equal(handled, 0)
  })

  it('a consumer with noAck, and a ported handler that acknowledges, are told why the channel closed', async () => {
    for (const [options, handle] of [
      [{ noAck: true }, () => () => {}], [{}, channel => message => { channel.ack(message) }]
    ]) {
      warnings.length = 0
      const queue = await broker.queue()
      const { channel } = await channelOf()
      const retrier = await Retrier.declare(channel, { queue, ...common })
      const closed = new Promise(resolve => channel.once('close', resolve))
      await channel.consume(queue, retrier.wrap(handle(channel)), options)
      await broker.publish('body', queue)
      await closed
      await warned('was acknowledged or rejected twice, or needs no acknowledgement: consume with noAck: false')
    }
  })

  for (const client of ['amqplib, consume', 'node-amqp, consume']) {
    const needs = { long: client !== 'amqplib, consume' }

    if (client.endsWith('consume')) {
      it(`${client}: W3: a stream is no work queue`, { long: true, real: true }, async () => {
        const queue = `${broker.namespace}.stream`
        await broker.channel.assertQueue(queue, { durable: true, arguments: { 'x-queue-type': 'stream' } })
        const made = await CLIENTS[client].connect(URL, queue, common)
        closing.push(() => made.stop())
        await assert.rejects(made.begin(() => {}), { name: 'ClashError', message: /is a stream/ })
        await broker.channel.deleteQueue(queue)
        await broker.channel.deleteQueue(`${queue}.parked`)
      })
    }

    it(`${client}: cancelled, it takes no more, and what was in hand is settled`, needs, async () => {
      const queue = await broker.queue()
      const consumer = await CLIENTS[client].connect(URL, queue, common)
      closing.push(() => consumer.stop())
      const seen = []
      let release
      await consumer.begin(async message => {
        seen.push(message)
        await new Promise(resolve => { release = resolve })
      })
      await broker.publish('in hand', queue)
      await until(() => release)
      assert.equal(seen[0].signal.aborted, false)
      await consumer.consumer.cancel()
      assert.equal(seen[0].signal.aborted, true)
      await broker.publish('later', queue)
      release()
      await consumer.retrier.drain()
      assert.equal(await consumer.consumer.closed, undefined)
      assert.deepEqual(await broker.bodies(queue, 1), ['later'])
      assert.equal(seen.length, 1)
    })
  }

  it('amqplib 2: its own recovery brings a consumer back, with a retrier of its own', async () => {
    const queue = await broker.queue()
    const proxy = await Proxy.to(URL)
    closing.push(() => proxy.close())
    const seen = []
    let consuming = 0
    const setup = async connection => {
      const channel = await connection.createChannel()
      channel.on('error', () => {})
      await new Retrier(channel, { queue, ...common }).consume(message => { seen.push(String(message.body)) })
      consuming++
    }
    const connection = await amqplib.connect(amqplibUrl(proxy.url), { recovery: { initialDelay: 50, setup } })
    if (!connection.waitForConnect) { // amqplib before its version 2 has none
      await connection.close()
      return
    }
    connection.on('error', () => {})
    closing.push(() => connection.close())
    await until(() => consuming === 1)
    proxy.cut()
    await until(() => consuming === 2)
    await broker.publish('again', queue)
    await until(() => seen.includes('again'))
  })

  /** Keeps all fields of a message, and the second attempt ends it. */
  it('a handler runs in the async context in which its message came, or its worker was run', NEEDS_WORKER, async () => {
    const storage = new AsyncLocalStorage()
    const queue = await broker.queue()
    const { channel } = await channelOf()
    const retrier = await Retrier.declare(channel, { queue, ...common })
    const seen = []
    const wrapped = retrier.wrap(async message => {
      seen.push([String(message.body), storage.getStore()])
      await new Promise(setImmediate)
      seen.push([String(message.body), storage.getStore()])
    })
    const traced = message => storage.run(String(message.content), () => wrapped(message)) // as tracing does
    await channel.consume(queue, traced)
    for (let i = 0; i < 20; i++) await broker.publish(`m${i}`, queue)
    await until(() => seen.length === 40)
    for (const [body, store] of seen) assert.equal(store, body)
    await retrier.drain()

    const other = await broker.queue()
    const worker = new Worker(URL, { queue: other, namespace: broker.namespace, policy: QUICK })
    const store = new Promise(resolve => { storage.run('run', () => worker.run(() => resolve(storage.getStore()))) })
    await broker.publish('body', other)
    assert.equal(await store, 'run')
    await worker.stop()
  })

  it('a worker aborts its handlers as it stops, and its disposal waits for them', NEEDS_WORKER, async () => {
    const queue = await broker.queue()
    const worker = new Worker(URL, { queue, policy: QUICK, namespace: broker.namespace })
    let isAborted = false
    const begun = new Promise(resolve => {
      worker.run(message => new Promise(end => {
        message.signal.addEventListener('abort', () => {
          isAborted = true
          end()
        })
        resolve()
      }))
    })
    await broker.publish('body', queue)
    await begun
    await worker[Symbol.asyncDispose ?? 'stop']()
    assert.ok(isAborted)
    await broker.holds(queue, 0)
  })

  it('a handler that ends after its worker stopped is told what that means', NEEDS_WORKER, async () => {
    const queue = await broker.queue()
    const worker = new Worker(URL, { queue, policy: QUICK, namespace: broker.namespace })
    worker.on('drained', () => {})
    const stale = once(worker, 'stale')
    let release
    const running = worker.run(() => new Promise(resolve => { release = resolve }))
    await broker.publish('body', queue)
    await until(() => release)
    await assert.rejects(worker.stop({ timeout: 0 }), { name: 'WaitTimeoutError' })
    await running
    release()
    const [{ text }] = await stale
    assert.match(text, /its handler ended after the worker had stopped: the broker delivers it again/)
    assert.doesNotMatch(text, /called at the wrong time|bh_/)
  })

  it('two workers in one process drain at one SIGTERM, and other listeners hear it', {
    ...NEEDS_WORKER, timeout: LIMIT
  }, async () => {
    const queues = [await broker.queue(), await broker.queue()]
    const code = `
      const { Worker } = require('backhop')
      const before = process.listenerCount('SIGTERM')
      process.on('SIGTERM', () => console.log('mine'))
      const { namespace, queues, url } = JSON.parse(process.argv[1])
      Promise.all(queues.map(async queue => {
        const worker = new Worker(url, { queue, namespace })
        worker.on('drained', () => {})
        await worker.run(async ({ signal }) => {
          console.log('begun')
          await new Promise(resolve => signal.addEventListener('abort', resolve))
          console.log('ended')
        }, { signals: true })
      })).then(() => console.log('drained', process.listenerCount('SIGTERM') - before))`
    const args = ['-e', code, JSON.stringify({ ...common, queues, url: URL })]
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] })
    let out = ''
    child.stdout.on('data', text => { out += text })
    for (const queue of queues) await broker.publish('body', queue)
    await until(() => out.split('begun').length === 3, 'both handle')
    child.kill('SIGTERM')
    const [status] = await once(child, 'exit')
    assert.equal(status, 0)
    assert.deepEqual(out.trim().split('\n').sort(), ['begun', 'begun', 'drained 1', 'ended', 'ended', 'mine'])
    for (const queue of queues) await broker.holds(queue, 0)
  })

  it('a policy of errors: a class, a predicate and a delay decide', async () => {
    const queue = await broker.queue()
    const { channel } = await channelOf()
    const policy = new Policy({ initial: 100, jitter: 'none', maxAttempts: 3, maxRetryAfter: '10s' })
    const retrier =
      new Retrier(channel, { queue, ...common, policy, only: [RangeError, error => error.status === 503 && 300] })
    const seen = []
    const consumer = await retrier.consume(message => {
      seen.push([String(message.body), message.lastDelay])
      if (message.attempt > 1) return
      if (String(message.body) === 'range') throw new RangeError('again')
      if (String(message.body) === 'busy') throw Object.assign(new Error('busy'), { status: 503 })
      throw new TypeError('never again')
    })
    for (const body of ['range', 'busy', 'type']) await broker.publish(body, queue)
    const [parked] = await broker.take(`${queue}.parked`, 1)
    assert.equal(parked.properties.headers['backhop-error'], 'TypeError: never again')
    await until(() => seen.length === 5)
    assert.deepEqual(new Map(seen.slice(3)), new Map([['range', 100], ['busy', 315]]))
    await consumer.cancel()
  })

  it('amqplib: a broker that restarts ends a consumer whose connection it took', {
    ...NEEDS_CTL, long: true
  }, async () => {
    const queue = await broker.queue({ 'x-queue-type': 'quorum' })
    const { channel } = await channelOf()
    const policy = new Policy({ maxAttempts: 1, maxRetryAfter: 0 }) // and no wait queue: if one is deleted just after a
    // restart, RabbitMQ 3.10 and 4.0 dead-letter no more. They have no leader for a queue that
    // does.
    const consumer = await new Retrier(channel, { queue, ...common, policy }).consume(() => {})
    control('kill')
    assert.ok(await consumer.closed instanceof ConnectionFailedError)
    control('start')
    await broker.reconnect()
  })
})
