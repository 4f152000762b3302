'use strict'
// Backhop's own channels on node-amqp's connection: they publish copies, declare and get.

const { EventEmitter, once } = require('node:events')

const { methods } = require('amqp/lib/definitions')

const { ChannelClosedError, ConnectionFailedError } = require('../../errors')
const { frames } = require('../frames')
const declaring = require('./declaring')

const COMMAND_INVALID = 503 // RabbitMQ before 4.0 closes the connection with it for an unknown exchange type
const REPLIES = new Set([
  'channelOpenOk', 'confirmSelectOk', 'exchangeDeclareOk', 'exchangeBindOk', 'queueDeclareOk', 'queueBindOk',
  'queueUnbindOk', 'basicGetEmpty'
])

/**
 * One of the channels of node-amqp's connection, as its Queue and Exchange are. node-amqp calls the
 * methods with an underscore. Emits basicAck, basicNack, message (a return) and closed.
 */
class ClientChannel extends EventEmitter {
  isOpen = true
  header // the last header frame
  #client
  #number
  #calls = []
  #incoming // the method of a return or a get, until its message is complete

  constructor (client) {
    super()
    this.#client = client
    this.#number = client.generateChannelId()
    client.channels[this.#number] = this
  }

  /**
   * Sends a method. Resolves to the arguments of the answer; rejects if the channel or the
   * connection closes.
   */
  call (name, args) {
    return this.#answer(() => this.send(name, args))
  }

  declareExchange (name, type, args, isPassive) {
    return this.#answer(() => this.#client.write(declaring.declareExchange(this.#number, name, type, args, isPassive)))
  }

  declareQueue (name, args, isPassive) {
    return this.#answer(() => this.#client.write(declaring.declareQueue(this.#number, name, args, isPassive)))
  }

  #answer (send) {
    return new Promise((resolve, reject) => {
      if (!this.isOpen) throw new ChannelClosedError('the channel was closed')
      this.#calls.push({ resolve, reject })
      send()
    })
  }

  send (name, args) {
    this.#client._sendMethod(this.#number, methods[name], args)
  }

  publish (copy, frameMax) {
    this.#client.write(frames(this.#number, copy, frameMax))
  }

  /** Records that the channel is closed. */
  lose (reason) {
    if (!this.isOpen) return
    this.isOpen = false
    if (this.#client.channels[this.#number] === this) delete this.#client.channels[this.#number]
    for (const { reject } of this.#calls.splice(0)) reject(reason)
    this.emit('closed', reason)
  }

  reconnect () {} // lose() removed the channel before

  _onChannelMethod (number, { name }, args) {
    if (name === 'channelClose') {
      this.send('channelCloseOk', {})
      this.lose(Object.assign(new Error(args.replyText), { code: args.replyCode }))
    } else if (name === 'channelCloseOk') {
      this.lose(new ChannelClosedError('the channel was closed'))
    } else if (name === 'basicReturn' || name === 'basicGetOk') {
      this.#incoming = { name, args, chunks: [] }
    } else if (REPLIES.has(name)) {
      this.#calls.shift()?.resolve(args)
    } else {
      this.emit(name, args)
    }
  }

  _onContentHeader (number, classInfo, weight, properties, size) {
    this.#incoming.remaining = size
    this.#receive()
  }

  _onContent (number, data) {
    this.#incoming.chunks.push(data)
    this.#incoming.remaining -= data.length
    this.#receive()
  }

  #receive () {
    const { name, args, chunks, remaining } = this.#incoming
    if (remaining) return
    if (name === 'basicReturn') this.emit('message', args, this.header)
    else this.#calls.shift()?.resolve({ args, payload: this.header, chunks })
  }

  close () {
    if (!this.isOpen) return
    this.send('channelClose', { replyCode: 200, replyText: 'done', classId: 0, methodId: 0 })
    return once(this, 'closed')
  }
}

class PublishingChannel {
  #connection
  #channel

  constructor (connection, channel) {
    this.#connection = connection
    this.#channel = channel
  }

  get isOpen () {
    return this.#channel.isOpen
  }

  /** Publishes a copy. Returns false if the channel or the connection is closed. */
  publish (copy) {
    if (!this.isOpen || !this.#connection.isOpen) return false
    this.#channel.publish(copy, this.#connection.frameMax)
    return true
  }

  close () {
    return this.#channel.close()
  }
}

class DeclaringChannel {
  #connection
  #channel

  constructor (connection, channel) {
    this.#connection = connection
    this.#channel = channel
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
      const isLost = !this.#connection.isOpen && error.code !== COMMAND_INVALID
      if (error.code && !isLost) return { code: error.code, text: error.message }
      throw new ConnectionFailedError(`the connection was lost: ${error.message}`, { cause: error })
    }
  }

  #declare ({ what, name, type, source, routingKey, arguments: args = {} }, { passive, unbind }) {
    const channel = this.#channel
    if (what === 'binding') {
      const to = type === 'exchange' ? { destination: name, source } : { queue: name, exchange: source }
      if (unbind) return channel.call('queueUnbind', { reserved1: 0, ...to, routingKey, arguments: {} })
      const method = type === 'exchange' ? 'exchangeBind' : 'queueBind'
      return channel.call(method, { reserved1: 0, ...to, routingKey, noWait: false, arguments: {} })
    }
    return what === 'exchange'
      ? channel.declareExchange(name, type, args, passive)
      : channel.declareQueue(name, args, passive)
  }

  /**
   * Gets a message. Resolves to `{ args, payload, chunks, channel, remaining }`; `remaining` is the
   * number of messages behind it. Resolves to undefined if the queue is empty, or to
   * `{ refusal: { code, text } }`.
   *
   * Rejects with a ConnectionFailedError if the connection is lost.
   */
  async get (queue) {
    try {
      const got = await this.#channel.call('basicGet', { reserved1: 0, queue, noAck: false })
      return got.payload && { ...got, channel: this.#channel, remaining: got.args.messageCount }
    } catch (error) {
      if (error.code) return { refusal: { code: error.code, text: error.message } }
      throw new ConnectionFailedError(`the channel was closed: ${error.message}`, { cause: error })
    }
  }

  close () {
    return this.#channel.close()
  }
}

module.exports = { ClientChannel, DeclaringChannel, PublishingChannel }
