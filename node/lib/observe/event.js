'use strict'
// Event: what happened to a message or a connection, the same over each client and of a worker. The
//   core has an event's kind, fields, level and line.

const { inspect } = require('node:util')

const { namesOf, numbers } = require('../checks')
const c = require('../core')
const { WaitTimeoutError, check, errorOf, inPhrases, made } = require('../errors')
const { Message } = require('../message')
const { NATIVE, listed } = require('../native')
const { textOf } = require('../outcomes')
const { OUTCOMES } = require('../plan')

const KINDS = new Map() // the core's numbers by name
for (let kind = 0, name; (name = c.bh_event_name(kind)); kind++) KINDS.set(name, kind)

const FIELDS = Array.from({ length: c.BH_FIELD_LAST }, (_, number) => number)
const {
  BH_FIELD_ATTEMPT: ATTEMPT, BH_FIELD_ATTEMPTS: ATTEMPTS, BH_FIELD_BREAKER: BREAKER,
  BH_FIELD_CONNECTION: CONNECTION,
  BH_FIELD_COUNT: COUNT, BH_FIELD_DEFERRALS: DEFERRALS, BH_FIELD_DELAY: DELAY,
  BH_FIELD_DURATION: DURATION, BH_FIELD_ERROR: ERROR,
  BH_FIELD_ERROR_CLASS: ERROR_CLASS, BH_FIELD_HOST: HOST, BH_FIELD_ID: ID,
  BH_FIELD_LATENESS: LATENESS, BH_FIELD_QUEUE: QUEUE, BH_FIELD_REASON: REASON,
  BH_FIELD_RECOVERY: RECOVERY, BH_FIELD_STATUS: STATUS, BH_LEVEL_WARNING: WARNING
} = c
const TEXTS = new Set(FIELDS.filter(number => c.bh_event_field_is_string(number)))
const US = 1000 // in a millisecond
const LEVELS = namesOf(numbers('BH_LEVEL_'))

const SHARED = made(c.bh_event_new(c.BH_EVENT_DELIVERED)) // the core's object behind Event.native

class Event {
  #values // as the core describes the event: kind, level, text, then each field by its number

  constructor (values, error) {
    const value = field => values[3 + field]
    this.#values = values
    this.name = c.bh_event_name(values[0])
    this.text = inPhrases(values[2])
    if (error === undefined && value(STATUS)) this.error = errorOf(value(STATUS), this.text)
    else this.error = error // also null, if a handler rejected with it
    this.id = value(ID) ?? ''
    this.queue = value(QUEUE) ?? ''
    this.connection = value(CONNECTION) ?? ''
    this.host = value(HOST) ?? ''
    this.attempt = value(ATTEMPT) ?? 0
    this.attempts = value(ATTEMPTS) ?? 0
    this.deferrals = value(DEFERRALS) ?? 0
    this.delay = value(DELAY) ?? 0
    this.count = value(COUNT) ?? 0
    this.reason = value(REASON) ?? ''
    this.breaker = value(BREAKER) ?? ''
    this.errorClass = value(ERROR_CLASS) ?? ''
    this.errorText = value(ERROR) ?? ''
    this.lateness = value(LATENESS)
    this.duration = value(DURATION) === undefined ? undefined : value(DURATION) / US
    this.recovery = value(RECOVERY)
  }

  /** Returns the Event that the core's object is now. */
  static of (native, error) {
    return new Event(native.described(listed), error)
  }

  get level () {
    return LEVELS.get(this.#values[1])
  }

  get isWarning () {
    return this.#values[1] >= WARNING
  }

  /** Returns the core's object of an event. It is shared: the next call overwrites it. */
  static native (event) {
    const [kind, , , ...fields] = event.#values
    check(SHARED.begin(kind))
    fields.forEach((value, field) => {
      if (value === undefined) return
      check(TEXTS.has(field) ? SHARED.set_string(field, value) : SHARED.set_int(field, value))
    })
    return SHARED
  }

  /** Returns the event as one line of text. */
  toString () {
    return inPhrases(String(Event.native(this).line()))
  }

  /**
   * Returns the fields that apply, for JSON. `error` is a text: an Error has no properties in JSON.
   */
  toJSON () {
    const { error, id, lateness, duration, recovery, ...others } = this
    return {
      level: this.level,
      ...Object.fromEntries(Object.entries(others).filter(([, value]) => value)),
      id: String(id) || undefined,
      error: error === undefined ? undefined : this.errorText || textOf(error),
      lateness,
      duration,
      recovery
    }
  }

  [inspect.custom] () {
    return `Event ${this}`
  }
}

/** Returns the error of a replay that ended with `status`, with the core's text. */
function replayError (status, cause = '') {
  const native = made(c.bh_event_new(KINDS.get('replayed')))
  check(native.set_int(STATUS, status))
  check(native.set_cause(cause))
  return errorOf(status, String(native.text()))
}

/**
 * Returns the error of a drain that ended with `count` messages unsettled, with the core's text.
 */
function undrained (queue, count) {
  const native = made(c.bh_event_new(KINDS.get('drained')))
  check(native.set_string(QUEUE, queue))
  check(native.set_int(STATUS, WaitTimeoutError.status))
  check(native.set_int(COUNT, count))
  return new WaitTimeoutError(String(native.line()))
}

/**
 * Returns the name of the event of a handler that ended with this result. A throttled message may
 * count as failed.
 */
function endOf ({ outcome, policy }, message, topology) {
  let number = OUTCOMES[outcome]
  if (outcome === 'throttled') {
    try {
      const history = Message.read(message, 'history')[NATIVE]
      number = c.bh_plan_outcome(history, (policy ?? topology.policy)[NATIVE], topology[NATIVE], number)
    } catch {
      // The settlement reports it.
    }
  }
  return c.bh_event_name(c.bh_event_of(number))
}

module.exports = { Event, KINDS, endOf, replayError, undrained }
