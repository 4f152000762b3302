'use strict'
// Plays each case of tests/contract/steps.json over each carrier of Node.

const assert = require('node:assert/strict')
const { readFileSync } = require('node:fs')
const path = require('node:path')
const { setTimeout: sleep } = require('node:timers/promises')

const { Breaker, Drop, Park, Policy, RetryAfter, Throttled, buildInfo } = require('backhop')
const { prometheus } = require('backhop/prom-client')
const { rehearse } = require('backhop/testing')
const { Registry } = require('prom-client')

const { Broker, NEEDS_BROKER, NEEDS_CTL, URL, VERSION, describe, importing, it, stranger, until } = require('./broker')
const { CARRIERS } = require('./carriers')
const { channelsOf, CLIENTS } = require('./clients')
const { Proxy } = require('./proxy')
require('../warnings') // of events without a listener

const FILE = JSON.parse(readFileSync(path.join(process.env.BACKHOP_VECTORS, '../contract/steps.json'), 'utf8'))
const KINDS = FILE.carriers.node
const ALL = {
  ...CARRIERS,
  'confirm-wrap': CLIENTS['amqplib, a confirm channel'],
  'callbacks-wrap': CLIENTS['amqplib, callbacks'],
  'node-amqp-wrap': CLIENTS['node-amqp']
}
const FIRST = ['worker', 'promises', 'wrap', 'rehearse'] // in the fast profile
const AT_ONCE = 6 // cases of a carrier
const WORDS = { // of Node, in texts
  work_queue: "workQueue: 'quorum'",
  verify_mode: "mode: 'verify'",
  no_retry_after: 'maxRetryAfter: 0',
  definitions: 'topology.definitions()'
}
const ERRORS = {
  access: 'AccessError',
  broker: 'BrokerError',
  clash: 'ClashError',
  connection: 'ConnectionFailedError',
  missing: 'MissingError',
  publish: 'PublishError',
  unpublished: 'PublishError'
}
const LOOK_MS = 60_000 // BH_LOOK_MS

class Failed extends Error { name = 'Failed' } // the error of most handlers
class Other extends Error { name = 'Other' }

let lookers = 0 // plays whose looks are due all the time
const { setTimeout: timer } = globalThis
globalThis.setTimeout = (run, ms, ...args) => timer(run, lookers && ms === LOOK_MS ? 200 : ms, ...args)

const camel = name => name.replace(/_ms$/, '').replace(/_(.)/g, (_, letter) => letter.toUpperCase())
const renamed = given => Object.fromEntries(Object.entries(given).map(([name, value]) => [camel(name), value]))
const policyOf = given => new Policy({ jitter: 'none', ...renamed(given) })

function keyOf ({ body }) {
  const [key] = String(body).match(/^[a-z]+/) ?? []
  if (!key) throw new Other('no key')
  return key
}

/** Changes what a client gave, in place. */
function spoil ({ body, headers, properties, fields }) {
  body.fill(0)
  headers.tenant = 'evil'
  if (!properties) return // of node-amqp
  properties.headers.tenant = 'evil'
  properties.headers.n.list.push(() => {})
  properties.headers.more = Symbol('unknown to AMQP')
  properties.messageId = properties.contentType = 7
  fields.routingKey = 'elsewhere'
}

/** Returns what steps compare of a message. */
function fieldsOf (message) {
  const own = Object.entries(message.headers).filter(([name]) => !/^(backhop|x)-/.test(name))
  return {
    exchange: message.exchange,
    routing_key: message.routingKey,
    queue: message.queue,
    redelivered: message.redelivered,
    content_type: message.contentType,
    content_encoding: message.contentEncoding,
    correlation_id: message.correlationId,
    reply_to: message.replyTo,
    type: message.type,
    app_id: message.appId,
    priority: message.priority,
    message_id: message.messageId,
    id: message.id,
    attempt: message.attempt,
    max_attempts: message.maxAttempts,
    last_attempt: message.lastAttempt,
    body: message.body.toString('latin1'),
    headers: globalThis.structuredClone(Object.fromEntries(own)),
    timestamp: message.timestamp && message.timestamp.getTime() / 1000,
    last_error: message.lastError,
    last_delay_ms: message.lastDelay ?? null,
    failed: message.firstFailure instanceof Date,
    attempts: message.history.attempts,
    crashes: message.history.crashes
  }
}

/** Returns what steps compare of an event. */
function valuesOf (event) {
  return {
    ...event,
    error_class: event.errorClass,
    error_text: event.errorText,
    delay_ms: event.delay,
    level: event.level,
    has_delay: event.delay > 0,
    is_error: event.error instanceof Error,
    has_duration: event.duration !== undefined,
    has_lateness: event.lateness >= 0,
    has_deferrals: event.deferrals > 0
  }
}

const picked = (object, names) => Object.fromEntries(Object.keys(names).map(name => [name, object[name]]))

/** One case over one carrier. A method for each step has its name. */
class Play {
  told = [] // events
  seen = [] // fields of messages, by call
  times = []
  failures = new Map() // by body
  wrong = []
  done = new Map() // deferrals by body
  took = []
  downs = 0
  register = new Registry()

  constructor (story, name, broker) {
    Object.assign(this, { story, name, broker, kind: KINDS[name], began: performance.now() })
  }

  async open () {
    const { policy = FILE.policy, breaker, never, slow, ...given } = this.story.options ?? {}
    this.queue = given.work_queue ? `${this.broker.namespace}.work` : await this.broker.queue()
    if (this.story.proxy) this.proxy = await Proxy.to(URL)
    this.options = {
      ...renamed(given),
      policy: policyOf(policy),
      namespace: this.broker.namespace,
      onEvent: [event => this.told.push(event), prometheus({ register: this.register })],
      ...never && { never: [Other] },
      ...slow && { policies: [[Other, policyOf(slow)]] }
    }
    if (!breaker) return
    const { errors, key, ...settings } = { row_failures: 3, probe_successes: 1, ...breaker }
    this.flow = this.options.breaker = new Breaker('api', {
      ...renamed(settings),
      pauses: policyOf({ kind: 'fixed', initial_ms: 300 }),
      ...errors && { errors: Failed },
      ...key && { key: keyOf }
    })
  }

  async run () {
    if (this.story.looks) lookers++
    try {
      await this.open()
      for (const step of this.story.steps) {
        this.step = await this.filled(step)
        const [[verb, value], ...more] = Object.entries(this.step)
        const { in: kinds = this.kind, ...others } = Object.fromEntries(more)
        if (kinds.includes(this.kind)) await this[verb](value, others)
      }
    } finally {
      if (this.story.looks) lookers--
      this.proxy?.release()
      await this.stop()
      this.proxy?.close()
    }
  }

  // The handler

  handle = async message => {
    const fields = fieldsOf(message)
    const { body } = fields
    const number = this.seen.filter(call => call.body === body).length
    this.seen.push(fields)
    this.times.push(performance.now())
    const failures = this.failures.get(body) ?? 0
    if (message.attempt !== failures + 1) {
      this.wrong.push(`${body}: attempt ${message.attempt} after ${failures} failures`)
    }
    const fits = name => name === body || (name.endsWith('*') && body.startsWith(name.slice(0, -1)))
    const rule = Object.entries(this.story.handler).find(([name]) => fits(name))?.[1] ?? 'ok'
    const answer = typeof rule === 'string' ? rule : rule[number] ?? 'ok'
    for (const action of answer.split('; ')) {
      const [verb, ...words] = action.split(' ')
      if (verb === 'spoil') spoil(message)
      else await this.act(body, verb, words.join(' '))
    }
    this.done.set(body, message.deferrals)
  }

  async act (body, verb, text) {
    if (verb === 'hold') return this.proxy.hold()
    if (verb === 'park') throw new Park(text)
    if (verb === 'drop') throw new Drop()
    if (verb === 'throttle-queue') throw new Throttled(Number(text), '429', { wholeQueue: true })
    if (verb === 'down') await sleep(5)
    if (verb === 'ok' || (verb === 'down' && this.isUp)) return
    this.failures.set(body, (this.failures.get(body) ?? 0) + 1)
    if (verb === 'down') this.downs++
    if (verb === 'retry-after') throw new RetryAfter(Number(text), 'busy')
    throw new (verb === 'other' ? Other : Failed)(text)
  }

  // Helpers

  until (isSo) {
    return until(isSo, () => `${JSON.stringify(this.step)}\n${JSON.stringify(this.seen)}\n${this.told.join('\n')}`)
  }

  /** Fills names in. */
  async filled (value) {
    if (typeof value === 'string') {
      const { queue, broker } = this
      const sibling = value.includes('{sibling}') ? await this.place('sibling') : ''
      const names = { queue, namespace: broker?.namespace, sibling, ...WORDS }
      return value.replace(/\{(\w+)\}/g, (_, name) => names[name])
    }
    if (Array.isArray(value)) return Promise.all(value.map(each => this.filled(each)))
    if (typeof value !== 'object' || !value) return value
    const all = Object.entries(value).map(async ([name, each]) => [name, await this.filled(each)])
    return Object.fromEntries(await Promise.all(all))
  }

  /** Returns the name of a queue or an exchange. */
  async place (name) {
    if (name.startsWith('.')) return this.broker.namespace + name
    if (name === 'sibling') return (this.sibling ??= this.broker.queue())
    return { parked: `${this.queue}.parked`, events: `${this.broker.namespace}.events` }[name] ?? this.queue
  }

  named (name) {
    return this.told.filter(event => event.name === name)
  }

  async connected () {
    if (this.carrier) return this.carrier
    this.carrier = await ALL[this.name].connect(this.url ?? this.proxy?.url ?? URL, this.queue, this.options)
    this.carrier.settings = this.kind === 'worker' ? { concurrency: 20, prefetch: 20 } : { prefetch: 20 }
    return this.carrier
  }

  async retrier () {
    return (await this.connected()).retrier
  }

  // Steps

  async start (how) {
    this.began = performance.now()
    const carrier = await this.connected()
    if (this.kind === 'wrap' && how !== 'undeclared') await carrier.retrier.declare()
    await carrier.begin(this.handle)
    this.health = carrier.worker ?? carrier.consumer
    if (this.kind === 'worker') await this.until(() => this.named('connected').length)
  }

  async stop () {
    const { carrier } = this
    this.carrier = undefined
    await carrier?.stop()
  }

  async publish (value, { to = 'work', key, numbers, repeat = 1, headers, properties = {} }) {
    const bodies = numbers ? Array.from({ length: numbers }, (_, i) => `${value}${i}`) : [value].flat()
    const place = await this.place(to)
    for (const body of bodies) {
      const options = { ...renamed(properties), headers, exchange: to === 'events' ? place : '' }
      await this.broker.publish(Buffer.from(body.repeat(repeat), 'latin1'), to === 'events' ? key : place, options)
    }
  }

  async exchange (type, { key, queues }) {
    await this.broker.events(type, await Promise.all(queues.map(name => this.place(name))), key)
  }

  async make (name, { arguments: args = { 'x-queue-type': 'classic' } } = {}) {
    await this.broker.channel.assertQueue(await this.place(name), { arguments: args })
  }

  async delete (name) {
    await this.broker.channel.deleteQueue(await this.place(name))
  }

  async delete_exchange (name) {
    await this.broker.channel.deleteExchange(await this.place(name))
  }

  /** Returns the number of ready messages; null if there is no such queue. */
  async counted_in (name) {
    const queue = await this.place(name)
    return await this.broker.has(queue) ? this.broker.count(queue) : null
  }

  async count (wanted) {
    for (const [name, number] of Object.entries(wanted)) {
      await this.until(async () => await this.counted_in(name) === number)
    }
  }

  async some (wanted) {
    await this.until(async () => {
      for (const [name, number] of Object.entries(wanted)) if (await this.counted_in(name) >= number) return true
    })
  }

  /** A client that connects again parks the message again. Otherwise it stays in its queue. */
  async redelivered (wanted) {
    const name = this.name.startsWith('node-amqp') ? 'parked' : 'work'
    await this.some({ [name]: wanted[name] })
  }

  async take (name, { bodies, headers = {}, properties }) {
    const taken = await this.broker.take(await this.place(name), bodies.length)
    assert.deepEqual(taken.map(({ content }) => content.toString('latin1')), bodies)
    const [{ properties: { headers: found, ...rest } }] = taken
    assert.deepEqual(picked(found, headers), headers)
    const given = Object.entries(rest).filter(([, given]) => given !== undefined)
    if (properties) assert.deepEqual(Object.fromEntries(given), renamed(properties))
  }

  async all (name, { bodies, distinct }) {
    const found = await this.broker.all(await this.place(name))
    assert.deepEqual((bodies ? found : [...new Set(found)]).sort(), [...bodies ?? distinct].sort())
  }

  async calls (wanted) {
    await this.until(() => this.seen.length >= (wanted.length ?? wanted))
    if (!Array.isArray(wanted)) return
    assert.equal(this.seen.length, wanted.length)
    for (const [i, { repeat = 1, ...fields }] of wanted.entries()) {
      if (fields.body) fields.body = fields.body.repeat(repeat)
      assert.deepEqual(picked(this.seen[i], fields), fields)
    }
  }

  each_call (fields) {
    for (const call of this.seen) assert.deepEqual(picked(call, fields), fields)
  }

  bodies (wanted) {
    for (const [body, number] of Object.entries(wanted)) {
      assert.equal(this.seen.filter(call => call.body === body).length, number)
    }
  }

  apart (number, { least_ms: least }) {
    assert.ok(this.times[number] - this.times[number - 1] >= least)
  }

  async event (name, { times = 1, text = '', not_text: not = '\0', error, ...fields }) {
    const began = performance.now()
    const fits = event => {
      const values = valuesOf(event)
      return Object.entries(fields).every(([field, value]) => values[field] === value) &&
        (!error || event.error?.name === ERRORS[error]) &&
        event.text.includes(text) && !event.text.includes(not)
    }
    await this.until(() => this.named(name).filter(fits).length >= times)
    this.took.push(performance.now() - began)
    assert.ok(this.named(name).every(({ queue }) => queue === this.queue))
  }

  events (names, { id: of }) {
    const told = this.told.filter(({ id }) => id === of).map(({ name }) => name)
    const isCopy = name => this.kind === 'worker' && ['retried', 'parked'].includes(name) // in another thread
    for (const are of [true, false]) {
      assert.deepEqual(...[told, names].map(all => all.filter(name => isCopy(name) === are)))
    }
  }

  happened (wanted) {
    for (const [name, number] of Object.entries(wanted)) assert.equal(this.named(name).length, number, name)
  }

  no_event (names) {
    this.happened(Object.fromEntries(names.map(name => [name, 0])))
  }

  own_ids (number) {
    const idsOf = name => [...new Set(this.named(name).map(({ id }) => id))].sort()
    const ids = idsOf('delivered')
    assert.equal(ids.length, number)
    assert.ok(ids.every(id => /^[0-9a-f]{32}$/.test(id)), String(ids))
    for (const name of ['failed', 'retried', 'succeeded']) assert.deepEqual(idsOf(name), ids)
    assert.deepEqual([...new Set(this.seen.filter(({ attempt }) => attempt > 1).map(({ id }) => id))].sort(), ids)
  }

  forget () {
    this.told.length = this.took.length = 0
  }

  quickest_ms (most) {
    assert.ok(Math.min(...this.took) < most) // not each: a busy machine may be late
  }

  async state (wanted) {
    await this.until(() => this.health.state === wanted)
  }

  async gauge (number) {
    const line = `backhop_consumers_ready{queue="${this.queue}"} ${number}`
    await this.until(async () => (await this.register.metrics()).includes(line))
  }

  async gauge_of_breaker (states) {
    const line = new RegExp(`^backhop_breaker_state\\{queue="${this.queue}",breaker="api"\\} [${states}]$`, 'm')
    await this.until(async () => line.test(await this.register.metrics()))
  }

  async pending (number) {
    await this.until(() => this.carrier.retrier.pending === number)
  }

  async replay (most, { gives }) {
    const { worker, retrier } = await this.connected()
    assert.equal(await (worker ?? retrier).replay(most ?? undefined), gives)
  }

  async call (name) {
    if (name === 'start') await this.start()
    else await (await this.retrier())[name]()
  }

  async raises (kind, { from, texts = [] }) {
    await assert.rejects(this.call(from), error => {
      assert.equal(error.name, ERRORS[kind])
      assert.deepEqual(texts.filter(text => !error.message.includes(text)), [], error.message)
      return true
    })
  }

  async declare_by_another () {
    const { mode, ...options } = this.options
    const other = await ALL[this.name].connect(URL, this.queue, options)
    await other.retrier.declare()
    await other.stop()
  }

  /** Goes on as a user who may configure nothing. */
  async stranger () {
    this.topology = this.carrier.retrier.topology
    await this.stop()
    this.url = stranger(this.broker.namespace)
  }

  import_topology () {
    importing(this.topology.definitions())
  }

  release () {
    this.proxy.release()
  }

  cut () {
    this.proxy.cut()
    this.proxy.release()
  }

  /** Acknowledges an unknown delivery, so that the broker closes the consumer's channel. */
  break_channel () {
    const { channel } = this.carrier.connection.connection.channels.find(entry => entry?.channel.consumers?.size)
    channel.ack({ fields: { deliveryTag: 4711 } })
  }

  note_channels () {
    this.channels = channelsOf(this.carrier)
  }

  async same_channels () {
    await this.until(() => channelsOf(this.carrier) === this.channels)
  }

  look () {} // looks are due all the time

  breaker (change) {
    this.flow[change]()
  }

  async breaker_state (wanted, { key }) {
    await this.until(() => (key ? this.flow.stateOf(key) : this.flow.state) === wanted)
  }

  async refused (more) {
    const least = this.downs + more
    await this.until(() => this.downs >= least)
  }

  up () {
    this.isUp = true
  }

  async handled (wanted) {
    for (const [prefix, number] of Object.entries(wanted)) {
      await this.until(() => [...this.done.keys()].filter(body => body.startsWith(prefix)).length === number)
    }
  }

  counted () {
    assert.deepEqual(this.wrong, [])
  }

  /**
   * Calls that were permitted before it opened may end later: two rounds of handlers. Then come
   * probes.
   */
  spared (sent) {
    const most = 3 + 2 * Math.min(this.kind === 'wrap' ? 100 : 20, sent) + (performance.now() - this.began) / 300 + 2
    assert.ok(this.downs <= most, `${this.downs} calls while it was down, and not ${most}`)
  }

  deferred_only (prefix) {
    const of = isOf => [...this.done].filter(([body]) => body.startsWith(prefix) === isOf).map(([, number]) => number)
    assert.ok(of(false).every(number => !number) && Math.max(...of(true)) > 0)
  }

  /** Plays a case that publishes, starts and compares calls. */
  async rehearsed () {
    Object.assign(this, { queue: 'work' })
    const [{ publish: body, headers, properties }, , ...checks] = this.story.steps
    const options = { queue: 'work', policy: policyOf(FILE.policy), headers, properties: renamed(properties) }
    await rehearse(this.handle, body, options)
    for (const check of checks) {
      const [[verb, value]] = Object.entries(await this.filled(check))
      await this[verb](value)
    }
  }
}

/** Returns whether a carrier has a case, and the cases that it has for `each`. */
function storiesOf (name) {
  const fits = key => new RegExp(`^${key.replaceAll('*', '.*')}$`).test(`node/${name}`)
  const own = FILE.cases.filter(({ of, without = {} }) => of.includes(KINDS[name]) && !Object.keys(without).some(fits))
  return own.flatMap(({ each = { '': 0 }, ...story }) =>
    Object.keys(each).filter(key => VERSION >= Number(each[key])).map(key => {
      return key ? { ...story, id: `${story.id} ${key}`, options: { ...story.options, strategy: key } } : story
    }))
}

for (const name of Object.keys(KINDS)) {
  const needs = name === 'worker' && !buildInfo().worker ? { skip: 'built without librabbitmq' } : NEEDS_BROKER
  const isRehearsal = KINDS[name] === 'rehearsal'
  const options = { ...isRehearsal ? {} : needs, concurrency: AT_ONCE, long: !FIRST.includes(name) }
  describe(`steps, ${name}`, options, () => {
    for (const story of storiesOf(name)) {
      const control = story.control ? { ...NEEDS_CTL, long: true } : {}
      it(`${story.id}: ${story.shows}`, control, async () => {
        if (isRehearsal) return new Play(story, name).rehearsed()
        const broker = await Broker.connect()
        try {
          await new Play(story, name, broker).run()
        } finally {
          await broker.close()
        }
      })
    }
  })
}
