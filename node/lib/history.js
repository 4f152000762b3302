'use strict'
// History: what the headers tell of a message's past.

const { inspect } = require('node:util')

const c = require('./addon')
const { check, made } = require('./errors')
const NATIVE = require('./native')
const { namesOf, only } = require('./options')
const { moment } = require('./time')

const SOURCES = namesOf({
  none: c.BH_SOURCE_NONE,
  backhop: c.BH_SOURCE_BACKHOP,
  legacy: c.BH_SOURCE_LEGACY,
  'x-death': c.BH_SOURCE_X_DEATH,
  'delivery-count': c.BH_SOURCE_DELIVERY_COUNT
})
const OPTIONS = ['topology', 'legacyCounter', 'waitQueues']

class History {
  #delivery
  #settings
  #native

  /** Without a delivery it is read once it is asked: _delivered() and _read(native) are those of its class. */
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

  get attempts () {
    return this[NATIVE].attempts()
  }

  get source () {
    return SOURCES.get(this[NATIVE].attempts_source())
  }

  get firstFailure () {
    return moment(this[NATIVE].first_failure_ms())
  }

  get lastDelay () {
    const delay = this[NATIVE].last_delay_ms()
    return delay < 0 ? undefined : delay
  }

  get lastError () {
    return this[NATIVE].last_error()
  }

  get id () {
    return this[NATIVE].id()
  }

  get traceparent () {
    return this[NATIVE].traceparent()
  }

  get hasId () {
    return Boolean(this[NATIVE].has_id())
  }

  get exchange () {
    return this[NATIVE].exchange()
  }

  get routingKey () {
    return this[NATIVE].routing_key()
  }

  get parked () {
    return this[NATIVE].parked()
  }

  get deliveryCount () {
    return this[NATIVE].delivery_count()
  }

  get acquiredCount () {
    return this[NATIVE].acquired_count()
  }

  get crashes () {
    return this[NATIVE].crashes()
  }

  get replays () {
    return this[NATIVE].replays()
  }

  get deaths () {
    const native = this[NATIVE]
    return range(native.death_count()).map(i => ({
      queue: native.death_queue(i),
      reason: native.death_reason(i),
      times: native.death_times(i),
      time: moment(Number(native.death_first_time_s(i)) * 1000),
      exchange: native.death_exchange(i),
      routingKeys: range(native.death_routing_key_count(i)).map(key => native.death_routing_key(i, key)),
      originalExpiration: native.death_original_expiration(i)
    }))
  }

  get firstDeath () {
    const native = this[NATIVE]
    return {
      queue: native.first_death_queue(),
      reason: native.first_death_reason(),
      exchange: native.first_death_exchange()
    }
  }

  get lastDeath () {
    const native = this[NATIVE]
    return {
      queue: native.last_death_queue(),
      reason: native.last_death_reason(),
      exchange: native.last_death_exchange()
    }
  }

  get problems () {
    const native = this[NATIVE]
    return range(native.problem_count()).map(i => native.problem(i))
  }

  [inspect.custom] (depth, options) {
    const { id, attempts, source } = this
    return `History ${inspect({ id, attempts, source }, options)}`
  }
}

/** What a history of the core is to count besides. */
function setHistory (native, { legacyCounter, waitQueues = [] }) {
  if (legacyCounter) check(native.set_legacy_counter(legacyCounter))
  for (const queue of waitQueues) check(native.add_wait_queue(queue))
}

function range (count) {
  return Array.from({ length: count }, (_, i) => i)
}

module.exports = { History, range, setHistory }
