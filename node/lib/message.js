'use strict'
// Message: what a handler gets.

const { inspect } = require('node:util')

class Message {
  #content
  #history
  #redelivered

  constructor (content, history, { redelivered = false } = {}) {
    this.#content = content
    this.#history = history
    this.#redelivered = redelivered
  }

  get content () {
    return this.#content
  }

  get history () {
    return this.#history
  }

  get redelivered () {
    return this.#redelivered
  }

  get delivery () {
    return this.history.delivery
  }

  get headers () {
    return this.delivery.headers
  }

  get attempt () {
    return this.history.attempts + 1
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
    return `message ${JSON.stringify(this.id)}, attempt ${this.attempt}, ${this.content.length} bytes`
  }

  [inspect.custom] (depth, options) {
    const { id, attempt, exchange, routingKey, content } = this
    return `Message ${inspect({ id, attempt, exchange, routingKey, content }, options)}`
  }
}

/** What is not UTF-8 is read as Latin-1, so that two texts stay two. */
function text (value) {
  return typeof value === 'string' ? value : value.toString('latin1')
}

module.exports = { Message }
