'use strict'
// Message: what a handler gets, the same over every client, from a worker and in a rehearsal.

const { inspect } = require('node:util')

const NATIVE = require('./native')
const { moment } = require('./time')

const NEVER = new AbortController().signal // of what nobody stops

class Message {
  #body
  #history
  #redelivered
  #topology
  #signal

  constructor (body, history, { redelivered = false, topology, signal = NEVER } = {}) {
    this.#body = body
    this.#history = history
    this.#redelivered = redelivered
    this.#topology = topology
    this.#signal = signal
  }

  get body () {
    return this.#body
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
    return this.#signal
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
    return Boolean(this.#topology?.policy[NATIVE].is_last(this.attempt))
  }

  get exchange () {
    return text(this.history.exchange)
  }

  get routingKey () {
    return text(this.history.routingKey)
  }

  get id () {
    return text(this.history.id)
  }

  get firstFailure () {
    return this.history.firstFailure
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
    return `message ${JSON.stringify(this.id)}, attempt ${this.attempt}, ${this.body.length} bytes`
  }

  [inspect.custom] (depth, options) {
    const { id, attempt, exchange, routingKey, body } = this
    return `Message ${inspect({ id, attempt, exchange, routingKey, body }, options)}`
  }
}

/** What is not UTF-8 is read as Latin-1, so that two texts stay two. */
function text (value) {
  return typeof value === 'string' ? value : value.toString('latin1')
}

/** A message's id, for people; empty where it cannot be read. */
function idOf (message) {
  try {
    return message?.id ?? ''
  } catch {
    return ''
  }
}

module.exports = { Message, idOf }
