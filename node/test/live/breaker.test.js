'use strict'
// A breaker in each carrier, on a broker: AMQP_URL names it.

const assert = require('node:assert/strict')
const { afterEach, beforeEach, mock } = require('node:test')
const { setTimeout: sleep } = require('node:timers/promises')

const { Registry } = require('prom-client')

const { Breaker, Policy, StrategyError, Throttled, Worker, buildInfo } = require('backhop')
const { prometheus } = require('backhop/prom-client')

const { Broker, NEEDS_BROKER, URL, describe, it, until } = require('./broker')
const { CARRIERS } = require('./carriers')
const { CLIENTS } = require('./clients')

const NEEDS_WORKER = buildInfo().worker ? {} : { skip: 'built without librabbitmq' }
const ALL = { ...CARRIERS, 'node-amqp, wrap': CLIENTS['node-amqp'] }
const FIRST = ['worker', 'promises'] // in the fast profile
const COUNT = 60 // messages
const AT_ONCE = 10 // handlers, but for node-amqp's wrap, whose carrier has a prefetch of 100
const PROBES = 4 // that an outage lasts at least
const HOLD_MS = 30_000 // BH_FLOW_HOLD_MS
const AGAIN_MS = 2000 // how long a breaker is open yet as its messages begin to wait
const PAUSE_MS = 300
const TICK_MS = 100
const ROW = 3
const PAUSES = new Policy({ kind: 'fixed', initial: PAUSE_MS, jitter: 'none' })
const RETRIES = new Policy({ kind: 'fixed', initial: 100, jitter: 'none', maxAttempts: 50 })
const QUICK = { rowFailures: ROW, probeSuccesses: 1, pauses: PAUSES }

require('../warnings') // of events without a listener

/** Counts ticks of this process's event loop. A busy machine delays them too, so a limit in ticks holds there as well. */
function ticking () {
  let count = 0
  const timer = setInterval(() => { count++ }, TICK_MS)
  return () => {
    clearInterval(timer)
    return count
  }
}

/** A downstream that can be down, and a handler that calls it. */
class Api {
  isDown = false
  calls = 0 // while it was down
  failures = new Map() // by body
  handled = new Map() // { attempt, deferrals } by body

  handle = async message => {
    const body = String(message.content)
    await sleep(5)
    if (!this.isDown) {
      this.handled.set(body, { attempt: message.attempt, deferrals: message.deferrals })
      return
    }
    this.calls++
    this.failures.set(body, (this.failures.get(body) ?? 0) + 1)
    throw new TypeError('the API is down')
  }

  /** Waits until so many messages are handled. Each had an attempt for each failure, and one success. */
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
    const listeners = [event => events.push(event), ...options.listeners ?? []]
    const carrier = await ALL[name].connect(URL, options.queue ?? queue, {
      policy: options.policy ?? RETRIES, namespace: broker.namespace, breaker: options.breaker, onEvent: listeners
    })
    closing.push(() => carrier.stop())
    carrier.settings = name === 'worker' ? { concurrency: AT_ONCE, prefetch: AT_ONCE } : { prefetch: AT_ONCE }
    await carrier.channel?.prefetch(AT_ONCE)
    await carrier.retrier?.declare()
    return carrier
  }

  async function publish (count, options, to = queue) {
    for (let i = 0; i < count; i++) await broker.publish(`${options?.headers?.host ?? ''}${i}`, to, options)
  }

  for (const name of Object.keys(ALL)) {
    const needs = { ...name === 'worker' ? NEEDS_WORKER : {}, long: !FIRST.includes(name) }

    it(`of ${name} spares an API that is down, and loses no message`, { ...needs, long: true }, async () => {
      const api = new Api()
      const breaker = new Breaker('api', QUICK)
      const register = new Registry()
      await publish(COUNT)
      api.isDown = true
      const carrier = await connected(name, { breaker, listeners: [prometheus({ register })] })
      await carrier.begin(api.handle)
      await until(() => happened('breaker_opened'), 'it opens')
      assert.match(events.find(each => each.name === 'breaker_opened').text, /TypeError/)
      assert.equal(events.find(each => each.name === 'breaker_opened').breaker, 'api')
      await until(() => happened('breaker_half_open') === PROBES, 'it probes')
      assert.match(await register.metrics(), /^backhop_breaker_state\{queue="[^"]+",breaker="api"\} [12]$/m)
      api.isDown = false
      await api.hasHandled(COUNT)
      await until(() => happened('breaker_closed'), 'it closes')
      const most = 2 * (name === 'node-amqp, wrap' ? COUNT : AT_ONCE) + ROW + happened('breaker_half_open')
      assert.ok(api.calls <= most, `${api.calls} calls while it was down, and not ${most}`)
      assert.equal(breaker.state, 'closed')
      assert.match(await register.metrics(), /^backhop_breaker_state\{queue="[^"]+",breaker="api"\} 0$/m)
      await broker.holds(queue, 0)
      assert.equal(happened('parked'), 0)
      assert.equal(await broker.count(`${queue}.parked`), 0)
    })

    it(`of ${name} emits a change by hand within a second, without a delivery`, { ...needs, long: true }, async () => {
      const api = new Api()
      const breaker = new Breaker('api', QUICK)
      const carrier = await connected(name, { breaker })
      await carrier.begin(api.handle)
      const consumer = carrier.consumer ?? carrier.worker
      if (!consumer) { // a message leads to the application's consumer
        await publish(1)
        await api.hasHandled(1)
      }
      await consumer?.ready()
      for (const [change, event] of [['open', 'opened'], ['close', 'closed'], ['disable', 'closed']]) {
        events.length = 0
        const stop = ticking()
        breaker[change]()
        await until(() => happened(`breaker_${event}`), `it emits ${event}`)
        const ticks = stop()
        assert.ok(ticks <= 2000 / TICK_MS, `${ticks} ticks`)
        assert.equal(happened('delivered'), 0)
      }
    })

    it(`of ${name} stays closed while a fifth of the messages are at fault themselves`, needs, async () => {
      const breaker = new Breaker('api', { ...QUICK, leastCalls: 10, failurePercent: 10, errors: TypeError })
      let handled = 0
      await publish(5, { headers: { host: 'bad' } })
      await publish(20)
      const carrier = await connected(name, { breaker, policy: new Policy({ kind: 'fixed', initial: 100, maxAttempts: 2 }) })
      await carrier.begin(async message => {
        if (message.headers.host) throw new RangeError('malformed')
        handled++
      })
      await until(() => happened('parked') === 5 && handled === 20, 'the bad ones park')
      assert.equal(breaker.state, 'closed')
      assert.ok(!events.some(event => event.name.startsWith('breaker_')))
      await broker.holds(`${queue}.parked`, 5)
    })

    it(`of ${name} by key lets messages of the bad key wait, and calls the others`, { ...needs, long: true }, async () => {
      const api = new Api()
      const key = ({ headers }) => headers.host
      const breaker = new Breaker('hosts', { ...QUICK, key, rowFailures: 1, probeTimeout: '1s' })
      const bad = async message => {
        api.isDown = isBadDown && message.headers.host === 'bad'
        return message.headers.host === 'bad' ? api.handle(message) : good.handle(message)
      }
      const good = new Api()
      let isBadDown = true
      await publish(5, { headers: { host: 'bad' } })
      const carrier = await connected(name, { breaker })
      await carrier.begin(bad)
      await until(() => breaker.stateOf('bad') === 'open', 'the bad key is open')
      await publish(20, { headers: { host: 'good' } })
      await good.hasHandled(20)
      await until(() => happened('deferred'), 'a message waits')
      assert.equal(breaker.stateOf('good'), 'closed')
      isBadDown = false
      await api.hasHandled(5)
      assert.ok([...api.handled.values()].some(({ deferrals }) => deferrals > 0))
      await broker.holds(queue, 0)
    })

    it(`of ${name} opens for the whole queue if a handler says so`, needs, async () => {
      const breaker = new Breaker('api', QUICK)
      const seen = []
      await publish(1)
      const carrier = await connected(name, { breaker })
      await carrier.begin(message => {
        seen.push({ body: String(message.content), attempt: message.attempt, at: performance.now() })
        if (seen.length === 1) throw new Throttled('1s', '429', { wholeQueue: true })
      })
      await until(() => breaker.state === 'open', 'it is open')
      await publish(3, { headers: { host: 'more ' } })
      await until(() => seen.length === 5, 'all are handled')
      assert.ok(seen[1].at - seen[0].at > 950)
      assert.ok(seen.every(({ attempt }) => attempt === 1))
      await broker.holds(queue, 0)
    })

    it(`of ${name} gives the held messages back at a stop`, needs, async () => {
      const breaker = new Breaker('api')
      breaker.open()
      await publish(5)
      const carrier = await connected(name, { breaker })
      await carrier.begin(() => assert.fail('it is called'))
      await until(() => happened('breaker_opened'), 'the consumer knows')
      await until(async () => await broker.count(queue) === 0, 'they are delivered')
      const health = carrier.worker ?? carrier.consumer
      if (health) await until(() => health.state === 'paused', 'it is paused')
      await carrier.stop()
      await broker.holds(queue, 5)
    })
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

  it('that is open for long cancels its consumer, and its messages wait without an attempt', { long: true }, async () => {
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
