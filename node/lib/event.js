'use strict'
// Event: what a worker or a retrier met, and what it did about it.

const { inspect } = require('node:util')

const c = require('./addon')
const { errorOf } = require('./errors')
const { warn } = require('./log')
const { textOf } = require('./outcomes')

const INFO = new Set(['connected', 'unblocked', 'retried', 'stale', 'replayed'])

class Event {
  constructor (name, {
    text = '', error, id = '', queue = '', connection = '', host = '', attempts = 0, delay = 0, count = 0
  } = {}) {
    Object.assign(this, { name, text, error, id, queue, connection, host, attempts, delay, count })
  }

  /** The event that a worker gave. */
  static of (native, queue) {
    const string = field => native.string(field)
    const int = field => c.bh_event_int(native, field)
    const status = int(c.BH_FIELD_STATUS)
    const text = string(c.BH_FIELD_TEXT) || string(c.BH_FIELD_REASON)
    return new Event(c.bh_event_name(native.what()), {
      text,
      error: status ? errorOf(status, text) : undefined,
      id: string(c.BH_FIELD_ID),
      queue,
      connection: string(c.BH_FIELD_CONNECTION),
      host: string(c.BH_FIELD_HOST),
      attempts: int(c.BH_FIELD_ATTEMPTS),
      delay: int(c.BH_FIELD_DELAY),
      count: int(c.BH_FIELD_COUNT)
    })
  }

  /** Whether it is worth a warning. */
  get isWarning () {
    return this.name === 'drained' ? Boolean(this.error) : !INFO.has(this.name)
  }

  toString () {
    const parts = [this.name, this.id.length && `message ${this.id}`, this.text]
    if (this.count) parts.push(`${this.count} messages`)
    if (this.delay) parts.push(`in ${this.delay / 1000} s`)
    return parts.filter(Boolean).join(': ')
  }

  [inspect.custom] () {
    return `Event ${this}`
  }
}

/** Tells what a retrier meets: as a warning of the process, and to who listens. */
class Teller {
  #queue
  #listener

  constructor (queue, listener) {
    this.#queue = queue
    this.#listener = listener
  }

  /** As an event alone: where nobody listens, nothing is made. */
  note (name, fieldsOf) {
    if (this.#listener) this.#hand(new Event(name, { ...fieldsOf(), queue: this.#queue }))
  }

  /** As a warning, too. */
  tell (name, fieldsOf) {
    const event = new Event(name, { ...fieldsOf(), queue: this.#queue })
    warn(`${this.#queue}: ${event}`, `BACKHOP_${name.toUpperCase()}`)
    if (this.#listener) this.#hand(event)
  }

  /** No copy can be made, so that the original stays with the broker. */
  refused (id, error) {
    this.tell('refused', () => ({
      text: `it can be neither read nor copied, so that it stays unacknowledged: ${textOf(error)}`, id, error
    }))
  }

  #hand (event) {
    try {
      this.#listener(event)
    } catch (error) {
      warn(`${this.#queue}: onEvent threw at ${event.name}: ${textOf(error)}`, 'BACKHOP_LISTENER')
    }
  }
}

module.exports = { Event, Teller }
