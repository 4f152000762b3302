'use strict'
// A connection of node-amqp's to the broker, and the channels that Backhop opens on it.
// ../publisher.js describes the interface.
//
// node-amqp's object outlives a connection to the broker: it connects again. A Tap belongs to
// node-amqp's object, and makes a Connection for each connection to the broker.

const { ArgumentError, ConnectionFailedError } = require('../../errors')
const { ClientChannel, DeclaringChannel, PublishingChannel } = require('./channels')
const { decode, numberOf } = require('./properties')

const BASIC_NACK = 60 << 16 | 120
const CONNECTION_CLOSE = 10 << 16 | 50
const CONNECTION_CLOSE_OK = 10 << 16 | 51

const ARRIVAL = Symbol('arrival') // of node-amqp's messages: { connection, payload, chunks }
const taps = new WeakMap() // by node-amqp's connection

/**
 * Returns the Tap of node-amqp's connection. Throws an ArgumentError if `client` is no such
 * connection.
 */
function tapOf (client) {
  if (typeof client?.generateChannelId !== 'function') {
    throw new ArgumentError('this is no connection of node-amqp: give the result of createConnection')
  }
  let tap = taps.get(client)
  if (!tap) {
    tap = new Tap(client)
    taps.set(client, tap)
  }
  return tap
}

/**
 * Reads the frames that node-amqp's connection reads, and follows its connections to the broker.
 */
class Tap {
  connection
  #client
  #followers = []

  constructor (client) {
    this.#client = client
    if (client.parser) this.#attach()
    if (this.connection) this.connection.isBlocked = client._blocked
    for (const event of ['connect', 'secureConnect']) client.on(event, () => this.#attach())
    client.on('error', error => {
      if (client.parser !== this.connection?.parser) this.connection?.lose(error)
    })
    client.on('blocked', () => this.connection?.block(true))
    client.on('unblocked', () => this.connection?.block(false))
    client.on('ready', () => { for (const follow of this.#followers) follow(this.connection) })
  }

  /** Calls `follower` with the current Connection, if it is ready, and with each later one. */
  follow (follower) {
    this.#followers.push(follower)
    if (this.connection && this.#client.readyEmitted) follower(this.connection)
  }

  /**
   * Makes a Connection if node-amqp has a new parser and socket. node-amqp drops the parser at an
   * error. It passes on the events of any of its sockets, so an old socket may close when a new one
   * is in use.
   */
  #attach () {
    const { parser, socket } = this.#client
    if (!parser || this.connection?.parser === parser) return
    this.connection?.lose()
    const connection = this.connection = new Connection(this.#client, parser)
    for (const event of ['close', 'end']) socket.once(event, () => connection.lose())
    const { _parseHeaderFrame: parseHeader, _parseMethodFrame: parseMethod } = parser
    parser._parseHeaderFrame = (number, payload) => {
      connection.readHeader(number, payload)
      parseHeader.call(parser, number, payload)
    }
    parser._parseMethodFrame = (number, payload) => {
      if (!connection.readMethod(number, payload)) parseMethod.call(parser, number, payload)
    }
  }
}

class Connection {
  isOpen = true
  isBlocked = false // node-amqp keeps its own flag beyond the connection
  reason // the error that closed the connection
  isOrderly = false // whether the application closed it
  #client
  #watchers = new Set()
  #channels = new Set()

  constructor (client, parser) {
    this.#client = client
    this.parser = parser
  }

  get frameMax () {
    return this.parser.maxFrameBuffer
  }

  /** The heartbeat interval in ms; 0: none. */
  get heartbeat () {
    return 1000 * (this.#client.options?.heartbeat || 0)
  }

  get serverProperties () {
    return this.#client.serverProperties
  }

  watch (watcher) {
    if (this.isOpen) this.#watchers.add(watcher)
  }

  block (isBlocked) {
    this.isBlocked = isBlocked
    for (const watcher of this.#watchers) watcher.blocked(isBlocked)
  }

  /** Records that the connection is lost or closed. */
  lose (error) {
    if (!this.isOpen) return
    this.isOpen = false
    this.reason ??= error instanceof Error ? error : new Error('it was closed')
    for (const channel of this.#channels) channel.lose(this.reason)
    for (const watcher of this.#watchers) watcher.lost(this.reason.message, this.isOrderly)
    this.#watchers.clear()
  }

  /** Keeps the header frame of a message. node-amqp has read its method before. */
  readHeader (number, payload) {
    const channel = this.#client.channels[number]
    if (channel instanceof ClientChannel) {
      channel.header = payload
      return
    }
    const message = channel?.currentMessage
    if (!message) return
    const chunks = []
    message.on('data', chunk => chunks.push(chunk))
    message[ARRIVAL] = { connection: this, payload, chunks }
  }

  /**
   * Reads a method frame: why the broker closes the connection, or a nack on one of Backhop's
   * channels. Returns whether node-amqp must not read the frame: it takes a nack for an error that
   * ends the connection.
   */
  readMethod (number, payload) {
    const method = payload.readUInt32BE(0)
    if (method === CONNECTION_CLOSE) {
      const code = payload.readUInt16BE(4)
      const text = payload.toString('utf8', 7, 7 + payload[6])
      this.reason = Object.assign(new Error(text), { code })
    }
    if (method === CONNECTION_CLOSE_OK) this.isOrderly = true
    const channel = this.#client.channels[number]
    if (method !== BASIC_NACK || !(channel instanceof ClientChannel)) return false
    channel.emit('basicNack', { deliveryTag: payload.subarray(4, 12), multiple: Boolean(payload[12] & 1) })
    return true
  }

  async #open () {
    if (!this.isOpen) throw new ConnectionFailedError(`the connection was lost: ${this.reason.message}`)
    const channel = new ClientChannel(this.#client)
    this.#channels.add(channel)
    channel.once('closed', () => this.#channels.delete(channel))
    try {
      await channel.call('channelOpen', { reserved1: '' })
    } catch (error) {
      throw new ConnectionFailedError(`no channel can be opened: ${error.message}`, { cause: error })
    }
    return channel
  }

  async openChannel () {
    return new DeclaringChannel(this, await this.#open())
  }

  async openConfirms (listener) {
    const channel = await this.#open()
    channel.on('basicAck', ({ deliveryTag, multiple }) => listener.answered(numberOf(deliveryTag), multiple, true))
    channel.on('basicNack', ({ deliveryTag, multiple }) => listener.answered(numberOf(deliveryTag), multiple, false))
    channel.on('message', ({ exchange, routingKey, replyCode, replyText }, header) => {
      listener.returned(exchange, routingKey, idOf(header), `${replyCode} ${replyText}`)
    })
    channel.on('closed', ({ code, message: text }) => { if (this.isOpen) listener.closed({ code, text }) })
    await channel.call('confirmSelect', { noWait: false })
    return new PublishingChannel(this, channel)
  }
}

/** Returns the backhop-id in a header frame: a string, a Buffer, or "" if it cannot be read. */
function idOf (header) {
  try {
    const value = decode(header).entries.find(({ name }) => name === 'backhop-id')?.value
    const id = value?.['!'] === 'string' ? value.value : value
    return typeof id === 'string' || Buffer.isBuffer(id) ? id : ''
  } catch {
    return ''
  }
}

module.exports = { ARRIVAL, tapOf }
