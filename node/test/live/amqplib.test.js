'use strict'
// The retrier over amqplib's promises, on a broker: AMQP_URL names it.

const assert = require('node:assert/strict')
const { spawn } = require('node:child_process')
const { once } = require('node:events')
const path = require('node:path')
const { afterEach, beforeEach } = require('node:test')

const { Park } = require('backhop')
const { Retrier } = require('backhop/amqplib')

const { handling, testOver, warned, warnings } = require('./adapters')
const { Broker, LIMIT, NEEDS_BROKER, QUICK, URL, describe, it, until } = require('./broker')
const { CLIENTS } = require('./clients')

for (const client of ['amqplib, promises', 'amqplib, consume']) testOver(client)

describe('amqplib', NEEDS_BROKER, () => {
  let broker
  let consumer
  let queue

  beforeEach(async () => {
    warnings.length = 0
    broker = await Broker.connect()
    queue = await broker.queue()
    consumer = await CLIENTS['amqplib, promises'].connect(URL, queue, { policy: QUICK, namespace: broker.namespace })
    await consumer.retrier.declare()
  })

  afterEach(async () => {
    try {
      await consumer.stop()
    } finally {
      await broker.close()
    }
  }, { timeout: LIMIT })

  it('an error handler takes what a framework catches', async () => {
    const handle = consumer.retrier.errorHandler()
    await broker.publish('body', queue)
    const seen = []
    await consumer.channel.consume(queue, incoming => {
      seen.push(incoming.properties.headers['backhop-error'])
      return handle(consumer.channel, incoming, seen.length === 1 ? new Error('first') : undefined)
    })
    await broker.take(`${queue}.parked`, 1)
    assert.deepEqual(seen, [undefined, 'Error: first', 'the handler rejected without an error'])
  })

  it('a consumer that the broker cancels is told', async () => {
    const isCancelled = new Promise(resolve => {
      consumer.channel.consume(queue, consumer.retrier.wrap(() => {}, { cancelled: resolve }))
    })
    await until(async () => (await broker.channel.checkQueue(queue)).consumerCount === 1, 'it consumes')
    await broker.channel.deleteQueue(queue)
    await isCancelled
    await until(() => warned('the broker cancelled the consumer'), 'it is told')
  })

  it('what throws where it is told that the consumer is cancelled ends no connection', async () => {
    const listeners = process.listeners('uncaughtException')
    process.removeAllListeners('uncaughtException')
    const isThrown = new Promise(resolve => process.once('uncaughtException', resolve))
    const cancelled = () => { throw new Error('cancelled') }
    await consumer.channel.consume(queue, consumer.retrier.wrap(() => {}, { cancelled }))
    await broker.channel.deleteQueue(queue)
    const thrown = await isThrown
    for (const listener of listeners) process.on('uncaughtException', listener)
    assert.equal(thrown.message, 'cancelled')
    await consumer.channel.assertExchange('amq.direct', 'direct') // it is open
    assert.ok(consumer.isOpen)
  })

  it('a message whose channel or connection was closed before it failed is left to the broker', async () => {
    for (const [what, close] of [
      ['channel', ({ channel }) => channel.close()],
      ['connection', async other => {
        await other.connection.close()
        other.isOpen = false
      }]
    ]) {
      await broker.publish(what, queue)
      const other = await CLIENTS['amqplib, promises'].connect(URL, queue, { namespace: broker.namespace })
      let incoming
      await until(async () => (incoming = await other.channel.get(queue)))
      await close(other)
      const retrier = new Retrier(null, { queue, policy: QUICK, namespace: broker.namespace })
      retrier.errorHandler()(other.channel, incoming, new Park('why'))
      assert.equal(retrier.pending, 0, what)
      await retrier.drain({ timeout: '20s' })
      await until(async () => await broker.count(queue) === 1, `the ${what} gave it back`)
      await broker.holds(`${queue}.parked`, 0)
      await broker.take(queue, 1)
      if (other.isOpen) await other.connection.close()
    }
    assert.deepEqual(warnings, [])
  })

  it('a message is settled once', async () => {
    for (const thrown of [[], [new Park('why')]]) {
      await broker.publish('body', queue)
      const { retrier, channel } = consumer
      let incoming
      await until(async () => (incoming = await channel.get(queue)))
      const message = retrier.read(incoming)
      retrier.settle(message, ...thrown)
      retrier.settle(message, ...thrown)
      retrier.settle(message, new Park('again'))
      retrier.errorHandler()(channel, incoming, new Park('once more'))
      await retrier.drain({ timeout: '20s' })
      await channel.checkQueue(queue) // the channel is open
      const isParked = async () => await broker.count(`${queue}.parked`) === thrown.length
      await until(isParked, 'it is parked where it failed')
    }
    await broker.holds(queue, 0)
  })

  /**
   * A retrier's listener. Before it, another listener replaces the content of bad messages: no copy
   * can be written.
   */
  function breaking (handle) {
    const listener = consumer.retrier.wrap(handle)
    return incoming => listener(String(incoming.content) === 'bad' ? { ...incoming, content: 'parsed' } : incoming)
  }

  it('a copy that cannot be encoded leaves its original and confuses no other', async () => {
    await consumer.channel.consume(queue, breaking(() => { throw new Park('why') }))
    for (const body of ['one', 'bad', 'two', 'bad', 'three']) {
      await broker.publish(body, queue, { headers: { number: 1 } })
    }
    assert.deepEqual((await broker.bodies(`${queue}.parked`, 3)).sort(), ['one', 'three', 'two'])
    await until(() => warned('it stays unacknowledged') === 2, 'both are told')
    await consumer.stop()
    assert.deepEqual(await broker.bodies(queue, 2), ['bad', 'bad'])
  })

  it('read and settle serve who calls handlers himself', async () => {
    await broker.publish('ok', queue)
    await broker.publish('bad', queue)
    const { retrier } = consumer
    for (const thrown of [[], [new Park('why')]]) {
      let incoming
      await until(async () => (incoming = await consumer.channel.get(queue)))
      const message = retrier.read(incoming)
      assert.deepEqual(message.content, incoming.content)
      assert.equal(message.fields, incoming.fields)
      assert.equal(message.properties, incoming.properties)
      retrier.settle(message, ...thrown)
    }
    await retrier.drain({ timeout: '20s' })
    assert.deepEqual(await broker.bodies(`${queue}.parked`, 1), ['bad'])
    await broker.holds(queue, 0)
  })

  it('nothing keeps the process alive', async () => {
    await broker.channel.deleteQueue(`${queue}.parked`)
    await broker.publish('body', queue)
    const program = [path.join(__dirname, 'exits.js'), queue, broker.namespace]
    const child = spawn(process.execPath, program, { stdio: 'ignore' })
    assert.deepEqual(await once(child, 'exit'), [0, null])
    await until(() => broker.count(queue), 'its message is there')
  })

  it('what comes by a channel of others is acknowledged one by one', async () => {
    const other = await broker.queue()
    const held = []
    await consumer.channel.consume(other, message => held.push(message))
    await broker.publish('held', other)
    await until(() => held.length === 1, 'it is held')
    const handler = handling()
    await consumer.begin(handler)
    for (let i = 0; i < 10; i++) await broker.publish(String(i), queue)
    await handler.saw(10)
    await consumer.stop()
    await broker.holds(queue, 0)
    assert.deepEqual(await broker.bodies(other, 1), ['held'])
  })

  it('a message that is refused stays, whatever is acknowledged after it', async () => {
    let handled = 0
    await consumer.channel.consume(queue, breaking(({ content }) => {
      handled++
      if (content === 'parsed') throw new Park('why')
    }))
    for (const body of ['bad', 'one', 'two']) await broker.publish(body, queue, { headers: { number: 1 } })
    await until(() => handled === 3, 'all were handled')
    await until(() => warned('it stays unacknowledged') === 1, 'it is told')
    await consumer.stop()
    assert.deepEqual(await broker.bodies(queue, 1), ['bad'])
    await broker.holds(queue, 0)
  })

  it('the user\'s channel stays as it is', async () => {
    const handler = handling(new Park('why'))
    await consumer.begin(handler)
    await broker.publish('body', queue)
    await broker.take(`${queue}.parked`, 1)
    assert.equal(consumer.channel.listenerCount('return'), 0)
    consumer.channel.publish('', 'nowhere', Buffer.from('x')) // no confirms here
    await consumer.channel.checkQueue(queue)
    assert.deepEqual(consumer.channel.unconfirmed, [])
  })
})
