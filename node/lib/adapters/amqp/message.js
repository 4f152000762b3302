'use strict'
// A delivery of node-amqp's: as the retrier settles it, and as a handler sees it.

const { DELIVERY_COUNT, ID } = require('../../decider')
const { Message: BaseMessage, ORIGINAL } = require('../../message')
const { debug } = require('../../log')
const { CLOSED } = require('../earlier')
const { encode, numberOf } = require('./properties')

/** The key under which a queue of node-amqp has its prefetch, or CLOSED once all is settled. */
const PREFETCH = Symbol('prefetch')

/** A delivery to settle on the channel and the connection that it came by, and on no other. */
class Original {
  call = 0

  constructor (connection, decoded, content) {
    this.connection = connection
    this.decoded = decoded
    this.content = content
  }

  settle (action) {
    if (!this.isOpen) return // the broker delivers it again
    try {
      this.send(action)
    } catch (error) {
      debug('a delivery is not settled: %s', error.message)
    }
  }

  properties (plan) {
    return encode(plan, this.decoded)
  }
}

/** A delivery of a queue that the application or the retrier subscribed to. */
class SubscribedOriginal extends Original {
  /** settled: called with the action when it is settled; undefined if the application consumes */
  constructor (connection, decoded, content, incoming, settled) {
    super(connection, decoded, content)
    this.incoming = incoming
    this.settled = settled
  }

  /** True if the message has the header that the poison guard reads. */
  get isCounted () {
    return this.#has(DELIVERY_COUNT)
  }

  get hasId () {
    return this.decoded.properties.messageId !== undefined || this.#has(ID)
  }

  #has (header) {
    return this.decoded.entries.some(({ name }) => name === header)
  }

  get lostPrefetch () {
    return this.connection.isOrderly ? CLOSED : this.incoming.queue[PREFETCH] ?? 0
  }

  /** An object that stands for the channel. */
  get channel () {
    return this.incoming.queue
  }

  get tag () {
    return numberOf(this.incoming.deliveryTag)
  }

  get isOpen () {
    const { queue } = this.incoming
    return this.connection.isOpen && queue.connection.parser === this.connection.parser && queue.state === 'open'
  }

  /**
   * node-amqp has no basic.nack. If the delivery is not to be requeued, basic.reject is equivalent.
   */
  send (action) {
    if (action === 'ack') this.incoming.acknowledge()
    else this.incoming.reject(action !== 'reject')
    this.settled?.(action)
  }
}

/** A parked message to replay, of a basic.get on one of Backhop's channels. */
class GotOriginal extends Original {
  constructor (connection, decoded, content, channel, deliveryTag) {
    super(connection, decoded, content)
    this.channel = channel
    this.deliveryTag = deliveryTag
  }

  get tag () {
    return numberOf(this.deliveryTag)
  }

  get isOpen () {
    return this.channel.isOpen
  }

  send (action) {
    const { channel, deliveryTag } = this
    if (action === 'ack') channel.send('basicAck', { deliveryTag, multiple: false })
    else channel.send('basicReject', { deliveryTag, requeue: true })
  }
}

class Message extends BaseMessage {
  constructor (original, history, options, { incoming, payload, deliveryInfo } = {}) {
    super(original.content, history, options)
    this[ORIGINAL] = original
    this.incoming = incoming
    this.payload = payload
    this.deliveryInfo = deliveryInfo
  }
}

module.exports = { GotOriginal, Message, PREFETCH, SubscribedOriginal }
