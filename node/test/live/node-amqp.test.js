'use strict'
// The retrier over node-amqp, on a broker: AMQP_URL names it.

const assert = require('node:assert/strict')
const { afterEach, beforeEach } = require('node:test')

const { ConnectionFailedError, Park } = require('backhop')

const { handling, testOver, warned, warnings } = require('./adapters')
const { Broker, LIMIT, NEEDS_BROKER, QUICK, URL, describe, it, until } = require('./broker')
const { CLIENTS } = require('./clients')
const { Proxy } = require('./proxy')

for (const client of ['node-amqp', 'node-amqp, consume']) testOver(client)

describe('node-amqp', { ...NEEDS_BROKER, long: true }, () => {
  let broker
  let proxy
  let consumer
  let queue

  beforeEach(async () => {
    warnings.length = 0
    broker = await Broker.connect()
    proxy = await Proxy.to(URL)
    queue = await broker.queue()
    const options = { policy: QUICK, namespace: broker.namespace, confirmTimeout: 1000 }
    consumer = await CLIENTS['node-amqp'].connect(proxy.url, queue, options)
    await consumer.retrier.declare()
  })

  afterEach(async () => {
    proxy.release()
    try {
      await consumer.stop()
      await broker.holds(queue, 0)
    } finally {
      proxy.close()
      await broker.close()
    }
  }, { timeout: LIMIT })

  it('acknowledges no delivery of a lost connection on the new one', async () => {
    const seen = []
    const ends = []
    await consumer.begin(message => {
      seen.push(message)
      return new Promise((resolve, reject) => ends.push({ resolve, reject }))
    })
    await broker.publish('body', queue)
    await until(() => seen.length === 1, 'it came')
    proxy.cut()
    await until(() => seen.length === 2, 'it came again')
    ends[0].resolve()
    await until(() => !consumer.retrier.pending, 'nothing is pending')
    await broker.publish('another', queue)
    await until(() => seen.length === 3, 'another came')
    assert.deepEqual(seen.map(({ content, redelivered }) => [String(content), redelivered]), [
      ['body', false], ['body', true], ['another', false]
    ])
    proxy.cut() // had the stale one acknowledged the second, it would not come now
    await until(() => seen.filter(({ content }) => String(content) === 'body').length === 3, 'the second came again')
    for (const { resolve } of ends) resolve()
    await until(() => seen.length === 5, 'both came again')
    ends[3].resolve()
    ends[4].resolve()
  })

  it('after a missed heartbeat, a socket of before that closes late ends nothing', async () => {
    await consumer.begin(handling(new Park('why')))
    const { connection } = consumer
    const { socket } = connection
    const emit = socket.emit.bind(socket)
    const late = []
    socket.emit = (event, ...args) => event === 'end' || event === 'close'
      ? late.push([event, ...args])
      : emit(event, ...args)
    const isReady = new Promise(resolve => connection.once('ready', resolve))
    connection.emit('error', new Error('no heartbeat or data in last 10s'))
    await isReady
    await until(() => late.some(([event]) => event === 'close'), 'the socket of before closes')
    for (const event of late) emit(...event)
    await broker.publish('body', queue)
    assert.deepEqual(await broker.bodies(`${queue}.parked`, 1), ['body'])
  })

  it('a message id that is no UTF-8 is known in what the broker returns', async () => {
    await broker.channel.deleteQueue(`${queue}.parked`)
    const handler = handling(new Park('why'))
    await consumer.begin(handler)
    const { stream } = broker.channel.connection
    const write = stream.write.bind(stream)
    stream.write = (chunk, ...more) => {
      const at = chunk.indexOf('PLACE')
      if (at >= 0) chunk[at] = 0xff
      return write(chunk, ...more)
    }
    await broker.publish('body', queue, { messageId: 'PLACE' })
    delete stream.write
    assert.deepEqual(await broker.bodies(`${queue}.parked`, 1), ['body'])
    assert.equal(handler.messages[0].id, '\xffLACE')
    assert.equal(warned('the broker returned the copy'), 1)
  })

  it('a lost connection that is not to come again is told', async () => {
    const { connection, retrier } = consumer
    connection.implOptions.reconnect = false
    const isLost = new Promise(resolve => connection.once('close', resolve))
    proxy.cut()
    await isLost
    assert.ok(connection.connectionAttemptScheduled) // so it says
    await assert.rejects(retrier.declare(), ConnectionFailedError)
    await assert.rejects(retrier.replay(), ConnectionFailedError)
  })

  it('a connection that was lost as the broker blocked it is not blocked any more', async () => {
    const { connection, retrier } = consumer
    await consumer.begin(message => {
      if (String(message.content) === 'body') proxy.hold()
      throw new Park('why')
    })
    const isReady = new Promise(resolve => connection.once('ready', resolve))
    connection._blocked = true // as node-amqp does it
    connection.emit('blocked')
    proxy.cut()
    await isReady
    await broker.publish('opens the channel that publishes', queue)
    await broker.take(`${queue}.parked`, 1)
    await until(() => retrier.pending === 0, 'the first one is confirmed')
    warnings.length = 0
    await broker.publish('body', queue)
    await until(() => warned('was not confirmed within 1 s'), 'the timeout is told')
    proxy.release()
    await broker.take(`${queue}.parked`, 1)
  })
})
