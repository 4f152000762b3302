'use strict'
// Retries over amqplib, on the connection that the application has.

const { errorMonitor } = require('node:events')

const { DELIVERY_COUNT } = require('./decider')
const {
  ArgumentError, ChannelClosedError, ConnectionFailedError, ConsumerCancelledError, errorOf
} = require('./errors')
const { warn } = require('./log')
const { Message: BaseMessage } = require('./message')
const { callable, handler, only, refuse } = require('./options')
const { BaseConsumer, BaseRetrier, ORIGINAL } = require('./retrier')
const { decodedHeaders } = require('./values')
const { frames } = require('./wire')

// By the protocol, class 85: amqplib exports no names of methods.
const CONFIRM_SELECT = 85 << 16 | 10
const CONFIRM_SELECT_OK = 85 << 16 | 11
const COMMAND_INVALID = 503 // so RabbitMQ before 4.0 closes the connection for an exchange type that it does not know
const MOST_HEADER_BYTES = 65536 // amqplib encodes a table in a buffer of that size
const BLOCK_BYTES = 65536 // that are written together
const USED = ['_rpc', 'sendMessage', 'open'] // of a channel, and not public
const LONG = { integer: value => ({ '!': 'long', value }) } // else amqplib writes the smallest type
const REPLY = /^.*? with message "(.*)"$/s

/** Calls a method of a channel of either API: one gives a promise, the other takes a callback. */
function call (channel, method, ...args) {
  return new Promise((resolve, reject) => {
    const result = channel[method](...args, (error, value) => error ? reject(error) : resolve(value))
    if (typeof result?.then === 'function') result.then(resolve, reject)
  })
}

const lines = new WeakMap()

/** A connection of amqplib's forgets its channels as they are closed, and all of them as it is closed itself. */
function isOpen (channel) {
  return channel.connection.channels[channel.ch]?.channel === channel
}

function lineOf (channel) {
  const connection = channel?.connection
  if (typeof connection?.freshChannel !== 'function') throw new ArgumentError(noChannel(channel))
  if (!USED.every(name => typeof channel[name] === 'function') || !Array.isArray(connection.channels)) {
    throw new ArgumentError(
      'this amqplib is none that Backhop knows: it works with 0.10 up to 2, by more than its public calls'
    )
  }
  let line = lines.get(connection)
  if (!line) {
    line = new Line(connection, channel.constructor)
    lines.set(connection, line)
  }
  return line
}

/** What was given instead of a channel, and where one is. */
function noChannel (given) {
  if (given === null || given === undefined) {
    return 'the retrier has no channel: give one of amqplib\'s, to the retrier, or to declare, wrap or read'
  }
  if (typeof given.addSetup === 'function') {
    return 'this is a ChannelWrapper of amqp-connection-manager, whose channel changes with each connection: make ' +
      'the retrier inside of addSetup(channel => ...), with that channel'
  }
  if (typeof given.createChannel === 'function') {
    return 'this is a connection of amqplib: give a channel, which its createChannel makes'
  }
  return 'this is no channel of amqplib: give what createChannel or createConfirmChannel gave'
}

/** A connection of amqplib's, and the class of its channels: of the promise API, or of the callback API. */
class Line {
  isOpen
  isBlocked
  reason
  #connection
  #Channel
  #error // of the connection: amqplib closes it as the application does where it cannot read what comes
  #watchers = new Set()

  constructor (connection, Channel) {
    this.#connection = connection
    this.#Channel = Channel
    this.isOpen = connection.stream.writable
    this.isBlocked = connection.blocked === true // amqplib 0.10 tells by events alone
    connection.on('blocked', () => this.#block(true))
    connection.on('unblocked', () => this.#block(false))
    connection.on(errorMonitor, error => { this.#error = error })
    connection.on('close', (reason = this.#error) => {
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
    return Math.min(this.#connection.frameMax, MOST_HEADER_BYTES)
  }

  get serverProperties () {
    return this.#connection.serverProperties
  }

  /** A publisher, or a consumer. */
  watch (watcher) {
    if (this.isOpen) this.#watchers.add(watcher)
  }

  async #open () {
    if (!this.isOpen) throw new ConnectionFailedError('the connection is closed')
    try {
      const channel = new this.#Channel(this.#connection)
      channel.on('error', () => {}) // what waits for an answer is told, and 'close' comes
      await call(channel, 'open')
      return channel
    } catch (error) {
      throw new ConnectionFailedError(`no channel can be opened: ${error.message}`, { cause: error })
    }
  }

  async openChannel () {
    return new DeclaringChannel(this, await this.#open())
  }

  /** For a consumer of the retrier's own. */
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
    // Where the connection goes too, it says so first.
    channel.on('close', () => queueMicrotask(() => listener.closed(reason)))
    await new Promise((resolve, reject) => {
      channel._rpc(CONFIRM_SELECT, { nowait: false }, CONFIRM_SELECT_OK, error => error ? reject(error) : resolve())
    })
    if (!isOpen(channel)) throw new ChannelClosedError('the channel was closed')
    const slot = this.#connection.channels[channel.ch]
    slot.buffer = new Gathered(slot.buffer)
    return new PublishingChannel(channel, slot.buffer)
  }
}

/** The write buffer of the channel that publishes: what is published together goes to the system at once. */
class Gathered {
  #buffer
  #block = Buffer.alloc(0)
  #begin = 0 // of what is to go
  #end = 0

  constructor (buffer) {
    this.#buffer = buffer
  }

  /** A Buffer that goes as it is once this code has run. */
  room = size => {
    if (this.#block.length - this.#end < size) {
      this.#flush()
      this.#block = Buffer.allocUnsafeSlow(Math.max(size, BLOCK_BYTES))
      this.#begin = this.#end = 0
    }
    if (this.#begin === this.#end) queueMicrotask(() => this.#flush())
    this.#end += size
    return this.#block.subarray(this.#end - size, this.#end)
  }

  write (chunk) {
    this.#flush()
    return this.#buffer.write(chunk)
  }

  end () {
    this.#flush()
    this.#buffer.end()
  }

  #flush () {
    if (this.#begin === this.#end) return
    this.#buffer.write(this.#block.subarray(this.#begin, this.#end))
    this.#begin = this.#end
  }
}

class PublishingChannel {
  #channel
  #buffer

  constructor (channel, buffer) {
    this.#channel = channel
    this.#buffer = buffer
  }

  get isOpen () {
    return isOpen(this.#channel)
  }

  /** Throws where it cannot be encoded, before it writes; false: the channel is closed, or just being closed. */
  publish (message) {
    if (!this.isOpen) return false
    return Buffer.isBuffer(message.properties) ? this.#write(message) : this.#send(message)
  }

  #write (message) {
    const { ch, connection } = this.#channel
    frames(ch, message, connection.frameMax, this.#buffer.room)
    connection.sentSinceLastCheck = true // else it would send a heartbeat
    return true
  }

  /** As amqplib's own publish, less its options: they have no cluster id. */
  #send ({ exchange, routingKey, mandatory, properties, content }) {
    try {
      this.#channel.sendMessage({ exchange, routingKey, mandatory }, properties, content)
      return true
    } catch (error) {
      if (error.name === 'IllegalOperationError') return false
      throw error
    }
  }
}

class DeclaringChannel {
  #line
  #channel
  #closed // why the broker closed it; amqplib 0.10.0 rejects a get with what is no error, or not at all

  constructor (line, channel) {
    this.#line = line
    this.#channel = channel
    channel.on('error', error => { this.#closed = error })
  }

  async take ({ declaration, passive }) {
    try {
      await this.#declare(declaration, passive)
    } catch (error) {
      if (error.code) return { code: error.code, text: replyOf(error) }
      const { reason } = this.#line
      if (reason?.code === COMMAND_INVALID) return { code: COMMAND_INVALID, text: replyOf(reason) }
      throw new ConnectionFailedError(`the connection was lost: ${(reason ?? error).message}`, { cause: error })
    }
  }

  #declare ({ what, name, type, source, routingKey, arguments: args }, passive) {
    const channel = this.#channel
    if (what === 'binding') {
      return call(channel, type === 'exchange' ? 'bindExchange' : 'bindQueue', name, source, routingKey, {})
    }
    if (passive) return call(channel, what === 'exchange' ? 'checkExchange' : 'checkQueue', name)
    const options = { durable: true, arguments: args }
    return what === 'exchange'
      ? call(channel, 'assertExchange', name, type, options)
      : call(channel, 'assertQueue', name, options)
  }

  /** A message, and how many were left behind it; undefined where there is none; or the broker's refusal. */
  async get (queue) {
    try {
      const incoming = await this.#get(queue)
      return incoming ? { incoming, channel: this.#channel, left: incoming.fields.messageCount } : undefined
    } catch (error) {
      const cause = this.#closed ?? error
      if (cause.code) return { refusal: { code: cause.code, text: replyOf(cause) } }
      throw new ConnectionFailedError(`the channel was closed: ${cause.message}`, { cause })
    }
  }

  async #get (queue) {
    let closed
    const isClosed = new Promise((resolve, reject) => { closed = reject })
    this.#channel.once('error', closed)
    try {
      return await Promise.race([call(this.#channel, 'get', queue, {}), isClosed])
    } finally {
      this.#channel.off('error', closed)
    }
  }

  close () {
    settlers.get(this.#channel)?.flush()
    return close(this.#channel)
  }
}

async function close (channel) {
  try {
    if (isOpen(channel)) await call(channel, 'close')
  } catch {
    // It is closed by now.
  }
}

/** By which a copy is known: its text, or bytes. */
function idOf ({ headers }) {
  const id = headers?.['backhop-id']
  return typeof id === 'string' || Buffer.isBuffer(id) ? id : ''
}

/** What the broker said as it closed a channel or a connection. */
function replyOf (error) {
  return REPLY.exec(error.message)?.[1] ?? error.message
}

// Not of all; to its queue, or not.
const SETTLES = { reject: ['nack', false, false], return: ['reject', true], back: ['nack', false, true] }
const settlers = new WeakMap()

function settlerOf (channel) {
  let settler = settlers.get(channel)
  if (!settler) {
    settler = new Settler(channel)
    settlers.set(channel, settler)
  }
  return settler
}

/**
 * Settles deliveries of a channel. What is acknowledged in one turn of the event loop is acknowledged together, up to
 * the first delivery that is open, where every delivery of the channel came to the retrier.
 */
class Settler {
  #channel
  #last = 0 // delivery tags count from 1
  #open = new Set() // ascending
  #isShared = false
  #acknowledged = []
  #then
  #isDue = false

  constructor (channel) {
    this.#channel = channel
  }

  get isHere () {
    return isOpen(this.#channel)
  }

  /** A delivery, in the order in which they come. */
  took (tag) {
    if (tag !== ++this.#last) this.share()
    else if (!this.#isShared) this.#open.add(tag)
  }

  /** There are deliveries that others settle. */
  share () {
    this.#isShared = true
    this.#open.clear()
  }

  /** Calls it once each delivery that came so far is settled, and what settles them is written. */
  whenSettled (then) {
    this.#then = then
    if (!this.#open.size) this.#settled()
  }

  #settled () {
    const then = this.#then
    if (!then || this.#open.size) return
    this.#then = undefined
    this.flush()
    then()
  }

  settle (incoming, action) {
    this.#open.delete(incoming.fields.deliveryTag)
    if (action === 'ack') {
      this.#acknowledged.push(incoming)
      if (!this.#isDue) setImmediate(() => this.flush())
      this.#isDue = true
    } else {
      const [method, ...options] = SETTLES[action]
      this.#write(method, incoming, ...options)
    }
    if (this.#then) this.#settled()
  }

  /** Hands over what is acknowledged. */
  flush () {
    this.#isDue = false
    const acknowledged = this.#acknowledged
    if (!acknowledged.length) return
    this.#acknowledged = []
    const tagOf = incoming => incoming.fields.deliveryTag
    const [firstOpen = Infinity] = this.#open
    const isBefore = incoming => !this.#isShared && tagOf(incoming) < firstOpen
    const together = acknowledged.filter(isBefore)
    if (together.length) {
      this.#write('ack', together.reduce((last, each) => tagOf(each) > tagOf(last) ? each : last), true)
    }
    if (together.length === acknowledged.length) return
    for (const incoming of acknowledged) {
      if (!isBefore(incoming)) this.#write('ack', incoming)
    }
  }

  #write (method, incoming, ...options) {
    try {
      this.#channel[method](incoming, ...options)
    } catch {
      // Its channel is closed, and the broker delivers it again.
    }
  }
}

/** A delivery to settle, on the channel that it came by and on no other. */
class Original {
  #settler

  constructor (line, settler, incoming) {
    this.line = line
    this.#settler = settler
    this.incoming = incoming
  }

  /** Whether the poison guard has something to read. */
  get isCounted () {
    return this.incoming.properties.headers?.[DELIVERY_COUNT] !== undefined
  }

  get isHere () {
    return this.#settler.isHere
  }

  /** What stands for the channel. */
  get channel () {
    return this.#settler
  }

  get tag () {
    return this.incoming.fields.deliveryTag
  }

  settle (action) {
    this.#settler.settle(this.incoming, action)
  }

  properties (plan, { given }) {
    return plan._encodedProperties() ?? plan.copyProperties(given.properties, LONG)
  }
}

/** What is not asked for is not read. What was asked for may be changed, so that it is read before it is shown. */
class Message extends BaseMessage {
  #history
  #read

  constructor (original, read, topology, signal) {
    const { content, fields } = original.incoming
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

class Retrier extends BaseRetrier {
  #channel
  #channels = new Set() // on which something is settled
  #closing = new Set() // the ends of channels of consumers

  constructor (channel, options) {
    super(options)
    this.#channel = channel
    if (channel !== null) lineOf(channel)
  }

  async _line (channel = this.#channel) {
    return lineOf(channel)
  }

  wrap (handle, options = {}) {
    handler(handle, 'wrap')
    const { channel = this.#channel, cancelled } = only(options, ['channel', 'cancelled'], 'wrap')
    if (cancelled !== undefined) callable(cancelled, 'cancelled')
    const line = lineOf(channel)
    const settler = this.#settler(channel)
    return incoming => {
      if (incoming !== null) {
        settler.took(incoming.fields.deliveryTag)
        return this._handle(() => this.#message(line, settler, incoming, this._signal), handle)
      }
      const { message } = errorOf(ConsumerCancelledError.status)
      warn(`${message}: nothing of "${this.topology.queue}" is consumed any more`, 'BACKHOP_CANCELLED')
      if (cancelled) queueMicrotask(() => cancelled()) // what it throws would end the connection
    }
  }

  /** A callback for a channel of `consume`: an incoming message, or null. */
  _taking (channel, signal, handle) {
    const line = lineOf(channel)
    const settler = this.#settler(channel)
    return incoming => {
      settler.took(incoming.fields.deliveryTag)
      this._handle(() => this.#message(line, settler, incoming, signal), handle)
    }
  }

  _consumer (handle, prefetch) {
    return new Consumer(this, lineOf(this.#channel), handle, prefetch)
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
    const line = lineOf(channel)
    if (!Buffer.isBuffer(incoming?.content) || !incoming.fields) {
      refuse('what read is given', incoming, 'a message of amqplib\'s, as consume and get give it')
    }
    const settler = this.#settler(channel)
    settler.share()
    const message = this.#message(line, settler, incoming)
    return message.history && message // read now, as others have its properties, too
  }

  #settler (channel) {
    if (!this.#channels.has(channel)) {
      for (const old of this.#channels) {
        if (!isOpen(old)) this.#channels.delete(old)
      }
      this.#channels.add(channel)
      this._attend(lineOf(channel))
      if (!settlers.has(channel)) channel.on(errorMonitor, error => { this.#tellSettling(error) })
    }
    return settlerOf(channel)
  }

  /** The broker closes a channel: where a delivery was settled twice, or needed no settling, it says no more. */
  #tellSettling (error) {
    const advice = error.code && this._diagnosis('refuse_settling', error.code, replyOf(error), 'noAck: false')
    if (advice) warn(advice.message, 'BACKHOP_ACKNOWLEDGED')
  }

  #message (line, settler, incoming, signal) {
    return new Message(new Original(line, settler, incoming), this.#readOne, this.topology, signal)
  }

  #readOne = ({ line, incoming: { fields: { exchange, routingKey }, properties } }) => {
    const headers = properties.headers && decodedHeaders(properties.headers)
    return this._read(line, { exchange, routingKey, properties, headers })
  }

  _parked ({ incoming, channel }, line) {
    const settler = settlerOf(channel)
    settler.share()
    return this.#message(line, settler, incoming)
  }

  /** A channel of a consumer, behind what is settled on it. */
  async _close (channel) {
    const closing = close(channel)
    this.#closing.add(closing)
    await closing
    this.#closing.delete(closing)
  }

  /** amqplib closes a connection before it has written what its channels hold: so the broker has to answer each. */
  async _flush () {
    for (const channel of this.#channels) {
      if (!isOpen(channel)) continue
      settlerOf(channel).flush()
      await call(channel, 'cancel', 'backhop drains').catch(() => {}) // no consumer has this tag
    }
    await Promise.all(this.#closing)
  }
}

/** On a channel of its own, as one that the broker closes takes all that was on it with it. */
class Consumer extends BaseConsumer {
  #retrier
  #line
  #handle
  #prefetch
  #channel
  #tag

  constructor (retrier, line, handle, prefetch) {
    super(retrier)
    this.#retrier = retrier
    this.#line = line
    this.#handle = handle
    this.#prefetch = prefetch
    line.watch(this)
  }

  get isLost () {
    if (this.#line.isOpen) return undefined
    const { reason } = this.#line
    return new ConnectionFailedError(`the connection is closed${reason ? `: ${replyOf(reason)}` : ''}`)
  }

  async _subscribe () {
    const channel = await this.#line.openConsuming()
    const { queue } = this.#retrier.topology
    let why = 'the channel was closed'
    channel.on('error', error => { why = replyOf(error) })
    channel.on('close', () => queueMicrotask(() => { // where the connection goes too, it says so first
      if (channel === this.#channel) this._ended(why)
    }))
    try {
      await call(channel, 'prefetch', this.#prefetch, false)
      const take = this.#retrier._taking(channel, this.signal, this.#handle)
      const { consumerTag } = await call(channel, 'consume', queue, incoming => {
        if (incoming) {
          take(incoming)
          return
        }
        this.#channel = undefined // the next one is on a channel of its own, as a handler may hold this one for long
        settlerOf(channel).whenSettled(() => this.#retrier._close(channel))
        this._ended()
      }, {})
      this.#tag = consumerTag
      this.#channel = channel
      if (!isOpen(channel)) throw new ChannelClosedError(why)
    } catch (error) {
      close(channel)
      throw error.code ? this.#retrier._consumerRefused({ code: error.code, text: replyOf(error) }, error) : error
    }
  }

  /** Its line's. */
  lost () {
    this._ended()
  }

  blocked () {}

  async _unsubscribe () {
    const channel = this.#channel
    this.#channel = undefined
    if (!channel || !isOpen(channel)) return
    await call(channel, 'cancel', this.#tag).catch(() => {})
    settlerOf(channel).whenSettled(() => this.#retrier._close(channel))
  }
}

module.exports = { Message, Retrier }
