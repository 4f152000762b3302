'use strict'
// Decider: makes plans from a client's messages. The adapters and the rehearsal share it.

const c = require('./core')
const { Delivery, fillDelivery, propertiesOf } = require('./delivery')
const { check, made } = require('./errors')
const { History, setHistory } = require('./history')
const { NATIVE } = require('./native')
const { callable, text, texts } = require('./checks')
const { Choice } = require('./outcomes')
const { FRAME_MAX, Plan, RANDOM_BYTES, isPoison, randomBytes } = require('./plan')

const ID_BYTES = 16 // of random, for the id of a message that has none

/**
 * The header with the number of deliveries that were not settled. The poison guard reads only
 * messages that have it.
 */
const DELIVERY_COUNT = 'x-delivery-count'
const ID = 'backhop-id' // the header of an id, before the property message-id

/**
 * Reads deliveries and makes plans, for one work queue.
 *
 * never, only, policies: see Choice
 * frameMax: frame_max of the connection that publishes, in bytes; 0: no limit
 * clock: returns milliseconds since the epoch
 * random: returns `count` random bytes
 */
class Decider {
  // The core's objects for the message at hand. Making them costs more than a decision.
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
    this.random = callable(random, 'random', ' that returns the requested number of random bytes')
    if (legacyCounter !== undefined) text(legacyCounter, 'legacyCounter', 'the name of a header')
    this.#settings = { topology, legacyCounter, waitQueues: texts(waitQueues, 'waitQueues') }
    setHistory(this.#history, this.#settings)
  }

  /**
   * Returns the history of `{ exchange, routingKey, properties, headers }`, the options of a
   * Delivery. If headers are given beside the properties, the decider may keep them.
   *
   * The message is parsed on first access, or when it is decided on. That fails if it cannot be
   * read.
   */
  read (given) {
    return new GivenHistory(given, this.#settings, this.random)
  }

  /**
   * Returns the plan of a message that has lost too many consumers; undefined for any other
   * message.
   */
  guard (history) {
    const { topology, frameMax } = this
    const now = this.clock()
    if (!isPoison(this.#hold(history), topology, frameMax, now)) return undefined
    return Plan.guard(history, topology, { frameMax, now, random: this.random(RANDOM_BYTES) }, this.#hold)
  }

  /** Maps a thrown value to a result, see Choice. */
  result (thrown) {
    return this.choice.result(thrown)
  }

  /** Returns the plan after an attempt. traceparent: of the span of the failed attempt. */
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
    }, this.#identify)
  }

  /** Returns the core's history of a message as it arrived. The next message overwrites it. */
  arrived (history) {
    return this.#hold(history)[1]
  }

  /** Returns the core's history of a message. The next message overwrites it. */
  held (history) {
    return this.#identify(history)[1]
  }

  /** Returns the plan that moves a parked message back to its work queue. */
  replay (history) {
    const options = { frameMax: this.frameMax, random: this.random(RANDOM_BYTES) }
    return Plan.replay(history, this.topology, options, this.#hold)
  }

  /** Returns the core's delivery and history of a message of `read`. */
  #hold = history => {
    if (this.#held !== history) {
      this.#held = undefined
      fillDelivery(this.#delivery, history.given)
      check(this.#history.read(this.#delivery, this.topology[NATIVE]))
      this.#held = history
    }
    return [this.#delivery, this.#history]
  }

  /** Like #hold, and a message without an id has its assigned one. */
  #identify = history => {
    const natives = this.#hold(history)
    check(this.#history.assign_id(history.bits))
    return natives
  }
}

/** Throws a ForeignPolicyError if the topology lacks a rung of a policy. */
function checkServed (topology, policies = []) {
  for (const [, policy] of policies) check(topology[NATIVE].check_policy(policy[NATIVE]))
}

class GivenHistory extends History {
  /** The delivery, for the core and for the copy. A handler cannot change it. */
  given
  #random
  #bits

  constructor ({ exchange, routingKey, properties = {}, headers = copyOf(properties.headers) }, settings, random) {
    super(undefined, settings)
    this.given = { exchange, routingKey, properties: propertiesOf(properties, headers) }
    this.#random = random
  }

  /** Random bytes of this delivery, for the id of a message that has none. */
  get bits () {
    return (this.#bits ??= this.#random(ID_BYTES))
  }

  _read (native) {
    super._read(native)
    check(native.assign_id(this.bits))
  }

  _delivered () {
    const { given } = this
    return new Delivery({}, native => fillDelivery(native, given))
  }
}

/** Returns a shallow copy of headers: an object, a Map or pairs. */
function copyOf (headers) {
  if (Array.isArray(headers)) return [...headers]
  return headers instanceof Map ? new Map(headers) : headers && { ...headers }
}

module.exports = { DELIVERY_COUNT, ID, Decider, checkServed }
