'use strict'
// Ready, state and stateReason of a worker and of each consumer, on a broker: AMQP_URL names it.

const assert = require('node:assert/strict')
const { afterEach, beforeEach } = require('node:test')

const { Worker, buildInfo } = require('backhop')
const { prometheus } = require('backhop/prom-client')
const { Registry } = require('prom-client')

const { Broker, NEEDS_BROKER, QUICK, URL, describe, it, until } = require('./broker')
const { CARRIERS } = require('./carriers')
const { Proxy } = require('./proxy')

const NEEDS_WORKER = buildInfo().worker ? {} : { skip: 'built without librabbitmq' }
const NOWHERE = 'amqp://127.0.0.1:1'

describe('a health', NEEDS_BROKER, () => {
  let broker
  let queue
  let options
  let closing
  let register

  beforeEach(async () => {
    closing = []
    register = new Registry()
    broker = await Broker.connect()
    queue = await broker.queue()
    options = { policy: QUICK, namespace: broker.namespace, onEvent: prometheus({ register }) }
  })

  /** The gauge of ready consumers says so (T3). */
  async function areReady (count) {
    const gauge = async () => (await register.metrics()).match(/^backhop_consumers_ready\{.*\} (\d)$/m)?.[1]
    await until(async () => await gauge() === String(count), `${count} are ready`)
  }

  afterEach(async () => {
    for (const close of closing.reverse()) await close()
    await broker.close()
  })

  async function begin (name, url = URL) {
    const carrier = await CARRIERS[name].connect(url, queue, options)
    closing.push(() => carrier.stop())
    await carrier.retrier?.declare()
    const handled = []
    await carrier.begin(({ body }) => { handled.push(String(body)) })
    return { carrier, handled, health: carrier.worker ?? carrier.consumer }
  }

  for (const name of ['worker', 'promises', 'callbacks', 'node-amqp']) {
    it(`of ${name} is ready, and stopped in the end`, name === 'worker' ? NEEDS_WORKER : {}, async () => {
      const { carrier, health, handled } = await begin(name)
      await health.ready({ timeout: '60s' })
      assert.equal(health.state, 'ready')
      await areReady(1)
      await broker.publish('x', queue)
      await until(() => handled.length, 'it is handled')
      await carrier.stop()
      assert.equal(health.state, 'stopped')
      await assert.rejects(health.ready(), { name: 'StateError', message: /has stopped/ })
    })
  }

  it('of node-amqp reconnects with its client', async () => {
    const proxy = await Proxy.to(URL)
    const { health, handled } = await begin('node-amqp', proxy.url)
    closing.unshift(() => proxy.close())
    proxy.cut()
    proxy.hold() // the next connection
    await until(() => health.state === 'reconnecting', 'it reconnects')
    await areReady(0)
    assert.match(health.stateReason, /the connection was lost/)
    proxy.release()
    await health.ready()
    await broker.publish('x', queue)
    await until(() => handled.length, 'it is handled')
  })

  it('of amqplib is stopped if the connection is lost, with the reason', async () => {
    const { carrier, health } = await begin('promises')
    carrier.connection.connection.stream.destroy(new Error('cut'))
    const error = await carrier.consumer.closed
    assert.equal(error.name, 'ConnectionFailedError')
    assert.deepEqual([health.state, health.stateReason], ['stopped', error.message])
    await areReady(0)
  })

  it('of a worker that cannot start: ready rejects as run does', NEEDS_WORKER, async () => {
    const worker = new Worker(URL, { ...options, queue: `${queue}.missing` })
    assert.equal(worker.state, 'stopped')
    await assert.rejects(worker.ready(), { name: 'StateError' })
    const running = worker.run(() => {})
    await Promise.all([
      assert.rejects(worker.ready(), { name: 'MissingError' }), assert.rejects(running, { name: 'MissingError' })
    ])
    assert.equal(worker.state, 'stopped')
    assert.match(worker.stateReason, /does not exist/)
  })

  it('of a worker without a broker is starting, and ready has a limit', NEEDS_WORKER, async () => {
    const worker = new Worker(NOWHERE, { ...options, queue })
    const running = worker.run(() => {})
    closing.push(async () => {
      await worker.stop({ timeout: 0 })
      await running
    })
    await assert.rejects(worker.ready({ timeout: 1 }), {
      name: 'WaitTimeoutError', message: /^the worker is not ready after 0.001 s; its state is starting/
    })
  })
})
