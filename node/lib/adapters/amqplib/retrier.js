'use strict'
// Retries over amqplib, on the application's connection.

const { errorMonitor } = require('node:events')

const { ConsumerCancelledError, errorOf } = require('../../errors')
const { decodedHeaders } = require('./headers')
const { warn } = require('../../log')
const { callable, handler, only, refuse } = require('../../checks')
const earlier = require('../earlier')
const { BaseRetrier } = require('../retrier')
const { call, close, isOpen, replyOf } = require('./client')
const { connectionOf } = require('./connection')
const { Consumer } = require('./consumer')
const { Message, Original } = require('./message')
const { flush, hasSettler, settlerOf } = require('./settler')

class Retrier extends BaseRetrier {
  #channel
  #channels = new Set() // that deliver to this retrier
  #isForeign = false // whether a delivery of another queue was reported
  #closing = new Set() // promises of closing channels of consumers

  constructor (channel, options) {
    super(options)
    this.#channel = channel
    if (channel !== null) connectionOf(channel)
  }

  async _connection (channel = this.#channel) {
    return connectionOf(channel)
  }

  wrap (handle, options = {}) {
    handler(handle, 'wrap')
    const { channel = this.#channel, cancelled } = only(options, ['channel', 'cancelled'], 'wrap')
    if (cancelled !== undefined) callable(cancelled, 'cancelled')
    const connection = connectionOf(channel)
    const settler = this.#settler(channel)
    this._keepLooking()
    const flow = this._flow()
    return incoming => {
      if (incoming !== null) {
        settler.deliver(incoming.fields.deliveryTag)
        this.#checkQueue(incoming)
        return this._handle(() => this.#message(connection, settler, incoming, this._signal), handle, flow)
      }
      earlier.cancelled(settler)
      const { message } = errorOf(ConsumerCancelledError.status)
      warn(`${message}: nothing of "${this.topology.queue}" is consumed any more`, 'BACKHOP_CANCELLED')
      if (cancelled) queueMicrotask(() => cancelled()) // an error of it here would close the connection
    }
  }

  /** Returns the callback of a consumer of the retrier's own. */
  _listener (channel, { signal, handle, flow, prefetch, settled }) {
    const connection = connectionOf(channel)
    const settler = this.#settler(channel)
    settler.prefetch = prefetch
    settler.settled = settled
    return incoming => {
      settler.deliver(incoming.fields.deliveryTag)
      this._handle(() => this.#message(connection, settler, incoming, signal), handle, flow)
    }
  }

  /**
   * Warns if a delivery came out of another queue. The default exchange routes a message to the
   * queue of its routing key, and to the queues of its header CC.
   */
  #checkQueue ({ fields: { exchange, routingKey }, properties: { headers } }) {
    if (exchange || routingKey === this.topology.queue || this.#isForeign || headers?.CC) return
    const foreign = this._diagnosis('queue', { of: routingKey })
    this.#isForeign = true
    warn(foreign.message, 'BACKHOP_FOREIGN')
  }

  _consumer (handle, prefetch) {
    return new Consumer(this, connectionOf(this.#channel), handle, prefetch)
  }

  errorHandler () {
    return (channel, incoming, error) => {
      let message
      try {
        message = this.#read(incoming, channel)
      } catch (problem) {
        this._refused(problem)
        return
      }
      this._fail(message, error)
    }
  }

  read (incoming, channel = this.#channel) {
    const message = this.#read(incoming, channel)
    this._begins(message)
    return message
  }

  #read (incoming, channel) {
    const connection = connectionOf(channel)
    if (!Buffer.isBuffer(incoming?.content) || !incoming.fields) {
      refuse('what read is given', incoming, 'a message of amqplib\'s, as consume and get give it')
    }
    const settler = this.#settler(channel)
    settler.share()
    this._keepLooking()
    this.#checkQueue(incoming)
    const message = this.#message(connection, settler, incoming, undefined, Buffer.from(incoming.content))
    return message.history && message // read it now: others hold its body and properties too
  }

  #settler (channel) {
    if (!this.#channels.has(channel)) {
      for (const old of this.#channels) {
        if (!isOpen(old)) this.#channels.delete(old)
      }
      this.#channels.add(channel)
      this._watch(connectionOf(channel))
      if (!hasSettler(channel)) channel.on(errorMonitor, error => { this.#warnOfSettling(error) })
    }
    return settlerOf(channel)
  }

  /**
   * Warns if the broker closed a channel because a delivery was settled twice, or was consumed with
   * noAck.
   */
  #warnOfSettling (error) {
    const advice = error.code && this._diagnosis(
      'settling', { code: error.code, text: replyOf(error), of: 'noAck: false' })
    if (advice) warn(advice.message, 'BACKHOP_ACKNOWLEDGED')
  }

  #message (connection, settler, incoming, signal, content = incoming.content) {
    return new Message(new Original(connection, settler, incoming, content), this.#history, this.topology, signal)
  }

  #history = ({ connection, incoming: { fields: { exchange, routingKey }, properties } }) => {
    const headers = properties.headers && decodedHeaders(properties.headers)
    return this._history(connection, { exchange, routingKey, properties, headers })
  }

  _parked ({ incoming, channel }, connection) {
    const settler = settlerOf(channel)
    settler.share()
    return this.#message(connection, settler, incoming)
  }

  /** Closes a channel of a consumer, after the settlements that are written on it. */
  async _close (channel) {
    const closing = close(channel)
    this.#closing.add(closing)
    await closing
    this.#closing.delete(closing)
  }

  /**
   * Resolves when all settlements have reached the broker.
   *
   * amqplib closes a connection before it writes what its channels hold. So this cancels a consumer
   * that does not exist: the broker's answer comes after everything before it.
   */
  async _flush () {
    for (const channel of this.#channels) {
      if (!isOpen(channel)) continue
      flush(channel)
      await call(channel, 'cancel', 'backhop drains').catch(() => {})
    }
    await Promise.all(this.#closing)
  }
}

module.exports = { Retrier }
