'use strict'
// The contract for handlers (tests/contract), each case over each carrier of Node; on a broker, but
// for rehearsals.

const assert = require('node:assert/strict')
const { AsyncLocalStorage, AsyncResource } = require('node:async_hooks')
const { spawn } = require('node:child_process')
const { once } = require('node:events')
const { readFileSync } = require('node:fs')
const path = require('node:path')
const { Readable } = require('node:stream')
const { setTimeout: sleep } = require('node:timers/promises')

const { Drop, Park, Policy, RetryAfter, Throttled, buildInfo } = require('backhop')
const { rehearse } = require('backhop/testing')

const { Broker, LIMIT, NEEDS_BROKER, URL, describe, it, until } = require('./broker')
const { CARRIERS: CLASSES } = require('./carriers')

const { carriers: { node: CARRIERS }, cases: CASES, defaults } = JSON.parse(
  readFileSync(path.join(process.env.BACKHOP_VECTORS, '../contract/cases.json'), 'utf8')
)
const ONLY_FIRST = process.env.BACKHOP_CONTRACT === 'first' // of each class of endings, over all carriers
const STORIES = ONLY_FIRST ? CASES.filter(({ first }) => first) : CASES
const ORDER = ['debug', 'info', 'warning', 'error']
const AT_ONCE = 6 // cases of a carrier
const BLOCKS_MS = 1000 // longer than the time limit of a case
const MISSES_HEARTBEATS_MS = 6000
const storage = new AsyncLocalStorage()

const warnings = []
process.on('warning', ({ message }) => warnings.push(message))

// --- How a handler ends --------------------------------------------------------------------------

function boom () {
  throw new Error('boom')
}

function cyclic () {
  const error = new Error('boom')
  error.cause = error
  throw error
}

/** An error whose member of this name cannot be read. */
function broken (name) {
  const error = new Error('boom')
  const keys = { text: 'message', cause: 'cause', code: 'code', 'class name': 'name' }
  Object.defineProperty(error, keys[name], { get () { throw new Error('unreadable') } })
  return error
}

const VALUES = { undefined, null: null, false: false, 0: 0, "''": '' }

const UNFINISHED = {
  'a generator': function * () { yield boom() },
  'an async generator': async function * () { yield boom() },
  'an iterator': () => ['x'].values(),
  'a function': () => boom,
  'a stream': () => Readable.from(['x']),
  'an array of promises': () => [Promise.resolve()]
}

/** How to settle, and how to close, behind the retrier's back. */
function raw (play, message) {
  if (message.incoming) {
    const { incoming } = message
    return { channel: incoming.queue, ack: () => incoming.acknowledge(), nack: () => incoming.reject(true) }
  }
  const { channel } = play.carrier.consumer
    ? play.carrier.connection.connection.channels.find(entry => entry?.channel.consumers?.size)
    : play.carrier
  const incoming = { fields: message.fields }
  return { channel, ack: () => channel.ack(incoming), nack: () => channel.nack(incoming) }
}

/** Lets no event in. */
function block (ms) {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
}

const never = () => new Promise(() => {})
const throws = make => () => { throw make() }

/** By id: functions of the play and the message; an array has one per variant. */
const ENDINGS = {
  returns: () => {},
  error: boom,
  'error-last': boom,
  park: throws(() => new Park('boom')),
  'park-inside': [
    ['in a group', throws(() => new AggregateError([new Error('boom'), new Park('inside')]))],
    ['as a cause', throws(() => new Error('boom', { cause: new Park('inside') }))]
  ],
  drop: throws(() => new Drop('boom')),
  'retry-after': throws(() => new RetryAfter('60s', 'boom')),
  throttled: throws(() => new Throttled('60s', 'boom')),
  'retry-after-http-none': throws(() => new RetryAfter(null, new Error('boom'))),
  'rejects-value': CASES.find(({ id }) => id === 'rejects-value').raises.node
    .map(name => [name, () => Promise.reject(VALUES[name])]),
  'rejects-text': throws(() => 'boom'),
  'returns-unfinished': [
    ...CASES.find(({ id }) => id === 'returns-unfinished').raises.node.map(name => [name, () => UNFINISHED[name]()]),
    ['a promise of a generator', async () => UNFINISHED['a generator']()]
  ],
  'broken-error': CASES.find(({ id }) => id === 'broken-error').members.map(name => [name, throws(() => broken(name))]),
  'cyclic-cause': cyclic,
  'acks-itself': (play, message) => raw(play, message).ack(),
  'nacks-itself': (play, message) => {
    raw(play, message).nack()
    boom()
  },
  'closes-channel': async (play, message) => {
    const { channel } = raw(play, message)
    const closed = once(channel, 'close')
    channel.close()
    await closed
  },
  'changes-message': (play, message) => {
    message.body.fill(0)
    message.headers.tenant = 'other'
    if (message.properties) {
      message.properties.messageId = 'other'
      message.properties.headers.tenant = 'other'
    }
    boom()
  },
  'spoils-message': (play, message) => {
    Object.freeze(Object.setPrototypeOf(message, null))
    boom()
  },
  'too-long': [
    ['and never ends', async (play, { signal }) => {
      play.signal = signal
      await never()
    }],
    ['and ends when its signal is aborted', (play, { signal }) => {
      play.signal = signal
      return new Promise(resolve => signal.addEventListener('abort', resolve))
    }],
    ['and blocks the loop', () => block(BLOCKS_MS)]
  ],
  'kills-process': [['kill', kill], ['exit', kill]],
  'never-ends': never,
  busy: () => block(BLOCKS_MS),
  'blocks-loop': async play => {
    block(MISSES_HEARTBEATS_MS)
    await play.lost
  },
  'stop-aborts': async (play, { signal }) => {
    play.stopping = play.elsewhere(() => play.carrier.stop())
    await sleep(LIMIT, undefined, { signal })
  },
  'fails-in-drain': async (play, message) => {
    const aborted = new Promise(resolve => message.signal.addEventListener('abort', resolve))
    play.stopping = play.elsewhere(() => play.carrier.stop())
    await aborted
    boom()
  },
  'stop-too-late': async play => {
    play.stopping = play.elsewhere(() => play.late())
    await play.stopping
  },
  'clean-context': ({ name }) => { // a client calls its consumers in a context of its own
    if (name === 'worker') assert.equal(storage.getStore(), 'of the run')
    assert.notEqual(storage.getStore(), 'of a handler')
    storage.enterWith('of a handler')
  }
}

// --- A play of one case --------------------------------------------------------------------------

class Play {
  events = []
  seen = [] // [body, attempt, message]

  constructor (broker, name, story, end) {
    const { initial_ms: initial, jitter, max_attempts: maxAttempts } = { ...defaults.policy, ...story.policy }
    this.broker = broker
    this.name = name
    this.story = story
    this.end = end
    this.options = {
      policy: new Policy({ initial, jitter, maxAttempts }),
      namespace: broker.namespace,
      onEvent: event => this.events.push(event)
    }
  }

  /**
   * Calls a function outside of the handler: a drain does not wait for a handler that begins it.
   */
  elsewhere = AsyncResource.bind(call => call())

  async begin () {
    this.queue = await this.broker.queue()
    const isBusy = this.story.id === 'busy' // the handler blocks this process, and another message waits then
    if (!isBusy) await this.consume()
    await this.publish('first')
    if (isBusy) {
      await this.publish('waits')
      await this.consume()
    }
    await until(() => this.seen.length, 'the handler has the message')
  }

  async consume () {
    const url = this.story.id === 'blocks-loop' ? `${URL}?heartbeat=1` : URL
    this.carrier = await CLASSES[this.name].connect(url, this.queue, this.options)
    const { timeout_ms: timeout, id } = this.story
    if (timeout) this.carrier.settings = { timeout, ...id === 'busy' ? { concurrency: 1 } : {} }
    if (this.carrier.retrier) await this.carrier.retrier.declare()
    if (id === 'blocks-loop' && this.carrier.connection) {
      this.lost = once(this.carrier.connection, 'close').catch(() => {})
    }
    const handle = id === 'returns-unfinished' ? message => this.ends(message) : this.handle
    await storage.run('of the run', () => this.carrier.begin(handle))
  }

  handle = async message => { await this.ends(message) }

  /** Records a call of the handler, and ends the first one as the case says. */
  ends (message) {
    const [body, attempt] = [String(message.body), message.attempt]
    const isFirst = !this.seen.length
    this.seen.push([body, attempt, message])
    return isFirst || this.story.id === 'clean-context' ? this.end(this, message) : undefined
  }

  publish (body) {
    // With an id, a success whose acknowledgement was lost holds for the next delivery.
    const messageId = ['closes-channel', 'blocks-loop'].includes(this.story.id) ? undefined : body
    return this.broker.publish(body, this.queue, { headers: { tenant: 'acme' }, messageId })
  }

  /** Stops before the handler ends. */
  async late () {
    if (this.carrier.worker) return this.carrier.stop({ timeout: 1 })
    await assert.rejects(this.carrier.retrier.drain({ timeout: 1 }), { name: 'WaitTimeoutError' })
    const { connection } = this.carrier
    const closed = once(connection, 'close')
    if (this.carrier.close) this.carrier.close()
    else connection.disconnect()
    await closed
  }

  event (name) {
    return this.events.find(event => event.name === name)
  }

  /**
   * Returns the events of a message that comes again to a new consumer. A client reports the end of
   * the channel as a cancel, before the handler returns.
   */
  again () {
    return ['delivered', this.story.id === 'blocks-loop' ? 'disconnected' : 'cancelled', 'stale']
  }

  /**
   * False if the highest line is no event: a warning of the process under `wrap`, the error of a
   * drain.
   */
  get isLogged () {
    const { id } = this.story
    return !(this.name === 'wrap' && id.endsWith('s-itself')) && !(this.name !== 'worker' && id === 'stop-too-late') &&
      id !== 'nacks-itself'
  }

  async saw (body, attempt) {
    await until(() => this.seen.some(([of, number], i) => i && of === body && number === attempt),
      `${body}, attempt ${attempt}`)
  }

  async check ({ message, counted, events, level, consumer, delay_ms_least: least = 0, copy, text }, kind) {
    const { error, reason, id } = this.story
    if (message === 'retried') await until(() => this.event('retried'), 'retried')
    const isGone = ['stops', 'is closed by the broker'].includes(consumer)
    if (message === 'retried' && !least && !isGone) await this.saw('first', counted ? 2 : 1)
    if (message === 'deferred' || message === 'parked') await until(() => this.event(message), message)
    if (id === 'blocks-loop' && kind === 'consumer') await this.comesBack()
    const isOver = consumer === 'is closed by the handler' || (id === 'blocks-loop' && kind === 'wrap')
    if (isOver) await until(() => this.broker.count(this.queue), 'it is back')
    else if (message === 'back' && consumer !== 'stops') await this.saw('first', 1)
    if (consumer === 'goes on' || consumer === 'again') {
      await this.publish('second')
      await this.saw('second', 1)
    }
    if (message === 'back' && consumer === 'stops') {
      await this.stopping
      assert.equal((await this.broker.take(this.queue, 1))[0].properties.headers['backhop-attempts'], undefined)
    }
    if (consumer === 'again' && message === 'back') events = this.again()
    // After a nack one acknowledgement may cover the message and its redelivery: no channel is
    // closed then.
    if (id === 'nacks-itself') events = events.filter(name => name !== 'cancelled')
    if (id === 'busy') events = ['delivered', 'failed', 'busy', 'retried'] // events are taken after the handler
    await until(() => isWithin(events, this.events.map(({ name }) => name)),
      () => `${events} within ${this.events.join('\n')}`)
    // On a busy machine, a handler with a time limit is "busy" too.
    const about = this.events.filter(({ name }) => name !== 'connected' && (name !== 'busy' || events.includes(name)))
    if (level && this.isLogged) {
      assert.equal(ORDER[Math.max(...about.map(event => ORDER.indexOf(event.level)))], level, about.join('\n'))
    }
    if (error) assert.ok(this.event('failed').errorText.includes(error), this.event('failed').errorText)
    if (reason) assert.equal(this.event('parked').reason, reason)
    if (least) assert.ok(this.event(message).delay >= least)
    if (text && id !== 'nacks-itself') {
      const wanted = text === 'acknowledged twice' ? /acknowledged or rejected twice/ : new RegExp(text)
      await until(() => [...this.events, ...warnings].some(each => wanted.test(each)), text)
    }
    if (copy) {
      const [, , second] = this.seen.find(([body, attempt]) => body === 'first' && attempt === 2)
      assert.deepEqual([second.headers.tenant, second.messageId], ['acme', 'first'])
    }
    if (this.signal) assert.equal(this.signal.reason.name, 'TimeoutError')
    if (id === 'clean-context') assert.deepEqual(this.seen.map(([body]) => body), ['first', 'second'])
  }

  /** Connects again, as the application does if its client does not. */
  async comesBack () {
    await this.lost
    if (this.name !== 'node-amqp') await this.consume()
  }

  async close () {
    await (this.stopping ?? (this.story.id === 'never-ends' ? this.late() : this.carrier?.stop()))
  }
}

/** Plays `kills-process` in a process of its own. */
async function kill (broker, name, how) {
  const queue = await broker.queue({ 'x-queue-type': 'quorum' })
  await broker.publish('first', queue, { messageId: 'first' })
  const program = [path.join(__dirname, 'kills.js'), name, queue, broker.namespace, how]
  const child = spawn(process.execPath, program, { stdio: ['ignore', 'pipe', 'inherit'] })
  let output = ''
  child.stdout.on('data', chunk => { output += chunk })
  const [code, signal] = await once(child, 'close')
  assert.deepEqual([code, signal], how === 'exit' ? [3, null] : [null, 'SIGKILL'])
  assert.match(output, /delivered\n$/)
  const [{ fields, properties }] = await broker.take(queue, 1)
  assert.deepEqual([fields.redelivered, properties.headers['backhop-attempts']], [true, undefined])
}

/** Returns whether `all` has the names of `some` in this order. */
function isWithin (some, all) {
  let i = 0
  for (const name of all) {
    if (name === some[i]) i++
  }
  return i === some.length
}

// --- The cases -----------------------------------------------------------------------------------

/** Returns why a carrier does not have a case, and no test of it; undefined if it has. */
function missing ({ without = {}, only }, name) {
  const fits = key => {
    const [language, carrier] = key.split('/')
    const isOf = carrier === undefined || new RegExp(`^${carrier.replaceAll('*', '.*')}$`).test(name)
    return isOf && (language === 'node' || language === '*')
  }
  if (only && !Object.keys(only).some(fits)) return Object.values(only)[0]
  return without[Object.keys(without).find(fits)]
}

function variantsOf ({ id }) {
  const ending = ENDINGS[id]
  return Array.isArray(ending) ? ending : [['', ending]]
}

const rehearsed = Object.keys(CARRIERS).find(name => CARRIERS[name] === 'rehearsal')

describe(`the contract, ${rehearsed}`, {}, () => {
  for (const story of STORIES) {
    if (missing(story, rehearsed)) continue
    for (const [variant, end] of variantsOf(story)) {
      const skip = end ? undefined : 'not played yet'
      it(`${story.id} ${variant}`, { skip }, async () => {
        const { initial_ms: initial, jitter, max_attempts: maxAttempts } = { ...defaults.policy, ...story.policy }
        let calls = 0
        const rehearsal = await rehearse(message => {
          return calls++ ? assert.equal(String(message.body), 'first') : end({}, message)
        }, 'first', { policy: new Policy({ initial, jitter, maxAttempts }), headers: { tenant: 'acme' } })
        const { message, counted, delay_ms_least: least = 0 } = story.expect
        const [first, second] = rehearsal
        const wanted =
          { acknowledged: 'ack', retried: 'retry', deferred: 'defer', parked: 'park', dropped: 'drop' }[message]
        assert.equal(first.plan.action, wanted)
        if (wanted === 'retry') assert.equal(second.number, counted ? 2 : 1)
        assert.ok(first.delay >= least)
        if (story.reason) assert.equal(rehearsal.reason, story.reason)
      })
    }
  }
})

for (const [name, kind] of Object.entries(CARRIERS)) {
  if (kind === 'rehearsal') continue
  const needs = name === 'worker' && !buildInfo().worker ? { skip: 'built without librabbitmq' } : NEEDS_BROKER
  describe(`the contract, ${name}`, { ...needs, concurrency: AT_ONCE, long: name !== 'worker' && !ONLY_FIRST }, () => {
    for (const story of STORIES) {
      const expected = story.expect_of?.[kind] ?? story.expect
      if (missing(story, name)) continue
      for (const [variant, end] of variantsOf(story)) {
        const skip = end ? undefined : 'not played yet'
        it(`${story.id} ${variant}`, { skip, long: story.id === 'blocks-loop' }, async () => {
          const broker = await Broker.connect()
          if (story.id === 'kills-process') {
            await kill(broker, name, variant).finally(() => broker.close())
            return
          }
          const play = new Play(broker, name, story, end)
          try {
            await play.begin()
            await play.check(expected, kind)
          } finally {
            await play.close()
            await broker.close()
          }
        })
      }
    }
  })
}
