'use strict'
// A consumer over each client that there is a retrier for, with one face for the tests.

const { once } = require('node:events')
const { URLSearchParams } = require('node:url')

const amqp = require('amqp')
const amqplib = require('amqplib')
const callbacks = require('amqplib/callback_api')

const { Retrier: AmqpRetrier } = require('backhop/amqp')
const { Retrier: AmqplibRetrier } = require('backhop/amqplib')

const { amqplibUrl } = require('./broker')

class Consumer {
  constructor (url, queue, options) {
    this.url = url
    this.queue = queue
    this.options = options
  }

  /** Connected, and not consuming yet. */
  static async connect (...args) {
    const consumer = new this(...args)
    await consumer.open()
    return consumer
  }
}

class Promises extends Consumer {
  method = 'createChannel'

  async open () {
    this.connection = await amqplib.connect(amqplibUrl(this.url))
    this.connection.on('error', () => {})
    this.channel = await this.connection[this.method]()
    this.channel.on('error', () => {})
    await this.channel.prefetch(100)
    this.retrier = new AmqplibRetrier(this.channel, { queue: this.queue, ...this.options })
    this.connected()
  }

  connected () {
    this.isOpen = true
    this.isClosed = new Promise(resolve => this.connection.once('close', () => {
      this.isOpen = false
      resolve()
    }))
  }

  async begin (handle) {
    await this.channel.consume(this.queue, this.retrier.wrap(handle))
  }

  async stop () {
    if (!this.isOpen) return
    await this.retrier.drain({ timeout: '20s' })
    this.close()
    await this.isClosed
  }

  /**
   * Callers wait for isClosed: if the broker ends the connection just then, amqplib never calls
   * back.
   */
  close () {
    this.connection.close().catch(() => {})
  }
}

/** By retrier.consume, on a channel of the retrier's own. */
class Consuming extends Promises {
  async begin (handle) {
    this.consumer = await this.retrier.consume(handle)
  }
}

class Confirming extends Promises {
  method = 'createConfirmChannel'
}

class Callbacks extends Promises {
  async open () {
    const done = (resolve, reject) => (error, value) => error ? reject(error) : resolve(value)
    this.connection = await new Promise((resolve, reject) => {
      callbacks.connect(amqplibUrl(this.url), done(resolve, reject))
    })
    this.connection.on('error', () => {})
    this.channel = await new Promise((resolve, reject) => this.connection.createChannel(done(resolve, reject)))
    this.channel.on('error', () => {})
    this.channel.prefetch(100)
    this.retrier = new AmqplibRetrier(this.channel, { queue: this.queue, ...this.options })
    this.connected()
  }

  begin (handle) {
    return new Promise((resolve, reject) => {
      this.channel.consume(this.queue, this.retrier.wrap(handle), {}, error => error ? reject(error) : resolve())
    })
  }

  close () {
    this.connection.close(() => {})
  }
}

class NodeAmqp extends Consumer {
  async open () {
    const [address, query] = this.url.split('?')
    const url = address.replace(/\/$/, '') // else the vhost has no name
    const heartbeat = Number(new URLSearchParams(query).get('heartbeat'))
    const capabilities = { 'connection.blocked': true, consumer_cancel_notify: true }
    const options = { url, heartbeat, clientProperties: { capabilities } }
    this.connection = amqp.createConnection(options, { reconnectBackoffTime: 100 })
    this.connection.on('error', () => {})
    this.connection.on('close', () => {})
    this.connection.on('end', () => { // node-amqp connects again only after an error, and a broker may die without one
      const { readyEmitted, socket } = this.connection
      if (this.isStopped || !readyEmitted || !socket.readableEnded) return // or a socket of before ended
      this.connection.emit('error', new Error('the broker ended the connection'))
    })
    await once(this.connection, 'ready')
    this.retrier = new AmqpRetrier(this.connection, { queue: this.queue, ...this.options })
  }

  begin (handle) {
    return new Promise(resolve => {
      this.connection.queue(this.queue, { passive: true, autoDelete: false }, subscribed => {
        this.subscribed = subscribed
        subscribed.on('error', () => { if (!this.isStopped) this.begin(handle) }) // node-amqp gives the queue up
        const listener = this.retrier.wrap((payload, headers, deliveryInfo, message) => handle(message))
        subscribed.subscribe({ ack: true, prefetchCount: 100 }, listener).addCallback(resolve)
      })
    })
  }

  async stop () {
    this.isStopped = true
    await this.retrier.drain({ timeout: '20s' })
    this.connection.implOptions.reconnect = false
    this.connection.reconnect = () => {} // it may be scheduled already
    const { socket } = this.connection
    if (socket.writable) {
      const isClosed = new Promise(resolve => this.connection.once('close', resolve)) // with or without an error
      this.connection.disconnect()
      await isClosed
    }
    socket.destroy()
  }
}

/** By retrier.consume, where node-amqp and the retrier both have to come back. */
class NodeAmqpConsuming extends NodeAmqp {
  async begin (handle) {
    this.consumer = await this.retrier.consume(handle)
  }
}

const CLIENTS = {
  'amqplib, promises': Promises,
  'amqplib, consume': Consuming,
  'amqplib, a confirm channel': Confirming,
  'amqplib, callbacks': Callbacks,
  'node-amqp': NodeAmqp,
  'node-amqp, consume': NodeAmqpConsuming
}

/** How many channels the client of a carrier has open. */
function channelsOf ({ connection }) {
  const channels = connection.connection?.channels ?? Object.values(connection.channels)
  return channels.filter(Boolean).length
}

module.exports = { CLIENTS, channelsOf }
