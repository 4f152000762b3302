'use strict'
// A connection of amqplib's, and the channels that Backhop opens on it. ../publisher.js describes
// the interface.

const { errorMonitor } = require('node:events')

const { ChannelClosedError, ConnectionFailedError } = require('../../errors')
const { DeclaringChannel, PublishingChannel, WriteBuffer } = require('./channels')
const { call, checkChannel, isOpen, replyOf } = require('./client')

// By the protocol, class 85: amqplib exports no names of methods.
const CONFIRM_SELECT = 85 << 16 | 10
const CONFIRM_SELECT_OK = 85 << 16 | 11
const MOST_HEADER_BYTES = 65536 // amqplib encodes a table in a buffer of this size

const connections = new WeakMap() // by amqplib's connection

/**
 * Returns the Connection of a channel. Throws an ArgumentError if `channel` is no channel of
 * amqplib's.
 */
function connectionOf (channel) {
  checkChannel(channel)
  let connection = connections.get(channel.connection)
  if (!connection) {
    connection = new Connection(channel.connection, channel.constructor)
    connections.set(channel.connection, connection)
  }
  return connection
}

class Connection {
  isOpen
  isBlocked
  reason // the error that closed the connection; undefined if the application closed it
  #client
  #Channel // amqplib's class of channels, of the promise API or of the callback API
  #error
  #watchers = new Set()

  constructor (client, Channel) {
    this.#client = client
    this.#Channel = Channel
    this.isOpen = client.stream.writable
    this.isBlocked = client.blocked === true // amqplib 0.10 has events alone
    client.on('blocked', () => this.#block(true))
    client.on('unblocked', () => this.#block(false))
    // If amqplib cannot read a frame, it closes the connection as the application does, after this
    // event.
    client.on(errorMonitor, error => { this.#error = error })
    client.on('close', (reason = this.#error) => {
      this.isOpen = false
      this.reason = reason
      for (const watcher of this.#watchers) watcher.lost(reason?.message ?? 'it was closed', !reason)
      this.#watchers.clear()
    })
  }

  #block (isBlocked) {
    this.isBlocked = isBlocked
    for (const watcher of this.#watchers) watcher.blocked(isBlocked)
  }

  get frameMax () {
    return Math.min(this.#client.frameMax, MOST_HEADER_BYTES)
  }

  /** The heartbeat interval in ms; 0: none. */
  get heartbeat () {
    return 1000 * (this.#client.heartbeat ?? 0)
  }

  get serverProperties () {
    return this.#client.serverProperties
  }

  watch (watcher) {
    if (this.isOpen) this.#watchers.add(watcher)
  }

  async #open () {
    if (!this.isOpen) throw new ConnectionFailedError('the connection is closed')
    try {
      const channel = new this.#Channel(this.#client)
      channel.on('error', () => {}) // pending calls are rejected, and 'close' follows
      await call(channel, 'open')
      return channel
    } catch (error) {
      throw new ConnectionFailedError(`no channel can be opened: ${error.message}`, { cause: error })
    }
  }

  async openChannel () {
    return new DeclaringChannel(this, await this.#open())
  }

  /** Opens a channel for a consumer of the retrier's own. */
  openConsuming () {
    return this.#open()
  }

  async openConfirms (listener) {
    const channel = await this.#open()
    let reason = { code: 0, text: 'the channel was closed' }
    channel.on('error', error => { reason = { code: error.code, text: replyOf(error) } })
    channel.on('ack', ({ deliveryTag, multiple }) => listener.answered(deliveryTag, multiple, true))
    channel.on('nack', ({ deliveryTag, multiple }) => listener.answered(deliveryTag, multiple, false))
    channel.on('return', ({ fields, properties }) => {
      const { exchange, routingKey, replyCode, replyText } = fields
      listener.returned(exchange, routingKey, idOf(properties), `${replyCode} ${replyText}`)
    })
    // If the connection closes too, its event comes first.
    channel.on('close', () => queueMicrotask(() => listener.closed(reason)))
    await new Promise((resolve, reject) => {
      channel._rpc(CONFIRM_SELECT, { nowait: false }, CONFIRM_SELECT_OK, error => error ? reject(error) : resolve())
    })
    if (!isOpen(channel)) throw new ChannelClosedError('the channel was closed')
    const entry = this.#client.channels[channel.ch]
    entry.buffer = new WriteBuffer(entry.buffer)
    return new PublishingChannel(channel, entry.buffer)
  }
}

/** Returns the backhop-id of a returned copy: a string, a Buffer, or "" if it has none. */
function idOf ({ headers }) {
  const id = headers?.['backhop-id']
  return typeof id === 'string' || Buffer.isBuffer(id) ? id : ''
}

module.exports = { connectionOf }
