'use strict'
// Emitter: passes the events of a retrier or a worker to the log, to listeners, to observers and to
// node:diagnostics_channel.
//
// An Emitter fills one of the core's objects for all its events. A listener gets an Event of its
// own; an observer (see observer.js) reads the core's object.

const diagnostics = require('node:diagnostics_channel')

const { refuse } = require('../checks')
const c = require('../core')
const { BackhopError, check, counted, inPhrases, made } = require('../errors')
const { finished } = require('../finished')
const { idOf } = require('../message')
const { textOf } = require('../outcomes')
const { Event, KINDS } = require('./event')
const { debug, warn } = require('../log')
const { ATTACH } = require('./observer')

const CHANNEL = diagnostics.channel('backhop:event')
const LOG = made(c.bh_log_new())
const IS_LOGGED = debug.enabled // by NODE_DEBUG, which is read once
const EACH_MESSAGE = [...KINDS.keys()].filter(name => c.bh_event_is_of_each(KINDS.get(name)))
const { BH_FIELD_ID: ID, BH_FIELD_QUEUE: QUEUE, BH_LEVEL_WARNING: WARNING } = c
const US = 1000 // in a millisecond
const NO_DEMAND = {} // neither a log line nor an Event beyond what listeners need

/** Calls a listener. If it throws or rejects, that becomes a warning. */
function call (listener, event) {
  const fail = error => warnOfListener(Event.native(event), error)
  try {
    const result = listener(event)
    if (typeof result?.then === 'function') Promise.resolve(result).then(undefined, fail)
  } catch (error) {
    fail(error)
  }
}

/**
 * Warns that a listener failed at an event. The core limits the number of warnings per second and
 * queue.
 */
function warnOfListener (native, error) {
  const line = LOG.listener_line(native, textOf(error), Math.floor(performance.now()))
  if (line.length) warn(String(line), 'BACKHOP_LISTENER')
}

class Emitter {
  #queue
  #listeners = []
  #observers = [] // functions that are called with each event
  #counts = null // the core's metrics that count each event
  #hasListeners // without subscribers of the channel, who come and go
  #isObserved // the same
  #trace // begins the span of an attempt
  #waits // returns the trace of a message that no handler got
  #native = made(c.bh_event_new(c.BH_EVENT_DELIVERED))
  healths = new Set() // that follow the events

  /**
   * queue: the work queue
   * onEvent: a function, an observer, or an array of these
   * source: the source of the events, as observer.js describes it
   */
  constructor (queue, onEvent, source = {}) {
    this.#queue = queue
    this.source = source // observers keep weak references to its functions
    for (const each of new Set(Array.isArray(onEvent) ? onEvent : onEvent === undefined ? [] : [onEvent])) {
      if (each?.[ATTACH]) this.#attach(each[ATTACH](source))
      else if (typeof each === 'function') this.#listeners.push(each)
      else refuse('onEvent', each, 'a function that is given each Event, a bridge, or an array of these')
    }
    this.#hasListeners = this.#listeners.length > 0 || this.#observers.length > 0 || IS_LOGGED
    this.#isObserved = this.#hasListeners || this.#counts !== null
  }

  #attach ({ counts, observe, trace, waits }) {
    if (counts && !this.#counts) this.#counts = counts
    else if (counts) this.#observers.push(native => check(counts.observe(native)))
    if (observe) this.#observers.push(observe)
    if (trace) [this.#trace, this.#waits] = [trace, waits]
  }

  /**
   * True if a listener needs the events of each message: delivered, succeeded, failed and dropped.
   */
  get isObserved () {
    return this.#isObserved || CHANNEL.hasSubscribers
  }

  /** True if anything but metrics needs them, so that events need their errors too. */
  get hasListeners () {
    return this.#hasListeners || CHANNEL.hasSubscribers
  }

  /** Calls the handler of a message, within the span of its attempt if the retrier is traced. */
  handle (message, handler) {
    return this.#trace ? this.#traced(message, handler) : handler(message)
  }

  /**
   * Returns the trace for the event of a copy if no handler got the message. Returns undefined if
   * the retrier is not traced.
   */
  waiting (message) {
    return this.#waits && this.#contain('deferred', message, () => ({ trace: this.#waits(message) }))
  }

  /**
   * Calls the handler once, whatever the observer does. Its result or exception is passed on
   * unchanged.
   */
  #traced (message, handler) {
    const span = this.#contain('delivered', message, () => this.#trace(message, this.#queue))
    if (!span) return handler(message)
    let ended
    const run = () => {
      try {
        const result = handler(message)
        ended = { result, isAsync: typeof result?.then === 'function' }
      } catch (thrown) {
        ended = { thrown }
      }
    }
    this.#contain('delivered', message, () => span.run(run))
    if (!ended) run()
    const succeed = result => {
      try {
        finished(result)
      } catch (thrown) {
        return fail(thrown)
      }
      this.#contain('succeeded', message, span.succeeded)
      return result
    }
    const fail = thrown => {
      this.#contain('failed', message, () => span.failed(thrown))
      throw thrown
    }
    if ('thrown' in ended) return fail(ended.thrown)
    const { result, isAsync } = ended
    return isAsync ? new Promise(resolve => { resolve(result) }).then(succeed, fail) : succeed(result)
  }

  /**
   * Calls a function of an observer. If it throws, that becomes a warning about the event `name`.
   */
  #contain (name, message, run) {
    try {
      return run()
    } catch (error) {
      const native = made(c.bh_event_new(KINDS.get(name)))
      check(native.set_string(QUEUE, this.#queue))
      check(native.set_string(ID, idOf(message)))
      warnOfListener(native, error)
      return undefined
    }
  }

  /**
   * Emits an event. Returns the Event if `demand.isWanted` is set, or if there is a listener.
   *
   * fieldsOf: returns the fields. Further: `error`, the exception; `trace` of the attempt;
   * `history`, the core's, with `redelivered` and `now`. It is not called if the event is not
   * needed.
   * demand: see deliver; `healths`: whose state the event may change, default all
   */
  emit (name, fieldsOf, demand = NO_DEMAND) {
    if (!EACH_MESSAGE.includes(name)) return this.#emitOther(name, fieldsOf(), demand)
    const isNeeded = demand.isWanted || this.hasListeners
    if (!isNeeded && (!this.#counts || name === 'delivered')) return undefined
    const fields = fieldsOf()
    if (this.#counts && name !== 'delivered') this.#count(KINDS.get(name), fields)
    return isNeeded ? this.#emit(name, fields, null, demand) : undefined
  }

  #emitOther (name, fields, demand) {
    const { healths = this.healths } = demand
    const level = this.#fill(KINDS.get(name), fields, this.#counts)
    for (const health of healths) health.observe(this.#native)
    return this.#deliver(this.#native, level, fields, demand)
  }

  #emit (name, fields, counts, demand) {
    return this.#deliver(this.#native, this.#fill(KINDS.get(name), fields, counts), fields, demand)
  }

  /**
   * Counts a message or a copy without an event. A delivery is counted at the end of its message.
   */
  #count (kind, {
    history, redelivered, now, attempts, delay, reason = '', errorClass = '', duration = -1
  }) {
    const [queue, counts, us] = [this.#queue, this.#counts, Math.round(duration * US)]
    if (history) check(counts.count_message(kind, queue, history, Number(redelivered), now, errorClass, us))
    else check(counts.count_copy(kind, queue, attempts, delay, reason, errorClass, us))
  }

  /**
   * Fills the core's object, and counts the event if `counts` is not null. Returns the event's
   * level.
   */
  #fill (kind, {
    history, redelivered = false, now = 0, id = '', attempts = 0, deferrals = 0, delay = 0, count = 0,
    reason = '', errorClass = '', errorText = '', text = '', cause = '', duration = -1, connection = '', error,
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
      deferrals, counts
    ))
  }

  /**
   * Emits an event of a consumer whose fields the core sets.
   *
   * describe: sets them on the core's event, and returns its status
   * healths: whose state the event changes
   */
  emitDescribed (kind, describe, healths) {
    const native = this.#native
    check(native.begin(kind))
    check(native.set_string(QUEUE, this.#queue))
    check(describe(native))
    if (this.#counts) check(this.#counts.observe(native))
    for (const health of healths) health.observe(native)
    this.#deliver(native, native.level(), {}, NO_DEMAND)
  }

  /**
   * Delivers an event that the core has filled. Returns the Event if it was made.
   *
   * about: `error`, the exception, and `trace` of the attempt
   *
   * demand.isLogged: whether it may become a warning of the process; default true
   *
   * demand.isWanted: whether to make the Event without a listener
   */
  deliver (native, about, demand) {
    return this.#deliver(native, native.level(), about, demand)
  }

  #deliver (native, level, { error, trace }, { isLogged = true, isWanted = false }) {
    if (IS_LOGGED || (isLogged && level >= WARNING)) this.#log(native, error, isLogged)
    for (const observe of this.#observers) {
      try {
        observe(native, { queue: this.#queue, error, trace })
      } catch (error) {
        warnOfListener(native, error)
      }
    }
    if (!isWanted && !this.#listeners.length && !CHANNEL.hasSubscribers) return undefined
    const event = Event.of(native, error)
    for (const listener of this.#listeners) call(listener, event)
    if (CHANNEL.hasSubscribers) CHANNEL.publish(event)
    return event
  }

  #log (native, error, isWarned) {
    const line = LOG.line(native, Math.floor(performance.now()))
    if (!line) return
    const name = c.bh_event_name(native.what())
    if (!isWarned || native.level() < WARNING) debug('%s', inPhrases(String(line)))
    else warn(inPhrases(String(line)), `BACKHOP_${name.toUpperCase()}`, Event.of(native, error))
  }

  /** Emits that no copy of a message can be made. Its original stays unacknowledged. */
  refused (id, error) {
    this.emit('refused', () => ({ cause: textOf(error), id, error }))
  }
}

module.exports = { EACH_MESSAGE, Emitter }
