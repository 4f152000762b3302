'use strict'
// Message: the object that a handler gets, the same over every client, from a worker and in a
// rehearsal.

const { setMaxListeners } = require('node:events')
const { inspect } = require('node:util')

const { moment } = require('./times')

const NEVER = stopping().signal // for messages that have no signal
const ORIGINAL = Symbol('original') // the key of an adapter's delivery, see adapters/retrier.js

class Message {
  #content
  #body
  #history
  #redelivered
  #topology
  #signal
  #own // the controller of this message's own signal
  #class // its prototype, which has the getters
  #isLimited = false

  /** content: a Buffer that others use too. The handler gets a copy, which it may change. */
  constructor (content, history, { redelivered = false, topology, signal = NEVER } = {}) {
    this.#class = new.target.prototype
    this.#content = content
    this.#history = history
    this.#redelivered = redelivered
    this.#topology = topology
    this.#signal = signal
  }

  /**
   * Returns a property as its class has it: a handler may replace the prototype or the properties
   * of a message.
   */
  static read (message, name) {
    return Reflect.get(message.#class, name, message)
  }

  get body () {
    const content = this.#content
    return (this.#body ??= content instanceof Uint8Array ? Buffer.from(content) : content) // or what others made of it
  }

  get content () {
    return this.body
  }

  get history () {
    return this.#history
  }

  get redelivered () {
    return this.#redelivered
  }

  get signal () {
    if (this.#isLimited) this.#own ??= following(this.#signal)
    return this.#own?.controller.signal ?? this.#signal
  }

  /**
   * Gives the message a signal of its own, made on first access. Returns a function to call when
   * the handler has ended; with a reason, it aborts the signal.
   */
  _limit () {
    this.#isLimited = true
    return reason => {
      if (reason) this.#own ??= following(this.#signal)
      this.#own?.release()
      this.#isLimited = false
      if (reason) this.#own.controller.abort(reason)
    }
  }

  get queue () {
    return this.#topology?.queue ?? ''
  }

  get delivery () {
    return this.history.delivery
  }

  get headers () {
    return this.delivery.headers
  }

  get contentType () {
    return this.#property('contentType')
  }

  get contentEncoding () {
    return this.#property('contentEncoding')
  }

  get correlationId () {
    return this.#property('correlationId')
  }

  get replyTo () {
    return this.#property('replyTo')
  }

  get messageId () {
    return this.#property('messageId')
  }

  get type () {
    return this.#property('type')
  }

  get appId () {
    return this.#property('appId')
  }

  get priority () {
    return this.delivery.property('priority')
  }

  get timestamp () {
    const seconds = this.delivery.property('timestamp')
    return seconds === undefined ? undefined : moment(Math.max(0, 1000 * Number(seconds)))
  }

  #property (name) {
    const value = this.delivery.property(name)
    return value === undefined ? undefined : text(value)
  }

  get attempt () {
    return this.history.attempts + 1
  }

  get maxAttempts () {
    return this.#topology?.policy.maxAttempts ?? 0
  }

  get lastAttempt () {
    return this.maxAttempts > 0 && this.attempt >= this.maxAttempts
  }

  get exchange () {
    return text(this.history.exchange)
  }

  get routingKey () {
    return text(this.history.routingKey)
  }

  get id () {
    const { id } = this.history
    return id === '' ? undefined : text(id)
  }

  get firstFailure () {
    return this.history.firstFailure
  }

  get deferrals () {
    return this.history.deferrals
  }

  get lastDelay () {
    return this.history.lastDelay
  }

  get lastError () {
    return text(this.history.lastError)
  }

  get deaths () {
    return this.history.deaths
  }

  toString () {
    return `message ${JSON.stringify(idOf(this))}, attempt ${this.attempt}, ${this.body.length} bytes`
  }

  /** Returns what identifies it. A logger calls this, and the body may be large or secret. */
  toJSON () {
    const { id, attempt, queue, exchange, routingKey, body } = this
    return { id, attempt, queue, exchange, routingKey, size: body.length }
  }

  [inspect.custom] (depth, options) {
    const { id, attempt, exchange, routingKey, body } = this
    return `Message ${inspect({ id, attempt, exchange, routingKey, body }, options)}`
  }
}

/**
 * Returns an AbortController for the messages of a consumer. Any number of handlers may listen to
 * its signal.
 */
function stopping () {
  const controller = new AbortController()
  setMaxListeners(0, controller.signal)
  return controller
}

/** Returns an AbortController that also aborts when `signal` does, until it is released. */
function following (signal) {
  const controller = stopping()
  const abort = () => controller.abort(signal.reason)
  if (signal.aborted) abort()
  signal.addEventListener('abort', abort)
  return { controller, release: () => signal.removeEventListener('abort', abort) }
}

/**
 * Returns a text as a string. Bytes that are not UTF-8 are read as Latin-1, so different texts stay
 * different.
 */
function text (value) {
  return typeof value === 'string' ? value : value.toString('latin1')
}

/** Returns a message's id for events and logs; "" if it cannot be read. */
function idOf (message) {
  try {
    return message ? text(Message.read(message, 'history')._eventId) : ''
  } catch {
    return ''
  }
}

module.exports = { Message, ORIGINAL, idOf, stopping }
