'use strict'
// Event: what a worker met, and what it did about it.

const { inspect } = require('node:util')

const c = require('./addon')
const { errorOf } = require('./errors')

const INFO = new Set(['connected', 'unblocked', 'retried', 'stale', 'replayed'])

class Event {
  constructor (native) {
    const status = native.status()
    const text = native.text()
    this.name = c.bh_event_name(native.what())
    this.text = text
    this.error = status ? errorOf(status, text) : undefined
    this.id = native.id()
    this.attempts = native.attempts()
    this.delay = native.delay_ms()
    this.count = native.count()
  }

  /** Whether it is worth a warning. */
  get isWarning () {
    return this.name === 'drained' ? Boolean(this.error) : !INFO.has(this.name)
  }

  toString () {
    const parts = [this.name, this.id && `message ${this.id}`, this.text]
    if (this.count) parts.push(`${this.count} messages`)
    if (this.delay) parts.push(`in ${this.delay / 1000} s`)
    return parts.filter(Boolean).join(': ')
  }

  [inspect.custom] () {
    return `Event ${this}`
  }
}

module.exports = { Event }
