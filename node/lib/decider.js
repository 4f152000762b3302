'use strict'
// Decider: what the adapters share, from a client's message to a plan.

const c = require('./addon')
const { Delivery, fillDelivery, propertiesOf } = require('./delivery')
const { check, made } = require('./errors')
const { History, setHistory } = require('./history')
const NATIVE = require('./native')
const { callable, text, texts } = require('./options')
const { Choice } = require('./outcomes')
const { FRAME_MAX, Plan, RANDOM_BYTES, isPoison, randomBytes } = require('./plan')

/**
 * The header by which the guard goes: how often the broker delivered the message and got no answer. The history of one
 * without it is read where somebody asks for it.
 */
const DELIVERY_COUNT = 'x-delivery-count'

/**
 * Reads deliveries and makes plans, for one work queue.
 *
 * `never` and `only` choose errors that park a message at once, `policies` those that have one of their own, `frameMax`
 * is what the publishing connection negotiated, in bytes (0: no limit), `clock` gives milliseconds since the epoch,
 * `random` that many random bytes.
 */
class Decider {
  // The core's objects for the message at hand: to make them for each would cost more than to decide.
  #delivery = made(c.bh_delivery_new())
  #history = made(c.bh_history_new())
  #held
  #settings

  constructor (topology, options = {}) {
    const {
      never, only, policies, legacyCounter, waitQueues = [], frameMax = FRAME_MAX, clock = Date.now,
      random = randomBytes
    } = options
    this.topology = topology
    this.choice = new Choice({ never, only, policies })
    checkServed(topology, policies)
    this.frameMax = frameMax
    this.clock = callable(clock, 'clock', ' that gives milliseconds since the epoch')
    this.random = callable(random, 'random', ' that gives as many random bytes as it is asked for')
    if (legacyCounter !== undefined) text(legacyCounter, 'legacyCounter', 'the name of a header')
    this.#settings = { topology, legacyCounter, waitQueues: texts(waitQueues, 'waitQueues') }
    setHistory(this.#history, this.#settings)
  }

  /**
   * What a client's message tells: `{ exchange, routingKey, properties, headers }`, as a Delivery takes it; headers
   * beside the properties are the decider's from here on. It is read once it is asked or decided on, and fails there if
   * it cannot be read.
   */
  read (given) {
    return new GivenHistory(given, this.#settings)
  }

  /** What becomes of a message whose consumers were lost too often, before its handler; undefined for any other. */
  guard (history) {
    const { topology, frameMax } = this
    const now = this.clock()
    if (!isPoison(this.#hold(history), topology, frameMax, now)) return undefined
    return Plan.guard(history, topology, { frameMax, now, random: this.random(RANDOM_BYTES) }, this.#hold)
  }

  /** What that which a handler threw means. */
  result (thrown) {
    return this.choice.result(thrown)
  }

  /** What to do with the message. `traceparent`: of the span of the attempt that failed. */
  plan (history, { outcome, error, retryAfter, policy }, traceparent = '') {
    return new Plan(history, this.topology, {
      policy,
      outcome,
      error,
      retryAfter,
      traceparent,
      frameMax: this.frameMax,
      now: this.clock(),
      random: this.random(RANDOM_BYTES)
    }, this.#hold)
  }

  /** The core's history of it, which is another's once another message is read. */
  held (history) {
    return this.#hold(history)[1]
  }

  /** How to send a parked message back to its work queue. */
  replay (history) {
    const options = { frameMax: this.frameMax, random: this.random(RANDOM_BYTES) }
    return Plan.replay(history, this.topology, options, this.#hold)
  }

  /** The core's delivery and history of a message that `read` gave. */
  #hold = history => {
    if (this.#held !== history) {
      this.#held = undefined
      fillDelivery(this.#delivery, history.given)
      check(this.#history.read(this.#delivery, this.topology[NATIVE]))
      this.#held = history
    }
    return [this.#delivery, this.#history]
  }
}

/** Refuses policies of which the topology has not all waits. */
function checkServed (topology, policies = []) {
  for (const [, policy] of policies) check(topology[NATIVE].check_policy(policy[NATIVE]))
}

class GivenHistory extends History {
  /** What arrived, for the core and for the copy, whatever a handler does with what its client gave it. */
  given

  constructor ({ exchange, routingKey, properties = {}, headers = copyOf(properties.headers) }, settings) {
    super(undefined, settings)
    this.given = { exchange, routingKey, properties: propertiesOf(properties, headers) }
  }

  _delivered () {
    const { given } = this
    return new Delivery({}, native => fillDelivery(native, given))
  }
}

/** A copy of headers, of whatever form; what is nested in them is shared. */
function copyOf (headers) {
  if (Array.isArray(headers)) return [...headers]
  return headers instanceof Map ? new Map(headers) : headers && { ...headers }
}

module.exports = { DELIVERY_COUNT, Decider, checkServed }
