'use strict'
// For tests: rehearsals, which run a handler and a policy without a broker and without delays.
// broker.js has a model of RabbitMQ. testing.d.ts is the manual.

const { randomBytes } = require('node:crypto')
const { inspect, promisify } = require('node:util')

const { Breaker } = require('./breaker')
const { startBroker } = require('./broker')
const { Decider } = require('./decider')
const { Message } = require('./message')
const { handler, instance, only, refuse, whole } = require('./checks')
const { finished } = require('./finished')
const { OK, classOf, policiesOf, textOf } = require('./outcomes')
const { duration, milliseconds } = require('./times')
const { TOPOLOGY, topologyOf } = require('./topology')

const EVERY = 100 // rehearsals
const turn = promisify(randomBytes)
let rehearsals = 0
const START = Date.UTC(2026, 0, 1)
const RETRIES = ['retry', 'defer', 'reject', 'return']
const ENDS = { ack: 'acked', park: 'parked', drop: 'dropped' }
const OPTIONS = [
  ...TOPOLOGY, 'topology', 'never', 'only', 'policies', 'exchange', 'routingKey', 'headers', 'properties',
  'legacyCounter', 'waitQueues', 'clock', 'random', 'mostAttempts', 'breaker'
]

/** A clock for tests. It goes on only if it is advanced. */
class Clock {
  constructor (start = START) {
    this.now = Number(start)
    if (Number.isNaN(this.now)) refuse('start', start, 'a Date, or milliseconds since the epoch')
  }

  advance (by) {
    this.now += milliseconds(by, 'what advance is given')
  }
}

/** Returns a function that gives `count` bytes, the same in every run: Mulberry32. */
function seededRandom (seed = 0) {
  let state = seed >>> 0
  return count => Buffer.from(Array.from({ length: count }, () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ state >>> 15, state | 1)
    mixed ^= mixed + Math.imul(mixed ^ mixed >>> 7, mixed | 61)
    return (mixed ^ mixed >>> 14) & 0xff
  }))
}

/** The attempts of a message, as an array that prints as a table. */
class Rehearsal extends Array {
  static get [Symbol.species] () {
    return Array
  }

  get outcome () {
    return ENDS[this.at(-1).plan.action] ?? 'waiting'
  }

  get reason () {
    return this.at(-1).plan.reason
  }

  get delays () {
    return this.filter(({ plan }) => RETRIES.includes(plan.action)).map(({ delay }) => delay)
  }

  get errors () {
    return this.filter(attempt => 'error' in attempt).map(({ error }) => error)
  }

  toString () {
    const rows = this.map(({ number, at, plan, delay, breaker, ...rest }) => {
      const end = 'error' in rest ? textOf(rest.error) || classOf(rest.error) : plan.action === 'ack' ? 'ok' : ''
      const again = delay ? `, again in ${duration(delay)}` : ''
      const state = breaker ? ` (breaker ${breaker})` : ''
      const what = plan.action === 'defer' && !end ? 'no call' : end
      return `attempt ${String(number).padStart(2)} after ${duration(at).padStart(12)}: ${what}${again}${state}`
    })
    return [...rows, this.reason ? `${this.outcome} (${this.reason})` : this.outcome].join('\n')
  }

  [inspect.custom] () {
    return this.toString()
  }
}

/** A message with amqplib's `fields` and `properties`, and node-amqp's `payload`, besides. */
class RehearsedMessage extends Message {
  constructor (content, history, options, { exchange, routingKey, properties }) {
    super(content, history, options)
    this.fields = { deliveryTag: 1, redelivered: false, exchange, routingKey, consumerTag: 'rehearsal' }
    this.properties = properties
    this.payload = { data: content, contentType: properties.contentType }
    this.deliveryInfo = { ...properties, ...this.fields, queue: this.queue }
  }
}

async function rehearse (handle, content = Buffer.alloc(0), options = {}) {
  handler(handle, 'rehearse')
  if (typeof content !== 'string' && !(content instanceof Uint8Array)) {
    refuse('content', content, 'a string or a Buffer')
  }
  const {
    never, only: others, policies: pairs = [], exchange = '', headers = {}, properties = {}, legacyCounter, waitQueues,
    clock = new Clock(), random = seededRandom(), mostAttempts = 100, breaker
  } = only(options, OPTIONS, 'a rehearsal')
  instance(clock, Clock, 'clock')
  whole(mostAttempts, 'mostAttempts', 1)
  const policies = policiesOf(pairs)
  const topology = topologyOf({ ...options.topology ? {} : { queue: 'work' }, ...options }, 'a rehearsal', policies)
  if (breaker !== undefined) instance(breaker, Breaker, 'breaker')._checkServed(topology)
  const { queue } = topology
  const { routingKey = queue } = options
  const decider = new Decider(topology, {
    never, only: others, policies, legacyCounter, waitQueues, random, clock: () => clock.now
  })
  // The core's objects are freed in the next turn of the event loop. This call ends in one, and
  // needs no timer, which a test may have replaced.
  if (++rehearsals % EVERY === 0) await turn(1)
  const rehearsal = new Rehearsal()
  const start = clock.now
  let given = { exchange, routingKey, properties: { ...properties, headers } }
  for (let returns = 1; returns <= mostAttempts; returns++) {
    const at = clock.now - start
    const history = decider.read(given)
    const message = new RehearsedMessage(Buffer.from(content), history, { topology }, given)
    const attempt = { number: message.attempt, at }
    const poison = decider.guard(history)
    const plan = poison ?? decider.plan(history, await resultOf(decider, handle, message, { attempt, breaker, clock }))
    rehearsal.push(Object.assign(attempt, { plan, delay: plan.delay }))
    if (!RETRIES.includes(plan.action)) break
    clock.advance(plan.delay)
    given = comesBack(given, plan, { queue, routingKey, returns })
  }
  return rehearsal
}

async function resultOf (decider, handle, message, { attempt, breaker, clock }) {
  let call
  let result = OK
  const end = {}
  try {
    call = breaker?._begin(message, clock.now)
    if (call?.delay === undefined) finished(await handle(message))
    else result = { outcome: 'deferred', retryAfter: call.delay }
  } catch (error) {
    attempt.error = error
    result = decider.result(error)
    Object.assign(end, { errorClass: classOf(error), isDownstreams: breaker?._isDownstreams(error) })
  }
  call?.end(result, end, clock.now)
  if (call) attempt.breaker = call.state
  return result
}

/** Returns the message as the broker delivers it again. */
function comesBack (given, plan, { queue, routingKey, returns }) {
  const { headers } = given.properties
  if (plan.action === 'return') return withHeaders(given, { ...headers, 'x-delivery-count': returns })
  if (plan.action === 'reject') {
    const death = { queue, reason: 'rejected', count: returns, exchange: given.exchange, 'routing-keys': [routingKey] }
    return withHeaders(given, { ...headers, 'x-death': [death] })
  }
  const { BCC, 'x-delay': delay, ...kept } = plan.copyHeaders(headers)
  const copy = { ...plan.copyProperties(given.properties), headers: kept }
  return { exchange: plan.exchange, routingKey: plan.routingKey, properties: copy }
}

function withHeaders (given, headers) {
  return { ...given, properties: { ...given.properties, headers } }
}

module.exports = { Clock, Rehearsal, rehearse, seededRandom, startBroker }
