'use strict'
// The consumer behind `retrier.consume`.

const { ChannelClosedError, ConnectionFailedError } = require('../../errors')
const { BaseConsumer, LOSS_CHANNEL, LOSS_CONNECTION, LOSS_CONSUMER } = require('../consumer')
const earlier = require('../earlier')
const { call, close, isOpen, replyOf } = require('./client')
const { settlerOf } = require('./settler')

/** Consumes on a channel of its own: an error of one channel closes all that runs on it. */
class Consumer extends BaseConsumer {
  #retrier
  #connection
  #handle
  #prefetch
  #channel
  #tag

  constructor (retrier, connection, handle, prefetch) {
    super(retrier)
    this.#retrier = retrier
    this.#connection = connection
    this.#handle = handle
    this.#prefetch = prefetch
    connection.watch(this)
  }

  get lostError () {
    if (this.#connection.isOpen) return undefined
    const { reason } = this.#connection
    return new ConnectionFailedError(`the connection is closed${reason ? `: ${replyOf(reason)}` : ''}`)
  }

  async _subscribe () {
    const channel = await this.#connection.openConsuming()
    // RabbitMQ 4.3 may still deliver to a consumer that it cancelled for the consumer timeout.
    // amqplib closes the connection if it has forgotten the consumer.
    channel.unregisterConsumer = () => {}
    const { queue } = this.#retrier.topology
    let why = 'the channel was closed'
    channel.on('error', error => { why = replyOf(error) })
    // If the connection closes too, its event comes first.
    channel.on('close', () => queueMicrotask(() => {
      if (channel === this.#channel) this._lost(LOSS_CHANNEL, why)
    }))
    try {
      await call(channel, 'prefetch', this.#prefetch, false)
      const handle = this.#retrier._listener(channel, {
        signal: this.signal,
        handle: this.#handle,
        flow: this.flow,
        prefetch: this.#prefetch,
        settled: this._settled
      })
      let isOver = false
      const { consumerTag } = await call(channel, 'consume', queue, incoming => {
        if (!incoming) {
          isOver = true
          this.#cancelled(channel)
        } else if (!isOver && !this.isCancelled) {
          handle(incoming)
        } // otherwise the message goes back to its queue when the channel closes
      }, { priority: 0 }) // a stream refuses it: BH_CONSUME_ARGUMENT of declaring.h
      this.#tag = consumerTag
      this.#channel = channel
      if (!isOpen(channel)) throw new ChannelClosedError(why)
    } catch (error) {
      close(channel)
      throw error.code ? this.#retrier._consumerRefused({ code: error.code, text: replyOf(error) }, error) : error
    }
  }

  /**
   * The broker cancelled the consumer. The next one has a new channel, as a handler may hold this
   * one for long.
   */
  #cancelled (channel) {
    this.#channel = undefined
    const settler = settlerOf(channel)
    earlier.cancelled(settler, settler.prefetch)
    settler.whenSettled(() => this.#retrier._close(channel))
    this._lost(LOSS_CONSUMER)
  }

  // The methods that a Connection calls

  lost () {
    this._lost(LOSS_CONNECTION)
  }

  blocked (isBlocked) {
    if (isBlocked) this._release()
  }

  async _unsubscribe () {
    const channel = this.#channel
    this.#channel = undefined
    if (!channel || !isOpen(channel)) return
    const cancelled = call(channel, 'cancel', this.#tag).catch(() => {})
    await this._unlessBlocked(cancelled, this.#connection.isBlocked)
    settlerOf(channel).whenSettled(() => this.#retrier._close(channel))
  }
}

module.exports = { Consumer }
