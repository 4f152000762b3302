'use strict'
// Lost connections and long pauses of a breaker, on a broker: AMQP_URL names it.
// tests/contract/steps.json has the other cases, over each carrier.

const assert = require('node:assert/strict')
const { afterEach, beforeEach, mock } = require('node:test')

const { Breaker, Policy, StrategyError, Worker, buildInfo } = require('backhop')

const { Broker, NEEDS_BROKER, URL, describe, it, until } = require('./broker')
const { CARRIERS } = require('./carriers')
const { CLIENTS } = require('./clients')

const NEEDS_WORKER = buildInfo().worker ? {} : { skip: 'built without librabbitmq' }
const ALL = { ...CARRIERS, 'node-amqp, wrap': CLIENTS['node-amqp'] }
const AT_ONCE = 10 // handlers
const HOLD_MS = 30_000 // BH_FLOW_HOLD_MS
const AGAIN_MS = 2000 // how long a breaker is open yet as its messages begin to wait
const PAUSE_MS = 300
const PAUSES = new Policy({ kind: 'fixed', initial: PAUSE_MS, jitter: 'none' })
const RETRIES = new Policy({ kind: 'fixed', initial: 100, jitter: 'none', maxAttempts: 50 })
const QUICK = { rowFailures: 3, probeSuccesses: 1, pauses: PAUSES }

require('../warnings') // of events without a listener

/** A downstream that can be down, and a handler that calls it. */
class Api {
  isDown = false
  failures = new Map() // by body
  handled = new Map() // { attempt, deferrals } by body

  handle = async message => {
    const body = String(message.content)
    if (!this.isDown) {
      this.handled.set(body, { attempt: message.attempt, deferrals: message.deferrals })
      return
    }
    this.failures.set(body, (this.failures.get(body) ?? 0) + 1)
    throw new TypeError('the API is down')
  }

  /**
   * Waits until so many messages are handled. Each had an attempt for each failure, and one
   * success.
   */
  async hasHandled (count) {
    await until(() => this.handled.size === count, `${count} messages are handled`)
    for (const [body, { attempt }] of this.handled) assert.equal(attempt, (this.failures.get(body) ?? 0) + 1, body)
  }
}

describe('a breaker', NEEDS_BROKER, () => {
  let broker
  let queue
  let closing
  let events

  beforeEach(async () => {
    [closing, events] = [[], []]
    broker = await Broker.connect()
    queue = await broker.queue()
  })

  afterEach(async () => {
    for (const close of closing.reverse()) await close()
    await broker.close()
  })

  const happened = name => events.filter(event => event.name === name).length

  async function connected (name, options) {
    const carrier = await ALL[name].connect(URL, options.queue ?? queue, {
      policy: RETRIES, namespace: broker.namespace, breaker: options.breaker, onEvent: event => events.push(event)
    })
    closing.push(() => carrier.stop())
    carrier.settings = { prefetch: AT_ONCE }
    await carrier.channel?.prefetch(AT_ONCE)
    await carrier.retrier?.declare()
    return carrier
  }

  async function publish (count, options, to = queue) {
    for (let i = 0; i < count; i++) await broker.publish(`${options?.headers?.host ?? ''}${i}`, to, options)
  }

  /** Begins a carrier whose breaker is open, and publishes five messages. */
  async function holding (name) {
    const own = await broker.queue()
    const api = new Api()
    const breaker = new Breaker(name, QUICK)
    breaker.open()
    await publish(5, {}, own)
    const carrier = await connected(name, { breaker, queue: own })
    await carrier.begin(api.handle)
    const deferred = () => events.filter(event => event.name === 'deferred' && event.queue === own)
    return { name, own, api, breaker, carrier, areDeferred: () => new Set(deferred().map(({ id }) => id)).size === 5 }
  }

  /** Nothing is consumed while the breaker is open, and then the messages come again. */
  async function endsItsOutage ({ name, own, api, breaker, carrier }) {
    if (name === 'node-amqp') { // which connects again, and consumes nothing yet
      const isReady = new Promise(resolve => carrier.connection.once('ready', resolve))
      carrier.connection.socket.destroy(new Error('cut'))
      await isReady
    }
    const left = name.includes('wrap') ? 1 : 0
    await until(async () => {
      breaker.open({ duration: AGAIN_MS })
      return (await broker.channel.checkQueue(own)).consumerCount === left
    }, `${left} consume`)
    breaker.open({ duration: PAUSE_MS })
    await api.hasHandled(5)
    assert.ok([...api.handled.values()].every(({ attempt, deferrals }) => attempt === 1 && deferrals >= 1), name)
    await until(() => breaker.state === 'closed', 'it is closed')
    await broker.holds(own, 0)
  }

  it('that is open for long cancels its consumer, and its messages wait without an attempt', {
    long: true
  }, async () => {
    const all = await Promise.all(Object.keys(ALL).filter(name => name !== 'worker').map(holding))
    const { hrtime } = process // the clock of breakers
    let lead = 0
    mock.method(process, 'hrtime', () => [hrtime()[0] + lead, hrtime()[1]])
    try {
      await until(() => {
        for (const { breaker } of all) breaker.open({ duration: HOLD_MS + AGAIN_MS })
        lead += HOLD_MS / 1000
        return all.every(({ areDeferred }) => areDeferred())
      }, 'all wait')
      await Promise.all(all.map(endsItsOutage))
    } finally {
      mock.restoreAll()
    }
  })

  it('is shared by two consumers', async () => {
    const other = await broker.queue()
    const breaker = new Breaker('api', QUICK)
    const api = new Api()
    api.isDown = true
    for (const each of [queue, other]) {
      const carrier = await connected('promises', { breaker, queue: each })
      await carrier.begin(api.handle)
    }
    await publish(20)
    await until(() => breaker.state === 'open', 'it opens')
    await publish(20, { headers: { host: 'other ' } }, other)
    await until(() => events.some(event => event.name === 'breaker_opened' && event.queue === other), 'the other knows')
    api.isDown = false
    await api.hasHandled(40)
  })

  it('of node-amqp that is open consumes nothing on the next connection', async () => {
    const api = new Api()
    const breaker = new Breaker('api', QUICK)
    breaker.open()
    await publish(3)
    const carrier = await connected('node-amqp', { breaker })
    await carrier.begin(api.handle)
    await until(() => happened('breaker_opened'), 'the consumer knows')
    carrier.connection.socket.destroy(new Error('cut'))
    await until(() => happened('connected') === 2, 'it is connected again')
    assert.equal(api.handled.size, 0)
    breaker.close()
    await api.hasHandled(3)
  })

  it('by key is refused where no message can wait', NEEDS_WORKER, () => {
    const breaker = new Breaker('hosts', { key: () => 'one' })
    for (const strategy of ['reject', 'native']) {
      assert.throws(() => new Worker(URL, { queue, breaker, strategy, policy: PAUSES }), StrategyError)
    }
  })
})
