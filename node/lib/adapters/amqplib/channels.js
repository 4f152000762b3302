'use strict'
// The channels that publish copies, and the channels that declare and get.

const { ConnectionFailedError } = require('../../errors')
const { frames } = require('../frames')
const { call, close, isOpen, replyOf } = require('./client')
const { flush } = require('./settler')

const COMMAND_INVALID = 503 // RabbitMQ before 4.0 closes the connection with it for an unknown exchange type
const BLOCK_BYTES = 65536 // copies are written to the socket in blocks of this size

/**
 * Collects a channel's writes in one turn of the event loop, and passes it to amqplib's buffer
 * in one piece.
 */
class WriteBuffer {
  #buffer
  #block = Buffer.alloc(0)
  #begin = 0 // of the bytes that are not passed on yet
  #end = 0

  constructor (buffer) {
    this.#buffer = buffer
  }

  /** Returns a Buffer of `size` bytes to fill now: it is written after the current code. */
  reserve = size => {
    if (this.#block.length - this.#end < size) {
      this.#flush()
      this.#block = Buffer.allocUnsafeSlow(Math.max(size, BLOCK_BYTES))
      this.#begin = this.#end = 0
    }
    if (this.#begin === this.#end) queueMicrotask(() => this.#flush())
    this.#end += size
    return this.#block.subarray(this.#end - size, this.#end)
  }

  write (chunk) {
    this.#flush()
    return this.#buffer.write(chunk)
  }

  end () {
    this.#flush()
    this.#buffer.end()
  }

  #flush () {
    if (this.#begin === this.#end) return
    this.#buffer.write(this.#block.subarray(this.#begin, this.#end))
    this.#begin = this.#end
  }
}

class PublishingChannel {
  #channel
  #buffer

  constructor (channel, buffer) {
    this.#channel = channel
    this.#buffer = buffer
  }

  get isOpen () {
    return isOpen(this.#channel)
  }

  /**
   * Publishes a copy. Returns false if the channel is closed or closes.
   *
   * Throws if amqplib cannot encode the copy. Nothing is written then.
   */
  publish (copy) {
    if (!this.isOpen) return false
    return Buffer.isBuffer(copy.properties) ? this.#write(copy) : this.#send(copy)
  }

  close () {
    return close(this.#channel)
  }

  #write (copy) {
    const { ch, connection } = this.#channel
    frames(ch, copy, connection.frameMax, this.#buffer.reserve)
    connection.sentSinceLastCheck = true // otherwise amqplib sends a heartbeat
    return true
  }

  /**
   * Publishes properties that the core could not write. amqplib's own `publish` has no cluster id.
   */
  #send ({ exchange, routingKey, mandatory, properties, content }) {
    try {
      this.#channel.sendMessage({ exchange, routingKey, mandatory }, properties, content)
      return true
    } catch (error) {
      if (error.name === 'IllegalOperationError') return false
      throw error
    }
  }
}

class DeclaringChannel {
  #connection
  #channel
  #error // that closed the channel: amqplib 0.10.0 rejects a get with another value, or never

  constructor (connection, channel) {
    this.#connection = connection
    this.#channel = channel
    channel.on('error', error => { this.#error = error })
  }

  /**
   * Executes one step of declaring. Resolves to undefined, or to the broker's refusal
   * `{ code, text }`.
   *
   * Rejects with a ConnectionFailedError if the connection is lost.
   */
  async declare (step) {
    try {
      await this.#declare(step.declaration, step)
    } catch (error) {
      if (error.code) return { code: error.code, text: replyOf(error) }
      const { reason } = this.#connection
      if (reason?.code === COMMAND_INVALID) return { code: COMMAND_INVALID, text: replyOf(reason) }
      throw new ConnectionFailedError(`the connection was lost: ${(reason ?? error).message}`, { cause: error })
    }
  }

  #declare ({ what, name, type, source, routingKey, arguments: args }, { passive, unbind }) {
    const channel = this.#channel
    if (what === 'binding') {
      if (unbind) return call(channel, 'unbindQueue', name, source, routingKey, {})
      return call(channel, type === 'exchange' ? 'bindExchange' : 'bindQueue', name, source, routingKey, {})
    }
    if (passive) return call(channel, what === 'exchange' ? 'checkExchange' : 'checkQueue', name)
    const options = { durable: true, arguments: args }
    return what === 'exchange'
      ? call(channel, 'assertExchange', name, type, options)
      : call(channel, 'assertQueue', name, options)
  }

  /**
   * Gets a message. Resolves to `{ incoming, channel, remaining }`; `remaining` is the number of
   * messages behind it. Resolves to undefined if the queue is empty, or to
   * `{ refusal: { code, text } }`.
   *
   * Rejects with a ConnectionFailedError if the connection is lost.
   */
  async get (queue) {
    try {
      const incoming = await this.#get(queue)
      return incoming ? { incoming, channel: this.#channel, remaining: incoming.fields.messageCount } : undefined
    } catch (error) {
      const cause = this.#error ?? error
      if (cause.code) return { refusal: { code: cause.code, text: replyOf(cause) } }
      throw new ConnectionFailedError(`the channel was closed: ${cause.message}`, { cause })
    }
  }

  async #get (queue) {
    let fail
    const closed = new Promise((resolve, reject) => { fail = reject })
    this.#channel.once('error', fail)
    try {
      return await Promise.race([call(this.#channel, 'get', queue, {}), closed])
    } finally {
      this.#channel.off('error', fail)
    }
  }

  close () {
    flush(this.#channel)
    return close(this.#channel)
  }
}

module.exports = { DeclaringChannel, PublishingChannel, WriteBuffer }
