'use strict'
// History: the past of a message, read from its headers.

const { inspect } = require('node:util')

const c = require('./core')
const { check, made } = require('./errors')
const { NATIVE, range } = require('./native')
const { namesOf, numbers, only } = require('./checks')
const { Delivery } = require('./delivery')
const { moment } = require('./times')

const SOURCES = namesOf(numbers('BH_SOURCE_'))
const OPTIONS = ['topology', 'legacyCounter', 'waitQueues']

class History {
  #delivery
  #settings
  #native

  /**
   * Without a delivery, the history is read on first access, by _delivered() and _read(native) of a
   * subclass.
   */
  constructor (delivery, options = {}) {
    this.#delivery = delivery
    this.#settings = delivery ? only(options, OPTIONS, 'a History') : options
    if (delivery) this.#make()
  }

  get delivery () {
    return (this.#delivery ??= this._delivered())
  }

  get [NATIVE] () {
    return this.#native ?? this.#make()
  }

  #make () {
    const native = made(c.bh_history_new())
    this._read(native)
    return (this.#native = native)
  }

  _read (native) {
    const { topology, ...settings } = this.#settings
    setHistory(native, settings)
    check(native.read(this.delivery[NATIVE], topology ? topology[NATIVE] : null))
  }

  /** Reads the struct bh_past of the core. */
  get #past () {
    const [, source, firstFailure, lastDelay, deferrals, replays, crashes, deliveryCount, acquiredCount, deathCount,
      lastError, parked, traceparent] = this[NATIVE].past()
    return {
      source,
      firstFailure,
      lastDelay,
      deferrals,
      replays,
      crashes,
      deliveryCount,
      acquiredCount,
      deathCount,
      lastError,
      parked,
      traceparent
    }
  }

  get attempts () {
    return this[NATIVE].attempts()
  }

  get source () {
    return SOURCES.get(this.#past.source)
  }

  get firstFailure () {
    return moment(this.#past.firstFailure)
  }

  get lastDelay () {
    const delay = this.#past.lastDelay
    return delay < 0 ? undefined : delay
  }

  get lastError () {
    return this.#past.lastError
  }

  get id () {
    return this[NATIVE].id()
  }

  /**
   * The id for events and logs: the same from the first delivery on, if a retrier or a worker read
   * it.
   */
  get _eventId () {
    return this[NATIVE].event_id()
  }

  get traceparent () {
    return this.#past.traceparent
  }

  get hasId () {
    return this[NATIVE].id() !== ''
  }

  get exchange () {
    return this[NATIVE].exchange()
  }

  get routingKey () {
    return this[NATIVE].routing_key()
  }

  get parked () {
    return this.#past.parked
  }

  get deliveryCount () {
    return this.#past.deliveryCount
  }

  get acquiredCount () {
    return this.#past.acquiredCount
  }

  get crashes () {
    return this.#past.crashes
  }

  get deferrals () {
    return this.#past.deferrals
  }

  get replays () {
    return this.#past.replays
  }

  get deaths () {
    const native = this[NATIVE]
    return range(this.#past.deathCount).map(i => {
      const [queue, reason, exchange, originalExpiration, times, firstTime, routingKeys] = native.death(i)
      return { queue, reason, times, time: moment(Number(firstTime) * 1000), exchange, routingKeys, originalExpiration }
    })
  }

  get firstDeath () {
    const [queue, reason, exchange] = this[NATIVE].first_death()
    return { queue, reason, exchange }
  }

  get lastDeath () {
    const [queue, reason, exchange] = this[NATIVE].last_death()
    return { queue, reason, exchange }
  }

  get problems () {
    const native = this[NATIVE]
    const problems = []
    let problem = native.problem(0)
    while (problem !== '') {
      problems.push(problem)
      problem = native.problem(problems.length)
    }
    return problems
  }

  [inspect.custom] (depth, options) {
    const { id, attempts, source } = this
    return `History ${inspect({ id, attempts, source }, options)}`
  }
}

/** Sets the earlier counters that a history of the core reads too. */
function setHistory (native, { legacyCounter, waitQueues = [] }) {
  if (legacyCounter) check(native.set_legacy_counter(legacyCounter))
  for (const queue of waitQueues) check(native.add_wait_queue(queue))
}

/** Returns a message's story, in words. */
function explain (headers, options) {
  return new History(new Delivery({ headers: headers ?? {} }), options)[NATIVE].explanation()
}

module.exports = { History, explain, setHistory }
