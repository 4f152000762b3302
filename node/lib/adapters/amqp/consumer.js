'use strict'
// The consumer behind `retrier.consume`.

const { ConnectionFailedError } = require('../../errors')
const { BaseConsumer, LOSS_CHANNEL, LOSS_CONSUMER } = require('../consumer')
const { PREFETCH } = require('./message')

const ARGUMENTS = { 'x-priority': 0 } // a stream refuses them: BH_CONSUME_ARGUMENT of declaring.h

/**
 * Subscribes on a queue of its own among node-amqp's. If node-amqp connects again, it subscribes
 * this queue again.
 */
class Consumer extends BaseConsumer {
  #retrier
  #client
  #handle
  #prefetch
  #queue
  #tag

  constructor (retrier, client, handle, prefetch) {
    super(retrier)
    this.#retrier = retrier
    this.#client = client
    this.#handle = handle
    this.#prefetch = prefetch
    const follow = ({ oldConsumerTag, consumerTag }) => {
      if (this.#tag !== oldConsumerTag) return
      this.#tag = consumerTag
      if (this.flow?.isPaused) this.pause()
      else this._cameBack()
    }
    client.on('tag.change', follow)
    this.closed.then(() => client.off('tag.change', follow))
  }

  get lostError () {
    return undefined // node-amqp or the application connects again
  }

  async _subscribe () {
    const { queue: name } = this.#retrier.topology
    await new Promise((resolve, reject) => {
      const known = this.#queue // whose consumer was cancelled while the breaker was open
      if (known?.state === 'open') {
        this.#consume(known, resolve)
        return
      }
      if (known) {
        known.once('open', () => this.#consume(known, resolve)) // node-amqp connects again
        known.once('close', () => reject(new ConnectionFailedError('the channel was closed')))
        return
      }
      const options = { passive: true, autoDelete: false, closeChannelOnUnsubscribe: false }
      const queue = this.#client.queue(name, options, () => this.#consume(queue, resolve))
      if (!queue) {
        reject(new ConnectionFailedError('node-amqp has no channel for the consumer'))
        return
      }
      let why = '' // stays empty if the broker cancels the consumer
      queue.on('error', error => {
        why = error.message
        reject(this.#retrier._consumerRefused({ code: error.code, text: error.message }, error))
      })
      queue.on('close', () => {
        if (queue !== this.#queue) return
        this.#queue = undefined
        this._lost(why ? LOSS_CHANNEL : LOSS_CONSUMER, why)
      })
    })
  }

  #consume (queue, resolve) {
    queue[PREFETCH] = this.#prefetch
    const listener = this.#retrier._listener({
      signal: this.signal, handle: this.#handle, flow: this.flow, settled: this._settled
    })
    subscribe(queue, { ack: true, prefetchCount: this.#prefetch }, listener).addCallback(({ consumerTag }) => {
      this.#queue = queue
      this.#tag = consumerTag
      resolve()
    })
  }

  async _unsubscribe () {
    const queue = this.#queue
    if (queue?.state !== 'open') return
    if (this.isCancelled) this.#retrier._closeLater(queue)
    let end
    const cancelled = new Promise(resolve => { end = resolve })
    const release = () => this._release()
    queue.once('close', end)
    queue.unsubscribe(this.#tag).addCallback(end)
    this.#client.once('blocked', release)
    await this._unlessBlocked(cancelled, this.#client._blocked)
    queue.off('close', end) // a breaker may open often
    this.#client.off('blocked', release)
    this.#retrier._closeIfSettled(queue)
  }
}

/**
 * Subscribes with ARGUMENTS. node-amqp itself sends none; it writes at once, as the queue is open.
 */
function subscribe (queue, options, listener) {
  const { connection } = queue
  const { _sendMethod: send } = connection
  connection._sendMethod = (channel, method, args) => {
    send.call(connection, channel, method, 'noAck' in args ? { ...args, arguments: ARGUMENTS } : args)
  }
  try {
    return queue.subscribe(options, listener)
  } finally {
    connection._sendMethod = send
  }
}

module.exports = { Consumer }
