'use strict'
// Event: what happened to a message or a connection, the same over each client and of a worker; and who is told.
//
// The core has an event's kind, fields, level and line. One of its objects serves all events of a Teller: a listener is
// given an Event of its own, a bridge (see bridge.js) reads the core's.

const diagnostics = require('node:diagnostics_channel')
const { inspect } = require('node:util')

const c = require('./addon')
const { BRIDGE } = require('./bridge')
const { BackhopError, WaitTimeoutError, check, counted, errorOf, made } = require('./errors')
const { debug, warn } = require('./log')
const { idOf } = require('./message')
const { namesOf, refuse } = require('./options')
const { textOf } = require('./outcomes')
const { OUTCOMES } = require('./plan')

const CHANNEL = diagnostics.channel('backhop:event')
const LOG = made(c.bh_log_new())
const LINES = made(c.bh_event_new(c.BH_EVENT_DELIVERED))

const KINDS = new Map() // numbers by name
for (let kind = 0, name; (name = c.bh_event_name(kind)); kind++) KINDS.set(name, kind)
const IS_LOGGED = debug.enabled // by NODE_DEBUG, which is read once
const EACH_MESSAGE = [...KINDS.keys()].filter(name => c.bh_event_is_of_each(KINDS.get(name)))

const FIELDS = Array.from({ length: c.BH_FIELD_LAST }, (_, number) => number)
const {
  BH_FIELD_ATTEMPT: ATTEMPT, BH_FIELD_ATTEMPTS: ATTEMPTS, BH_FIELD_CONNECTION: CONNECTION, BH_FIELD_COUNT: COUNT,
  BH_FIELD_DELAY: DELAY, BH_FIELD_DURATION: DURATION, BH_FIELD_ERROR: ERROR, BH_FIELD_ERROR_CLASS: ERROR_CLASS,
  BH_FIELD_HOST: HOST, BH_FIELD_ID: ID, BH_FIELD_LATENESS: LATENESS, BH_FIELD_QUEUE: QUEUE, BH_FIELD_REASON: REASON,
  BH_FIELD_RECOVERY: RECOVERY, BH_FIELD_STATUS: STATUS, BH_LEVEL_WARNING: WARNING
} = c
const TEXTS = new Set(FIELDS.filter(number => c.bh_event_field_is_string(number)))
const US = 1000 // in a millisecond
const LEVELS = namesOf({
  debug: c.BH_LEVEL_DEBUG, info: c.BH_LEVEL_INFO, warning: WARNING, error: c.BH_LEVEL_ERROR
})

const NOBODY = {} // wants more of an event than whoever listens

const listed = (...values) => values

class Event {
  #values // as the core described it: kind, level, why in words, then each field by its number

  constructor (values, error) {
    const value = field => values[3 + field]
    this.#values = values
    this.name = c.bh_event_name(values[0])
    this.text = values[2]
    this.error = error ?? (value(STATUS) ? errorOf(value(STATUS), this.text) : undefined)
    this.id = value(ID) ?? ''
    this.queue = value(QUEUE) ?? ''
    this.connection = value(CONNECTION) ?? ''
    this.host = value(HOST) ?? ''
    this.attempt = value(ATTEMPT) ?? 0
    this.attempts = value(ATTEMPTS) ?? 0
    this.delay = value(DELAY) ?? 0
    this.count = value(COUNT) ?? 0
    this.reason = value(REASON) ?? ''
    this.errorClass = value(ERROR_CLASS) ?? ''
    this.errorText = value(ERROR) ?? ''
    this.lateness = value(LATENESS)
    this.duration = value(DURATION) === undefined ? undefined : value(DURATION) / US
    this.recovery = value(RECOVERY)
  }

  /** The event that the core's object is now. */
  static of (native, error) {
    return new Event(native.described(listed), error)
  }

  get level () {
    return LEVELS.get(this.#values[1])
  }

  get isWarning () {
    return this.#values[1] >= WARNING
  }

  /** The core's object again, until another event's is asked for. */
  static native (event) {
    const [kind, , , ...fields] = event.#values
    check(LINES.begin(kind))
    fields.forEach((value, field) => {
      if (value === undefined) return
      check(TEXTS.has(field) ? LINES.set_string(field, value) : LINES.set_int(field, value))
    })
    return LINES
  }

  /** One line, for people. */
  toString () {
    return String(Event.native(this).line())
  }

  /** What applies to it, and its error in words: an Error has no properties in JSON. */
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

/** Who listens may throw, at once or later: that is told, and nothing else comes of it. */
function give (listener, event) {
  const fail = error => complain(Event.native(event), error)
  try {
    const result = listener(event)
    if (typeof result?.then === 'function') Promise.resolve(result).then(undefined, fail)
  } catch (error) {
    fail(error)
  }
}

/** What failed at an event is a warning; of many there are few. */
function complain (native, error) {
  const line = LOG.listener_line(native, textOf(error), Math.floor(performance.now()))
  if (line.length) warn(String(line), 'BACKHOP_LISTENER')
}

/** Tells what a retrier or a worker meets: to the log, to who listens, and to node:diagnostics_channel. */
class Teller {
  #queue
  #listeners = []
  #observers = [] // bridges that are told each event
  #counts = null // the core's metrics that count each
  #isListened // whether isListened is true without subscribers of the channel, who come and go
  #isHeard // whether isHeard is true without subscribers of the channel
  #trace // of the bridge that traces: begins an attempt's span
  #native = made(c.bh_event_new(c.BH_EVENT_DELIVERED))

  /** `onEvent`: a function, a bridge, or an array of such; `source`: where events come from, as bridge.js has it. */
  constructor (queue, onEvent, source = {}) {
    this.#queue = queue
    this.source = source // which bridges hold weakly
    for (const each of new Set(Array.isArray(onEvent) ? onEvent : onEvent === undefined ? [] : [onEvent])) {
      if (each?.[BRIDGE]) this.#bridge(each[BRIDGE](source))
      else if (typeof each === 'function') this.#listeners.push(each)
      else refuse('onEvent', each, 'a function that is given each Event, a bridge, or an array of these')
    }
    this.#isListened = this.#listeners.length > 0 || this.#observers.length > 0 || IS_LOGGED
    this.#isHeard = this.#isListened || this.#counts !== null
  }

  #bridge ({ counts, observe, trace }) {
    if (counts && !this.#counts) this.#counts = counts
    else if (counts) this.#observers.push(native => check(counts.observe(native)))
    if (observe) this.#observers.push(observe)
    if (trace) this.#trace = trace
  }

  /** Whether somebody listens to what becomes of each message. */
  get isHeard () {
    return this.#isHeard || CHANNEL.hasSubscribers
  }

  /** Whether somebody is given the errors, too: metrics count alone. */
  get isListened () {
    return this.#isListened || CHANNEL.hasSubscribers
  }

  /** Calls the handler of a message, within the span of its attempt where it is traced. */
  handle (message, handler) {
    return this.#trace ? this.#traced(message, handler) : handler(message)
  }

  /** Whatever the bridge does, the handler is called once, and what it gives or throws goes through as it is. */
  #traced (message, handler) {
    const span = this.#contained('delivered', message, () => this.#trace(message, this.#queue))
    if (!span) return handler(message)
    let ended
    const call = () => {
      try {
        const result = handler(message)
        ended = { result, isLater: typeof result?.then === 'function' }
      } catch (thrown) {
        ended = { thrown }
      }
    }
    this.#contained('delivered', message, () => span.run(call))
    if (!ended) call()
    const succeed = result => {
      this.#contained('succeeded', message, span.succeeded)
      return result
    }
    const fail = thrown => {
      this.#contained('failed', message, () => span.failed(thrown))
      throw thrown
    }
    if ('thrown' in ended) return fail(ended.thrown)
    const { result, isLater } = ended
    return isLater ? new Promise(resolve => { resolve(result) }).then(succeed, fail) : succeed(result)
  }

  #contained (name, message, run) {
    try {
      return run()
    } catch (error) {
      check(LINES.begin(KINDS.get(name)))
      check(LINES.set_string(QUEUE, this.#queue))
      check(LINES.set_string(ID, idOf(message)))
      complain(LINES, error)
      return undefined
    }
  }

  /**
   * `fieldsOf` gives the fields; besides `history`, the core's, with `redelivered` and `now`; `error`, the exception
   * itself, and `trace`, that of the attempt. It is not called where nobody wants to know. `to` as of hand.
   */
  tell (name, fieldsOf, to = NOBODY) {
    if (!EACH_MESSAGE.includes(name)) return this.#tell(name, fieldsOf(), this.#counts, to)
    const isTold = to.isWanted || this.isListened
    if (!isTold && (!this.#counts || name === 'delivered')) return undefined
    const fields = fieldsOf()
    if (this.#counts && name !== 'delivered') this.#count(KINDS.get(name), fields)
    return isTold ? this.#tell(name, fields, null, to) : undefined
  }

  #tell (name, fields, counts, to) {
    return this.#hand(this.#native, this.#fill(KINDS.get(name), fields, counts), fields, to)
  }

  /** What happens to each message is counted without an event: its delivery at the end of that. */
  #count (kind, {
    history, redelivered, now, attempts, delay, reason = '', errorClass = '', duration = -1
  }) {
    const [queue, counts, us] = [this.#queue, this.#counts, Math.round(duration * US)]
    if (history) check(counts.count_message(kind, queue, history, Number(redelivered), now, errorClass, us))
    else check(counts.count_copy(kind, queue, attempts, delay, reason, errorClass, us))
  }

  /** Makes the core's object such an event, and has it counted where `counts` is not null; gives its level. */
  #fill (kind, {
    history, redelivered = false, now = 0, id = '', attempts = 0, delay = 0, count = 0, reason = '', errorClass = '',
    errorText = '', text = '', cause = '', duration = -1, connection = '', error,
    status = !errorClass && error instanceof BackhopError ? error.status : 0
  }, counts) {
    const native = this.#native
    const [queue, us] = [this.#queue, Math.round(duration * US)]
    if (history) {
      check(native.fill_message(kind, queue, history, Number(redelivered), now, errorClass, errorText, us))
      return native.level()
    }
    return counted(native.fill(
      kind, queue, id, attempts, delay, count, reason, errorClass, errorText, text, cause, us, status, connection,
      counts
    ))
  }

  /**
   * Hands on an event that the core has made. `isLogged`: it may become a warning of the process; `isWanted`: the
   * Event is made, and returned.
   */
  hand (native, about, to) {
    return this.#hand(native, native.level(), about, to)
  }

  #hand (native, level, { error, trace }, { isLogged = true, isWanted = false }) {
    if (IS_LOGGED || (isLogged && level >= WARNING)) this.#log(native, error, isLogged)
    for (const observe of this.#observers) {
      try {
        observe(native, { queue: this.#queue, error, trace })
      } catch (error) {
        complain(native, error)
      }
    }
    if (!isWanted && !this.#listeners.length && !CHANNEL.hasSubscribers) return undefined
    const event = Event.of(native, error)
    for (const listener of this.#listeners) give(listener, event)
    if (CHANNEL.hasSubscribers) CHANNEL.publish(event)
    return event
  }

  #log (native, error, isWarned) {
    const line = LOG.line(native, Math.floor(performance.now()))
    if (!line) return
    const name = c.bh_event_name(native.what())
    if (!isWarned || native.level() < WARNING) debug('%s', line)
    else warn(String(line), `BACKHOP_${name.toUpperCase()}`, Event.of(native, error))
  }

  /** No copy can be made, so that the original stays with the broker. */
  refused (id, error) {
    this.tell('refused', () => ({ cause: textOf(error), id, error }))
  }
}

/** What ends a replay, by its status, in the core's words. */
function replayError (status, cause = '') {
  const native = made(c.bh_event_new(KINDS.get('replayed')))
  check(native.set_int(STATUS, status))
  check(native.set_cause(cause))
  return errorOf(status, String(native.text()))
}

/** Of so many messages that are not settled, or whose copies are not confirmed, in time, in the core's words. */
function undrained (queue, count) {
  const native = made(c.bh_event_new(KINDS.get('drained')))
  check(native.set_string(QUEUE, queue))
  check(native.set_int(STATUS, WaitTimeoutError.status))
  check(native.set_int(COUNT, count))
  return new WaitTimeoutError(String(native.line()))
}

const ENDS = new Map(Object.entries(OUTCOMES).map(([name, number]) => [name, c.bh_event_name(c.bh_event_of(number))]))
/** What is told of a message once its handler has ended so. */
const endOf = outcome => ENDS.get(outcome)

module.exports = { EACH_MESSAGE, Event, Teller, endOf, replayError, undrained }
