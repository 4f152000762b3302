'use strict'
// A delivery of amqplib's: as the retrier settles it, and as a handler sees it.

const { DELIVERY_COUNT, ID } = require('../../decider')
const { Message: BaseMessage, ORIGINAL } = require('../../message')

const LONG = { integer: value => ({ '!': 'long', value }) } // otherwise amqplib writes the smallest type

/** A delivery to settle on the channel that it came by, and on no other. */
class Original {
  call = 0
  #settler

  constructor (connection, settler, incoming, content) {
    this.connection = connection
    this.content = content
    this.#settler = settler
    this.incoming = incoming
  }

  /** True if the message has the header that the poison guard reads. */
  get isCounted () {
    return this.incoming.properties.headers?.[DELIVERY_COUNT] !== undefined
  }

  get isOpen () {
    return this.#settler.isOpen
  }

  get hasId () {
    const { headers, messageId } = this.incoming.properties
    return messageId !== undefined || headers?.[ID] !== undefined
  }

  get lostPrefetch () {
    return this.#settler.lostPrefetch(this.connection)
  }

  /** An object that stands for the channel. */
  get channel () {
    return this.#settler
  }

  get tag () {
    return this.incoming.fields.deliveryTag
  }

  settle (action) {
    this.#settler.settle(this.incoming, action)
  }

  /**
   * Returns the properties of the copy: bytes by the core, or an object if headers nest deeper than
   * the core reads.
   */
  properties (plan, { given }) {
    return plan._encodedProperties() ?? plan.copyProperties(given.properties, LONG)
  }
}

/**
 * The message that a handler gets. Headers are parsed on first access. A handler may change
 * `fields` and `properties`, so the history is read before the message shows them.
 */
class Message extends BaseMessage {
  #history
  #read

  constructor (original, read, topology, signal) {
    const { content, incoming: { fields } } = original
    super(content, undefined, { redelivered: fields.redelivered, topology, signal })
    this[ORIGINAL] = original
    this.#read = read
  }

  get history () {
    return (this.#history ??= this.#read(this[ORIGINAL]))
  }

  get fields () {
    return this.#shown.fields
  }

  get properties () {
    return this.#shown.properties
  }

  get #shown () {
    this.#history ??= this.#read(this[ORIGINAL])
    return this[ORIGINAL].incoming
  }
}

module.exports = { Message, Original }
