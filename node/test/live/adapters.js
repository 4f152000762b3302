'use strict'
// Possible faults of the retriers over each client, on a broker: AMQP_URL names it, as tests/broker/broker sets it. A file
// for each library registers these tests.

const assert = require('node:assert/strict')
const { once } = require('node:events')
const { afterEach, beforeEach, mock } = require('node:test')

const {
  AccessError, BrokerError, ClashError, ConnectionFailedError, Drop, MissingError, Park, Policy, RetryAfter
} = require('backhop')

const { inside } = require('../internals')
const {
  Broker, LIMIT, NEEDS_BROKER, NEEDS_CTL, QUICK, URL, VERSION, control, describe, importing, it, until, withStranger
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
  const declaresItself = client.endsWith('consume')

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

    it('a message comes back to its queue alone and is acknowledged', async () => {
      const [queue, sibling] = [await broker.queue(), await broker.queue()]
      const exchange = await broker.events('topic', [queue, sibling], 'order.*')
      const body = Buffer.from([0, 98, 255])
      await broker.publish(body, 'order.created', { exchange })
      const handler = handling(new TypeError('first'), new TypeError('second'))
      await consuming(queue, handler)
      await handler.saw(3)
      const { messages, times } = handler
      assert.deepEqual(messages.map(({ attempt }) => attempt), [1, 2, 3])
      assert.ok(messages.every(message => message.content.equals(body)))
      assert.ok(messages.every(message => message.exchange === exchange && message.routingKey === 'order.created'))
      assert.deepEqual(messages.map(({ lastError }) => lastError), ['', 'TypeError: first', 'TypeError: second'])
      assert.deepEqual(messages.map(({ lastDelay }) => lastDelay), [undefined, 100, 200])
      assert.deepEqual(messages[1].firstFailure, messages[2].firstFailure)
      assert.ok(Math.abs(messages[1].firstFailure - Date.now()) < 60_000)
      assert.equal(messages[2].delivery.routingKey, 'order.created')
      assert.ok(times[2] - times[1] >= 199)
      await isAcknowledged(queue)
      await broker.holds(sibling, 1)
      await broker.holds(`${queue}.parked`, 0)
    })

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

    it('a message without properties comes back', async () => {
      const queue = await broker.queue()
      await broker.publish('', queue, { deliveryMode: undefined })
      const handler = handling(new Error('no'))
      await consuming(queue, handler)
      await handler.saw(2)
      const { properties, header } = handler.messages[1].delivery
      assert.equal(typeof header, 'function')
      assert.deepEqual({ contentType: undefined, ...properties }, { contentType: undefined, deliveryMode: 2 })
    })

    it('a large message comes back as it was', async () => {
      const queue = await broker.queue()
      const body = Buffer.alloc(400_000, 'backhop ')
      await broker.publish(body, queue)
      const handler = handling(new Error('no'))
      await consuming(queue, handler)
      await handler.saw(2)
      assert.ok(handler.messages[1].content.equals(body))
    })

    it('never parks, and Drop keeps no copy', async () => {
      const dead = await broker.queue()
      const queue = await broker.queue({
        'x-queue-type': 'classic', 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': dead
      })
      await broker.publish('never', queue)
      await broker.publish('drop', queue)
      const handler = handling(new SyntaxError('x'), new Drop())
      await consuming(queue, handler, { never: [SyntaxError] })
      await handler.saw(2)
      const [{ content, properties: { headers } }] = await broker.take(`${queue}.parked`, 1)
      assert.deepEqual([content.toString(), headers['backhop-parked']], ['never', 'permanent'])
      assert.equal(headers['backhop-error'], 'SyntaxError: x')
      await isAcknowledged(queue)
      assert.deepEqual([await broker.count(`${queue}.parked`), await broker.count(dead)], [0, 0])
      assert.equal(handler.messages.length, 2)
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

    it('RetryAfter is a floor, on a rung that is declared on demand', async () => {
      const queue = await broker.queue()
      await broker.publish('', queue)
      const handler = handling(new RetryAfter(600, 'busy'))
      const policy = new Policy({ initial: 100, jitter: 'none', max: 100, maxRetryAfter: '10s' })
      await consuming(queue, handler, { policy })
      await handler.saw(2)
      assert.equal(handler.messages[1].lastDelay, 630)
      assert.ok(handler.times[1] - handler.times[0] >= 599)
      assert.equal((await broker.channel.checkQueue(`${broker.namespace}.wait.630`)).messageCount, 0)
      await assert.rejects(broker.channel.checkQueue(`${broker.namespace}.wait.800`), { code: 404 })
      await broker.count('any') // a channel again
    })

    it('a message that crashes its consumers is parked before the handler', async () => {
      const queue = await broker.queue()
      await broker.publish('', queue, { headers: { 'x-delivery-count': { '!': 'long', value: 1 }, 'backhop-crashes': 20 } })
      const handler = handling()
      await consuming(queue, handler)
      const [{ properties: { headers } }] = await broker.take(`${queue}.parked`, 1)
      assert.equal(headers['backhop-parked'], 'poison')
      assert.equal(handler.messages.length, 0)
      await until(() => warned('poison: its consumer was lost') === 1, 'it is told')
    })

    it('a stranger\'s header chooses no destination', async () => {
      const [queue, target] = [await broker.queue(), await broker.queue()]
      await broker.publish('', queue, {
        headers: {
          'backhop-queue': target,
          'backhop-routing-key': `backhop:${target}`,
          BCC: [target],
          ['__proto__']: { BCC: [target], CC: [target] },
          'backhop-attempts': 'many'
        }
      })
      await broker.take(target, 1) // by the BCC of the publish itself
      const handler = handling(new Error('no'), new Error('no'), new Error('no'))
      await consuming(queue, handler)
      await broker.take(`${queue}.parked`, 1)
      assert.equal(handler.messages.length, 3)
      await broker.holds(target, 0)
    })

    // Confirm, then acknowledge

    it('nothing is acknowledged before its copy is confirmed', async () => {
      const queue = await broker.queue()
      const count = 20
      await broker.publish('opens the channel that publishes', queue)
      let isHeld = false
      await consuming(queue, async message => {
        if (String(message.content) === String(count - 1) && !isHeld) {
          isHeld = true
          proxy.hold()
        }
        throw new Park('why')
      }, { url: proxy.url })
      await broker.take(`${queue}.parked`, 1)
      for (let i = 0; i < count; i++) await broker.publish(String(i), queue)
      // The last one's confirm is held.
      await until(async () => await broker.count(`${queue}.parked`) === count, 'all copies are there')
      assert.ok(isHeld)
      proxy.cut()
      if (isNodeAmqp) { // which consumes again
        await until(async () => await broker.count(`${queue}.parked`) > count, 'a copy came again')
      } else {
        await until(() => broker.count(queue), 'an original came back')
      }
      const bodies = await broker.bodies(`${queue}.parked`, count)
      assert.equal(new Set(bodies).size, count)
      await until(() => warned('the broker redelivers all unacknowledged messages'), 'the loss is told')
    })

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

    it('a returned copy is published again once its queue is there', async () => {
      const queue = await broker.queue()
      await consuming(queue, handling(new Park('a'), new Park('b')))
      await broker.channel.deleteQueue(`${queue}.parked`)
      await broker.publish('one', queue)
      await broker.publish('two', queue)
      await until(async () => await broker.count(`${queue}.parked`) === 2, 'both are parked')
      assert.ok(warned('the broker returned the copy'))
      assert.deepEqual((await broker.bodies(`${queue}.parked`, 2)).sort(), ['one', 'two'])
      await isAcknowledged(queue)
    })

    if (!declaresItself) it('a nacked copy is published again once there is room', async () => {
      const queue = await broker.queue()
      const args = { 'x-queue-type': 'classic', 'x-max-length': 1, 'x-overflow': 'reject-publish' }
      await broker.channel.assertQueue(`${queue}.parked`, { arguments: args })
      await broker.publish('full', `${queue}.parked`)
      await broker.publish('body', queue)
      const consumer = await connected(queue)
      await consumer.begin(handling(new Park('why')))
      await until(() => warned('the broker nacked the copy'), 'the nack is told')
      assert.deepEqual(await broker.bodies(`${queue}.parked`, 2), ['full', 'body'])
      await isAcknowledged(queue)
    })

    it('a copy that closes the channel stops no other', async () => {
      const queue = await broker.queue()
      const errors = [new Error('no'), ...Array.from({ length: 5 }, () => new Park('why'))]
      const handler = handling(...errors)
      await consuming(queue, handler)
      await broker.channel.deleteExchange(`${broker.namespace}.wait.100`)
      for (let i = 0; i < 6; i++) await broker.publish(String(i), queue)
      await handler.saw(7)
      await until(async () => await broker.count(`${queue}.parked`) === 5, 'the others are parked')
      assert.equal(String(handler.messages.at(-1).content), '0')
      assert.ok(warned('there is no channel to publish on'))
      await isAcknowledged(queue)
    })

    it('a copy that is not confirmed in time is published again', async () => {
      const queue = await broker.queue()
      await broker.publish('opens the channel that publishes', queue)
      const consumer = await consuming(queue, async message => {
        if (String(message.content) === 'body') proxy.hold()
        throw new Park('why')
      }, { url: proxy.url, confirmTimeout: 1000 })
      await broker.take(`${queue}.parked`, 1)
      await until(() => consumer.retrier.pending === 0, 'the first one is confirmed')
      warnings.length = 0
      await broker.publish('body', queue)
      await until(() => warned('was not confirmed within 1 s'), 'the timeout is told')
      proxy.release()
      await until(() => consumer.retrier.pending === 0, 'nothing is pending')
      await broker.take(`${queue}.parked`, 1)
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
      for (const event of ['error', 'close', 'open']) subscribed?.on(event, what => story.push(`queue ${event} ${what}`))
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
        const queues = control('rabbitmqctl', 'list_queues', 'name', 'messages_ready', 'messages_unacknowledged', 'consumers')
        error.message += `\n${bodies.size} are; ${retrier.pending} copies are pending\n${queues}${[...story, ...warnings].join('\n')}`
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

    // Strategies

    for (const strategy of ['message-ttl', 'reject', ...(VERSION >= 4.3 ? ['native'] : [])]) {
      it(`the strategy ${strategy} brings a message back until it is parked`, async () => {
        const queue = `${broker.namespace}.work`
        const policy = new Policy({ kind: 'fixed', initial: 200, jitter: 'none', maxAttempts: 3 })
        const handler = handling(new Error('no'), new Error('no'), new Error('no'))
        const consumer = await consuming(queue, handler, { policy, strategy, workQueue: 'quorum' })
        await broker.publish('body', queue)
        const [{ properties: { headers } }] = await broker.take(`${queue}.parked`, 1)
        assert.deepEqual(handler.messages.map(({ attempt }) => attempt), [1, 2, 3])
        assert.ok(handler.times.slice(1).every((time, i) => time - handler.times[i] >= 190))
        assert.equal(headers['backhop-parked'], 'exhausted')
        await isAcknowledged(queue)
        for (const declaration of consumer.retrier.topology.declarations) await broker.delete(declaration)
      })
    }

    for (const strategy of ['delayed-exchange', ...(VERSION < 4.3 ? ['native'] : [])]) {
      it(`the strategy ${strategy}, which the broker lacks, is refused`, async () => {
        const policy = new Policy({ kind: 'fixed', jitter: 'none' })
        const consumer = await connected(await broker.queue(), { policy, strategy })
        await assert.rejects(consumer.retrier.declare(), error => {
          return error instanceof BrokerError && /ladder/.test(error.message)
        })
      })
    }

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

    it('verifying says what is missing and what differs', async () => {
      const queue = await broker.queue()
      const { retrier } = await connected(queue)
      await assert.rejects(retrier.verify(), error => {
        assert.ok(error instanceof MissingError)
        assert.match(error.message, new RegExp(`exchange "${broker.namespace}.return"`))
        assert.match(error.message, new RegExp(`queue "${queue}.parked"`))
        return true
      })
      await broker.holds(`${queue}.parked`, 0)
      await retrier.declare()
      await retrier.verify()
      await broker.channel.deleteQueue(`${queue}.parked`)
      await broker.channel.assertQueue(`${queue}.parked`, { arguments: { 'x-queue-type': 'classic' } })
      for (const method of ['verify', 'declare']) {
        await assert.rejects(retrier[method](), error => {
          assert.ok(error instanceof ClashError)
          const text = `queue "${queue}.parked" exists with x-queue-type = classic, and quorum is needed`
          assert.ok(error.message.includes(text))
          return true
        })
      }
    })

    it('a missing work queue is named', async () => {
      const queue = `${broker.namespace}.none`
      const { retrier } = await connected(queue)
      await assert.rejects(retrier.declare(), error => {
        return error instanceof MissingError && /the work queue/.test(error.message)
      })
      await broker.channel.deleteQueue(`${queue}.parked`)
    })

    it('who may not declare is told what to do', NEEDS_CTL, async () => {
      const queue = await broker.queue()
      await withStranger(broker.namespace, async url => {
        const { retrier } = await connected(queue, { url })
        await assert.rejects(retrier.declare(), error => {
          assert.ok(error instanceof AccessError)
          assert.match(error.message, /grant the permission, or import topology\.definitions\(\) and use mode: 'verify'/)
          return true
        })
        await (await connected(queue)).retrier.declare()
        await retrier.verify()
      })
    })

    if (!declaresItself) it('rungs on demand are missing only to who may not make them', NEEDS_CTL, async () => {
      const queue = await broker.queue()
      const policy = new Policy({ initial: 100, jitter: 'none', max: 100, maxRetryAfter: 150 })
      const { retrier } = await connected(queue, { policy })
      await retrier.declare()
      await retrier.verify()
      await withStranger(broker.namespace, async url => {
        const consumer = await connected(queue, { policy, url })
        await assert.rejects(consumer.retrier.verify(), error => {
          assert.ok(error instanceof MissingError)
          const text = 'missing: 2 rungs that a handler\'s RetryAfter can need (maxRetryAfter: 0 needs none); '
          assert.equal(error.message, `${text}import topology.definitions()`)
          return true
        })
        importing(retrier.topology.definitions())
        await consumer.retrier.verify()
        const handler = handling(new RetryAfter(120))
        await consumer.begin(handler)
        await broker.publish('', queue)
        await handler.saw(2)
        assert.equal(handler.messages[1].lastDelay, 125)
        await isAcknowledged(queue)
      })
      for (const declaration of retrier.topology.declarations) await broker.delete(declaration)
    })

    it('parked messages are replayed to their queue alone', async () => {
      const [queue, sibling] = [await broker.queue(), await broker.queue()]
      const exchange = await broker.events('fanout', [queue, sibling])
      const handler = handling(new Park('why'), new Park('why'), new Park('why'))
      const { retrier } = await consuming(queue, handler)
      for (const body of ['0', '1', '2']) await broker.publish(body, 'key', { exchange })
      await until(async () => await broker.count(`${queue}.parked`) === 3, 'all are parked')
      assert.equal(await retrier.replay(2), 2)
      await handler.saw(5)
      assert.equal(await retrier.replay(), 1)
      await handler.saw(6)
      assert.equal(await retrier.replay(), 0)
      const again = handler.messages.slice(3)
      assert.ok(handler.messages.every(({ attempt }) => attempt === 1))
      assert.ok(again.every(message => message.exchange === exchange && message.routingKey === 'key'))
      assert.ok(again.every(message => message.lastError === ''))
      assert.deepEqual(again.map(({ content }) => String(content)), ['0', '1', '2'])
      await isAcknowledged(queue)
      await broker.holds(sibling, 3)
      await broker.holds(`${queue}.parked`, 0)
    })

    it('what came back while its queue was gone is replayed; what is another queue\'s stays, in order', async () => {
      const [queue, other] = [await broker.queue(), await broker.queue()]
      const [unroutable, comesBack] = ['unroutable', 'return'].map(name => `${broker.namespace}.${name}`)
      const handler = handling(new Error('first'))
      const { retrier } = await consuming(queue, handler)
      const arrived = count => until(async () => await broker.count(unroutable) === count, `${count} are unroutable`)
      const lose = body => broker.publish(body, '', { exchange: unroutable, headers: { 'backhop-queue': other } })
      await broker.channel.unbindQueue(queue, comesBack, `backhop:${queue}`) // as deleting the queue does
      await lose('0')
      await broker.publish('own', queue)
      await arrived(2)
      await lose('1')
      await retrier.declare()
      assert.equal(await retrier.replay(), 1)
      await handler.saw(2)
      const { content, attempt, history } = handler.messages[1]
      assert.deepEqual([String(content), attempt, history.replays], ['own', 2, 1])
      await arrived(2)
      assert.equal(await retrier.replay(), 0)
      assert.deepEqual(await broker.bodies(unroutable, 2), ['0', '1'])
    })

    it('replaying ends with what was parked when it began, however busy the broker is', async ({ mock }) => {
      const queue = await broker.queue()
      for (let i = 0; i < 3; i++) await broker.publish('', queue)
      const { retrier, channel } = await consuming(queue, () => { throw new Park('why') })
      const areParked = () => until(async () => await broker.count(`${queue}.parked`) === 3, 'all are parked')
      await areParked()
      const looks = channel ? [channel.constructor.prototype, 'checkQueue'] : [inside('adapters/amqp/declaring'), 'declareQueue']
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

    it('replaying without a topology leaves what is parked', async () => {
      const queue = await broker.queue()
      const { retrier } = await connected(queue)
      await assert.rejects(retrier.replay(), MissingError)
      await broker.channel.assertQueue(`${queue}.parked`, { arguments: { 'x-queue-type': 'classic' } })
      await broker.publish('body', `${queue}.parked`)
      await assert.rejects(retrier.replay(), { name: 'MissingError', message: /was declare\(\) forgotten\?/ })
      await until(async () => await broker.count(`${queue}.parked`) === 1, 'it is parked still')
      proxy.cut()
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

    it('drain waits for the handlers that run', async () => {
      const queue = await broker.queue()
      let finish
      const isCalled = new Promise(resolve => {
        finish = { called: resolve }
      })
      const { retrier } = await consuming(queue, () => new Promise((resolve, reject) => {
        finish.fail = () => reject(new Park('why'))
        finish.called()
      }))
      await broker.publish('body', queue)
      await isCalled
      await assert.rejects(retrier.drain({ timeout: 50 }), { name: 'WaitTimeoutError', code: 'BH_ERR_TIMEOUT' })
      const drained = retrier.drain()
      finish.fail()
      await drained
      await until(async () => await broker.count(`${queue}.parked`) === 1, 'it is parked')
    })
  })
}

module.exports = { handling, testOver, warned, warnings }
