'use strict'
// README's recipes for clients that connect again by themselves, and for one that has no adapter, as they stand there.

const assert = require('node:assert/strict')
const { readFileSync } = require('node:fs')
const path = require('node:path')
const { afterEach, beforeEach } = require('node:test')

const amqplib = require('amqplib')
const manager = require('amqp-connection-manager')
const { Connection } = require('rabbitmq-client')

const { Delivery, History, Plan, Topology } = require('backhop')
const { Retrier } = require('backhop/amqplib')

const { Broker, NEEDS_BROKER, QUICK, URL, amqplibUrl, describe, it, until } = require('./broker')

const manifest = path.join(path.dirname(require.resolve('amqplib')), 'package.json')
const NEEDS_RECOVERY = parseInt(JSON.parse(readFileSync(manifest, 'utf8')).version) < 2 ? { skip: 'an amqplib before 2' } : {}

describe('a recipe', NEEDS_BROKER, () => {
  let broker
  let queue
  let options
  let seen
  let close

  beforeEach(async () => {
    broker = await Broker.connect()
    queue = await broker.queue()
    options = { queue, policy: QUICK, namespace: broker.namespace }
    seen = []
  })

  afterEach(async () => {
    await close()
    await broker.close()
  })

  /** A message that fails once comes again, also where the connection was cut off before. */
  async function comesAgain (body) {
    await broker.publish(body, queue)
    await until(() => seen.some(([of, attempt]) => of === body && attempt === 2), `${body} comes again`)
    assert.deepEqual(seen.find(([of]) => of === body), [body, 1])
  }

  async function comesAgainAcross (cut) {
    await comesAgain('first')
    cut()
    await comesAgain('second')
  }

  const handle = message => {
    seen.push([String(message.body), message.attempt])
    if (message.attempt === 1) throw new Error('507 queue is full')
  }

  it('amqp-connection-manager', async () => {
    const connection = manager.connect([amqplibUrl(URL)], { reconnectTimeInSeconds: 0.1 })
    const wrapper = connection.createChannel()
    close = () => connection.close()
    await wrapper.addSetup(async channel => { await new Retrier(channel, options).consume(handle) })
    await wrapper.waitForConnect()
    await comesAgainAcross(() => connection.connection.connection.stream.destroy(new Error('cut')))
  })

  it('amqplib\'s own recovery', NEEDS_RECOVERY, async () => {
    let current
    const connection = await amqplib.connect(amqplibUrl(URL), {
      recovery: {
        initialDelay: 100,
        setup: async connection => {
          current = connection
          await new Retrier(await connection.createChannel(), options).consume(handle)
        }
      }
    })
    connection.on('error', () => {})
    close = () => connection.close()
    await comesAgainAcross(() => current.connection.stream.destroy(new Error('cut')))
  })

  it('rabbitmq-client', async () => {
    const topology = new Topology(options)
    const connection = new Connection(URL)
    for (const { what, name, type, source, routingKey, arguments: args } of topology.declarations) {
      if (what === 'exchange') await connection.exchangeDeclare({ exchange: name, type, durable: true, arguments: args })
      if (what === 'queue') await connection.queueDeclare({ queue: name, durable: true, arguments: args })
      if (what === 'binding') await connection.queueBind({ queue: name, exchange: source, routingKey })
    }
    const publisher = connection.createPublisher({ confirm: true })
    const settings = { queue, queueOptions: { passive: true }, qos: { prefetchCount: 100 } }
    const consumer = connection.createConsumer(settings, async given => {
      const { exchange, routingKey, headers, body } = given
      const history = new History(new Delivery({ exchange, routingKey, properties: given, headers }), { topology })
      try {
        handle({ body, attempt: history.attempts + 1 })
      } catch (error) {
        const plan = new Plan(history, topology, { error: String(error) })
        await publisher.send({ ...plan.copyProperties(given), exchange: plan.exchange, routingKey: plan.routingKey }, body)
      }
    })
    close = async () => {
      await consumer.close()
      await publisher.close()
      await connection.close()
    }
    await comesAgain('first')
  })
})
