'use strict'
// Retries over node-amqp (the package amqp), on the application's connection.
//
// node-amqp 0.2.7 is its last version. It reads 64-bit integers, doubles and timestamps wrongly,
// and writes them as other types. It takes a broker's nack for an error that ends the connection.
// It acknowledges a delivery of a lost connection on the new one. So Backhop keeps the bytes of
// what arrives beside node-amqp's reading of it, and opens channels of its own among the
// connection's channels.

const { once } = require('node:events')

const { ArgumentError, ConnectionFailedError } = require('../../errors')
const { handler } = require('../../checks')
const { CLOSED } = require('../earlier')
const { BaseRetrier } = require('../retrier')
const { ARRIVAL, tapOf } = require('./connection')
const { Consumer } = require('./consumer')
const { GotOriginal, Message, PREFETCH, SubscribedOriginal } = require('./message')
const { decode, pairsOf } = require('./properties')

class Retrier extends BaseRetrier {
  #client
  #tap
  #cancelled = new Set() // queues of node-amqp whose consumer was cancelled, and whose channel is open
  #own = new WeakMap() // consumer tag by queue: the last one that was checked
  #unsettled = new WeakMap() // number of deliveries by queue of the retrier's own consumers

  constructor (client, options) {
    super(options)
    this.#tap = tapOf(client)
    this.#tap.follow(connection => this._watch(connection))
    this.#client = client
  }

  async _connection (given = this.#client) {
    const client = this.#client
    if (given !== client) throw new ArgumentError('the retrier has its connection: give declare no other')
    while (!this.#tap.connection?.isOpen || !client.readyEmitted) {
      const { connectionAttemptScheduled: isScheduled, implOptions, socket } = client
      // With the option reconnect off, node-amqp schedules nothing, and sets the flag all the same.
      const isConnecting = socket.connecting || (isScheduled ? implOptions.reconnect : !this.#tap.connection)
      if (!isConnecting && !this.#tap.connection?.isOpen) throw new ConnectionFailedError('the connection is closed')
      await once(client, 'ready').catch(error => {
        throw new ConnectionFailedError(`there is no connection: ${error?.message ?? error}`, { cause: error })
      })
    }
    return this.#tap.connection
  }

  wrap (handle) {
    handler(handle, 'wrap')
    this._keepLooking()
    const flow = this._flow()
    return (payload, headers, deliveryInfo, incoming) => this._handle(
      () => this.#read(incoming, { payload, deliveryInfo, signal: this._signal }),
      message => handle(payload, headers, deliveryInfo, message),
      flow
    )
  }

  /** Returns the listener of a consumer of the retrier's own. */
  _listener ({ signal, handle, flow, settled: report }) {
    return (payload, headers, deliveryInfo, incoming) => {
      if (signal.aborted) { // the consumer is cancelled
        incoming.reject(true)
        return
      }
      const { queue } = incoming
      this.#unsettled.set(queue, (this.#unsettled.get(queue) ?? 0) + 1)
      const settled = action => {
        if (action !== 'back') report()
        this.#unsettled.set(queue, this.#unsettled.get(queue) - 1)
        this._closeIfSettled(queue)
      }
      this._handle(() => this.#read(incoming, { payload, deliveryInfo, signal, settled }), handle, flow)
    }
  }

  _consumer (handle, prefetch) {
    return new Consumer(this, this.#client, handle, prefetch)
  }

  read (incoming) {
    const message = this.#read(incoming, {})
    this._keepLooking()
    this._begins(message)
    return message
  }

  #read (incoming, { payload: read, deliveryInfo, signal, settled }) {
    const arrival = incoming?.[ARRIVAL]
    if (!arrival) {
      throw new ArgumentError(
        'this is no message of the retrier\'s connection: give the fourth argument of a subscribed listener'
      )
    }
    this.#refuseForeign(incoming)
    const { connection, payload, chunks } = arrival
    const { exchange, routingKey, redelivered } = incoming
    const original = new SubscribedOriginal(connection, decode(payload), joined(chunks), incoming, settled)
    const own = { incoming, payload: read, deliveryInfo }
    return this.#message(original, { exchange, routingKey }, { redelivered, signal }, own)
  }

  /**
   * Refuses a delivery that the retrier must not settle: it is of another queue, or of a
   * subscription without acknowledgements. Throws the error.
   */
  #refuseForeign ({ queue, consumerTag }) {
    if (this.#own.get(queue) === consumerTag) return
    const foreign = this._diagnosis('queue', { of: queue.name })
    if (foreign) throw foreign
    if (queue.consumerTagOptions[consumerTag]?.noAck) throw this._diagnosis('no-ack', { of: '{ ack: true }' })
    this.#own.set(queue, consumerTag)
  }

  #message (original, { exchange, routingKey }, options, own) {
    const { connection, decoded: { properties, entries } } = original
    const headers = Object.fromEntries(pairsOf(entries))
    const history = this._history(connection, { exchange, routingKey, properties, headers })
    return new Message(original, history, { ...options, topology: this.topology }, own)
  }

  _parked ({ args, payload, chunks, channel }, connection) {
    const original = new GotOriginal(connection, decode(payload), joined(chunks), channel, args.deliveryTag)
    return this.#message(original, args, { redelivered: args.redelivered })
  }

  /** Closes a queue's channel when its deliveries are settled, or at the end of the next drain. */
  _closeLater (queue) {
    this.#cancelled.add(queue)
    queue.once('close', () => this.#cancelled.delete(queue))
  }

  /** Closes the channel of a cancelled consumer if nothing of it is in hand. */
  _closeIfSettled (queue) {
    if (this.#cancelled.has(queue) && !this.#unsettled.get(queue)) this.#close(queue)
  }

  #close (queue) {
    this.#cancelled.delete(queue)
    if (queue.state !== 'open') return
    queue[PREFETCH] = CLOSED // all is settled before
    queue.close('drained')
  }

  async _flush (isIdle) { // node-amqp writes in order, and closes in order
    for (const queue of this.#cancelled) {
      if (isIdle) this.#close(queue)
      else this._closeIfSettled(queue)
    }
  }
}

function joined (chunks) {
  return chunks.length === 1 ? chunks[0] : Buffer.concat(chunks)
}

module.exports = { Retrier }
