'use strict'
// Possible faults of the retriers over each client, on a broker: AMQP_URL names it, as
// tests/broker/broker sets it. A file for each library registers these tests.

const assert = require('node:assert/strict')
const { once } = require('node:events')
const { afterEach, beforeEach, mock } = require('node:test')

const { ConnectionFailedError, Park, Policy } = require('backhop')

const { inside } = require('../internals')
const {
  Broker, LIMIT, NEEDS_BROKER, NEEDS_CTL, QUICK, URL, control, describe, it, until
} = require('./broker')
const { CLIENTS } = require('./clients')
const { Proxy } = require('./proxy')

const warnings = []
process.on('warning', ({ name, message }) => { if (name === 'BackhopWarning') warnings.push(message) })
process.on('unhandledRejection', error => { throw error })

const warned = text => warnings.filter(message => message.includes(text)).length

/** Returns a handler that throws these errors in turn, and keeps its messages. */
function handling (...errors) {
  const handler = async message => {
    handler.messages.push(message)
    handler.times.push(performance.now())
    const error = errors.shift()
    if (error) throw error
  }
  handler.messages = []
  handler.times = []
  handler.saw = count => until(() => handler.messages.length >= count, `the handler sees ${count}`)
  return handler
}

const FIRST = 'amqplib, promises' // the client of the fast profile

/** Registers the tests of a client of clients.js. */
function testOver (client) {
  const Consumer = CLIENTS[client]
  const isNodeAmqp = client.startsWith('node-amqp')

  describe(client, { ...NEEDS_BROKER, long: client !== FIRST }, () => {
    let broker
    let proxy
    let consumers
    let common

    beforeEach(async () => {
      warnings.length = 0
      consumers = []
      broker = await Broker.connect()
      proxy = await Proxy.to(URL)
      common = { policy: QUICK, namespace: broker.namespace }
    })

    afterEach(async () => {
      proxy.release()
      try {
        for (const consumer of consumers) await consumer.stop()
      } finally {
        proxy.close()
        await broker.close()
      }
    }, { timeout: LIMIT })

    async function connected (queue, { url = URL, ...options } = {}) {
      const consumer = await Consumer.connect(url, queue, { ...common, ...options })
      consumers.push(consumer)
      return consumer
    }

    async function consuming (queue, handler, options) {
      const consumer = await connected(queue, options)
      await consumer.retrier.declare()
      await consumer.begin(handler)
      return consumer
    }

    /** All that was in hand is acknowledged. */
    async function isAcknowledged (queue) {
      for (; consumers.length; consumers.shift()) await consumers[0].stop()
      await broker.holds(queue, 0)
    }

    it('properties and headers are kept', async () => {
      const [queue, original] = [await broker.queue(), await broker.queue()]
      const headers = {
        text: 'grün',
        binary: Buffer.from([255, 0]),
        byte: 7,
        minus: -4711,
        large: 2 ** 40,
        fraction: 1.25,
        true: true,
        nothing: null,
        moment: { '!': 'timestamp', value: 1_767_323_045 },
        decimal: { '!': 'decimal', value: { places: 2, digits: 125 } },
        table: { deep: { list: [1, 'two', { three: Buffer.from([254]) }, null] }, empty: {} },
        list: []
      }
      if (isNodeAmqp) headers.minus = { '!': 'int', value: -4711 } // node-amqp cannot read shorter ones
      const properties = {
        contentType: 'text/plain',
        contentEncoding: 'utf-8',
        priority: 3,
        correlationId: 'correlation',
        replyTo: 'answers',
        messageId: 'message 1',
        timestamp: 1_767_323_045,
        type: 'kind',
        appId: 'shop'
      }
      for (const each of [queue, original]) {
        const others = { userId: 'guest', expiration: '600000', deliveryMode: 1 }
        await broker.publish('', each, { ...properties, ...others, headers })
      }
      await consuming(queue, handling(new Park('why')))
      const [parked] = await broker.take(`${queue}.parked`, 1)
      const [before] = await broker.take(original, 1)
      const isOwn = ([name]) => name.startsWith('backhop-')
      const all = Object.entries(parked.properties.headers)
      const kept = all.filter(([name]) => name in headers) // RabbitMQ 3.10 counts deliveries of the parked queue, too
      assert.deepEqual(Object.fromEntries(kept), before.properties.headers)
      for (const [name, value] of Object.entries(properties)) assert.equal(parked.properties[name], value, name)
      const { deliveryMode, userId, expiration } = parked.properties
      assert.deepEqual([deliveryMode, userId, expiration], [2, undefined, undefined])
      const { 'backhop-first-failure': first, ...own } = Object.fromEntries(all.filter(isOwn))
      assert.ok(Math.abs(first - Date.now()) < 60_000)
      assert.deepEqual(own, {
        'backhop-queue': queue,
        'backhop-attempts': 1,
        'backhop-id': 'message 1',
        'backhop-exchange': '',
        'backhop-routing-key': queue,
        'backhop-error': 'why',
        'backhop-expiration': '600000',
        'backhop-user-id': 'guest',
        'backhop-parked': 'permanent'
      })
    })

    it('a result whose then throws is a failure, and stops nothing', async () => {
      const queue = await broker.queue()
      for (const body of ['bad', 'good']) await broker.publish(body, queue)
      const seen = []
      await consuming(queue, message => {
        seen.push(message.lastError)
        if (String(message.content) === 'good') return
        if (message.attempt === 1) return { get then () { throw new Error('get') } }
        return { then () { throw new Error('call') } }
      })
      const [{ content, properties: { headers } }] = await broker.take(`${queue}.parked`, 1)
      assert.deepEqual([String(content), headers['backhop-error']], ['bad', 'Error: call'])
      assert.ok(seen.includes('Error: get'))
      await isAcknowledged(queue)
    })

    it('a stranger\'s tables that look like tagged values come back, and are parked', async () => {
      const [queue, original] = [await broker.queue(), await broker.queue()]
      const table = value => ({ '!': 'object', value })
      const all = [
        ['void', 1], ['bytes', 'x'], ['byte', 70_000], ['uint64', 2 ** 60], ['long', 5], ['string', 'x'],
        ['timestamp', -5], ['decimal', table({ places: 1, digits: -1 })]
      ].map(([type, value]) => table({ '!': type, value }))
      const bare = { '!': 'double', value: -1e300 }
      for (const each of [queue, original]) await broker.publish('', each, { headers: { all, bare } })
      const handler = handling(new Error('no'), new Error('no'), new Error('no'))
      await consuming(queue, handler)
      const [parked] = await broker.take(`${queue}.parked`, 1)
      const [before] = await broker.take(original, 1)
      assert.deepEqual(parked.properties.headers.all, before.properties.headers.all)
      assert.deepEqual(parked.properties.headers.bare, -1e300)
      assert.equal(handler.messages.length, 3)
      await isAcknowledged(queue)
    })

    it('a handler may throw at once, reject with nothing, or return nothing', async () => {
      const queue = await broker.queue()
      await broker.publish('body', queue)
      const seen = []
      await consuming(queue, message => {
        seen.push(message.lastError)
        if (message.attempt === 1) throw new RangeError('at once')
        return message.attempt === 2 ? Promise.reject() : undefined
      })
      await until(() => seen.length === 3)
      assert.deepEqual(seen, ['', 'RangeError: at once', 'the handler rejected without an error'])
      await isAcknowledged(queue)
    })

    // Confirm, then acknowledge

    it('a burst of failures waits for no confirm', async () => {
      const queue = await broker.queue()
      const count = 80
      const waiting = []
      await broker.publish('opens the channel that publishes', queue)
      const { retrier } = await consuming(queue, async message => {
        if (message.body.length < 3) await new Promise(resolve => waiting.push(resolve))
        throw new Park('why')
      }, { url: proxy.url })
      await broker.take(`${queue}.parked`, 1)
      await until(() => retrier.pending === 0, 'the first one is confirmed')
      for (let i = 0; i < count; i++) await broker.publish(String(i), queue)
      await until(() => waiting.length === count, 'all are in hand')
      proxy.hold()
      for (const go of waiting) go()
      await broker.holds(`${queue}.parked`, count)
      assert.equal(retrier.pending, count)
      proxy.release()
      await retrier.drain({ timeout: '20s' })
      assert.equal(retrier.pending, 0)
      await isAcknowledged(queue)
    })

    it('B1: a broker that confirms nothing for long gets one copy more for each timeout', { long: true }, async () => {
      const queue = await broker.queue()
      const count = 20
      await broker.publish('opens the channel that publishes', queue)
      const events = []
      const waiting = []
      const consumer = await consuming(queue, async message => {
        if (message.body.length < 3) await new Promise(resolve => waiting.push(resolve))
        throw new Park('why')
      }, { url: proxy.url, confirmTimeout: 1000, onEvent: event => events.push(event) })
      await broker.take(`${queue}.parked`, 1)
      await until(() => consumer.retrier.pending === 0, 'the first one is confirmed')
      const timeouts = () => events.filter(({ name }) => name === 'unconfirmed').length
      for (let i = 0; i < count; i++) await broker.publish(String(i), queue)
      await until(() => waiting.length === count, 'all are in hand')
      proxy.hold()
      for (const go of waiting) go()
      await until(() => timeouts() >= 4, 'the timeouts are told')
      assert.equal(consumer.retrier.pending, count)
      proxy.release()
      await until(() => consumer.retrier.pending === 0, 'nothing is pending')
      const parked = events.filter(({ name }) => name === 'parked').slice(1)
      assert.equal(parked.length, count) // each once, however many copies of it were confirmed
      assert.equal(new Set(parked.map(({ id }) => id)).size, count)
      const copies = await broker.all(`${queue}.parked`)
      assert.equal(new Set(copies).size, count)
      assert.ok(copies.length <= count + timeouts(), `${copies.length} copies, ${timeouts()} timeouts`)
      await isAcknowledged(queue)
    })

    it('a broker that is killed loses nothing', { ...NEEDS_CTL, long: true }, async () => {
      const queue = await broker.queue({ 'x-queue-type': 'quorum' })
      const options = { policy: new Policy({ maxAttempts: 1, maxRetryAfter: 0 }) } // and no wait queue: if one is
      // deleted just after a restart, RabbitMQ 3.10 dead-letters no more, and then declares none
      const consume = () => consuming(queue, async () => { throw new Park('why') }, options)
      let consumer = await consume()
      const { connection, retrier, subscribed } = consumer
      const story = [] // for who reads why it failed
      for (const event of ['error', 'close', 'ready']) connection.on(event, what => story.push(`${event} ${what}`))
      for (const event of ['error', 'close', 'open']) {
        subscribed?.on(event, what => story.push(`queue ${event} ${what}`))
      }
      control('save')
      for (let i = 0; i < 20; i++) await broker.publish(String(i), queue, { persistent: true })
      control('kill')
      control('start')
      await broker.reconnect()
      const isConsuming = async () => {
        if (isNodeAmqp || consumer.isOpen) return true // node-amqp consumes again by itself
        await consume().then(again => { consumer = again }, ({ message }) => { story.push(message) })
      }
      await until(isConsuming, 'the queue has a leader')
      const bodies = new Set()
      await broker.consume(`${queue}.parked`, ({ content }) => bodies.add(String(content)))
      await until(async () => await isConsuming() && bodies.size === 20, 'all are parked').catch(error => {
        const columns = ['name', 'messages_ready', 'messages_unacknowledged', 'consumers']
        const queues = control('rabbitmqctl', 'list_queues', ...columns)
        error.message += `\n${bodies.size} are; ${retrier.pending} copies are pending\n${queues}`
        error.message += [...story, ...warnings].join('\n')
        throw error
      })
    })

    it('a broker that blocks publishers multiplies no copy', { ...NEEDS_CTL, long: true }, async () => {
      const queue = await broker.queue()
      await broker.publish('opens the channel that publishes', queue)
      let isBlocking = false
      let goOn
      const consumer = await consuming(queue, async ({ body }) => {
        if (String(body) === 'later') await new Promise(resolve => { goOn = resolve })
        else if (isBlocking) control('set-alarm')
        throw new Park('why')
      })
      const { retrier } = consumer
      await broker.take(`${queue}.parked`, 1)
      await until(() => retrier.pending === 0, 'the first one is confirmed')
      await broker.channel.purgeQueue(`${queue}.parked`) // of its copies, had it been late
      warnings.length = 0
      isBlocking = true
      await broker.publish('later', queue)
      await until(() => goOn, 'it is in hand')
      try {
        await Promise.all([once(consumer.connection, 'blocked'), broker.publish('body', queue)])
        const now = performance.now.bind(performance)
        mock.method(performance, 'now', () => now() + 60_000) // later than the confirm timeout
        goOn() // so that the retrier looks at its clock
        await until(() => retrier.pending === 2, 'both are pending')
        await new Promise(setImmediate)
        assert.equal(warned('not confirmed within'), 0)
      } finally {
        control('clear-alarm')
        mock.restoreAll()
      }
      await until(() => retrier.pending === 0, 'nothing is pending')
      assert.deepEqual((await broker.bodies(`${queue}.parked`, 2)).sort(), ['body', 'later'])
      await isAcknowledged(queue)
      await broker.holds(`${queue}.parked`, 0)
    })

    // Declaring and replaying

    it('S1: a further queue of a namespace declares its own part alone', async () => {
      const { retrier, channel, connection } = await connected(await broker.queue())
      await retrier.declare()
      const wrapped = await retrier._connection()
      const open = wrapped.openChannel
      const declared = new Set()
      wrapped.openChannel = async () => {
        const opened = await open.call(wrapped)
        const declare = opened.declare
        opened.declare = step => {
          declared.add(step.declaration.name)
          return declare.call(opened, step)
        }
        return opened
      }
      const queue = await broker.queue()
      await new retrier.constructor(channel ?? connection, { ...common, queue }).declare()
      assert.deepEqual(declared, new Set([queue, `${queue}.parked`]))
    })

    it('replaying ends with what was parked when it began, however busy the broker is', async ({ mock }) => {
      const queue = await broker.queue()
      for (let i = 0; i < 3; i++) await broker.publish('', queue)
      const { retrier, channel } = await consuming(queue, () => { throw new Park('why') })
      const areParked = () => until(async () => await broker.count(`${queue}.parked`) === 3, 'all are parked')
      await areParked()
      const looks = channel
        ? [channel.constructor.prototype, 'checkQueue']
        : [inside('adapters/amqp/declaring'), 'declareQueue']
      mock.method(...looks, () => { throw new Error('of a quorum queue, a busy broker tells 0') })
      try {
        assert.equal(await retrier.replay(0), 0)
        assert.equal(await retrier.replay(), 3)
      } finally {
        mock.restoreAll()
      }
      await areParked()
      await isAcknowledged(queue)
    })

    it('a lost connection ends a replay', async () => {
      const queue = await broker.queue()
      const consumer = await connected(queue, { url: proxy.url })
      await consumer.retrier.declare()
      await broker.publish('body', `${queue}.parked`)
      proxy.hold()
      const replayed = consumer.retrier.replay()
      proxy.cut()
      await assert.rejects(replayed, ConnectionFailedError)
      await until(async () => await broker.count(`${queue}.parked`) === 1, 'it is parked still')
    })

    it('a handler that ends after its connection is lost leaves nothing pending', async () => {
      const queue = await broker.queue()
      const ends = []
      const consumer = await consuming(queue, () => new Promise((resolve, reject) => ends.push({ resolve, reject })), {
        url: proxy.url
      })
      await broker.publish('fails', queue)
      await broker.publish('ends', queue)
      await until(() => ends.length === 2, 'both came')
      const isLost = new Promise(resolve => consumer.connection.once('close', resolve))
      proxy.cut()
      await isLost
      ends[0].reject(new Park('why'))
      ends[1].resolve()
      if (isNodeAmqp) {
        await until(() => ends.length === 4, 'both came again')
        for (const { resolve } of ends) resolve()
      }
      await consumer.retrier.drain({ timeout: '20s' })
      assert.equal(consumer.retrier.pending, 0)
      if (!isNodeAmqp) await until(async () => await broker.count(queue) === 2, 'both are there')
      await broker.holds(`${queue}.parked`, 0)
    })

    it('a connection that is closed is told', async () => {
      const consumer = await connected(await broker.queue())
      await consumer.retrier.declare()
      await consumer.stop()
      consumers.pop()
      await assert.rejects(consumer.retrier.declare(), ConnectionFailedError)
      await assert.rejects(consumer.retrier.replay(), ConnectionFailedError)
      await consumer.retrier.drain()
    })
  })
}

module.exports = { handling, testOver, warned, warnings }
