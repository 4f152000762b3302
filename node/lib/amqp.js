'use strict'
// Retries over node-amqp (the package amqp), on the connection that the application has.
//
// node-amqp 0.2.7 is its last version. It reads 64-bit integers, doubles and timestamps wrongly and writes them as
// something else, takes a broker's nack for an error that ends the connection, and acknowledges a delivery of a lost
// connection on the new one. So this keeps the bytes of what arrives beside node-amqp's reading of it, and has channels
// of its own among the connection's channels.

const { EventEmitter, once } = require('node:events')

const { methods } = require('amqp/lib/definitions')

const { DELIVERY_COUNT } = require('./decider')
const { ArgumentError, ChannelClosedError, ConnectionFailedError } = require('./errors')
const { debug } = require('./log')
const { Message: BaseMessage } = require('./message')
const { handler } = require('./options')
const { BaseConsumer, BaseRetrier, ORIGINAL } = require('./retrier')
const wire = require('./wire')

const BASIC_NACK = 60 << 16 | 120
const COMMAND_INVALID = 503 // so RabbitMQ before 4.0 closes the connection for an exchange type that it does not know
const CONNECTION_CLOSE = 10 << 16 | 50
const CONNECTION_CLOSE_OK = 10 << 16 | 51
const REPLIES = new Set([
  'channelOpenOk', 'confirmSelectOk', 'exchangeDeclareOk', 'exchangeBindOk', 'queueDeclareOk', 'queueBindOk',
  'basicGetEmpty'
])

const ARRIVAL = Symbol('arrival') // of node-amqp's messages: the bytes that they came in, and the line
const taps = new WeakMap() // by connection

/** One for each connection of node-amqp's: sees the frames that it reads, and its comings and goings. */
class Tap {
  line
  #connection
  #followers = []

  constructor (connection) {
    this.#connection = connection
    if (connection.parser) this.#listen()
    if (this.line) this.line.isBlocked = connection._blocked
    for (const event of ['connect', 'secureConnect']) connection.on(event, () => this.#listen())
    connection.on('error', error => { if (connection.parser !== this.line?.parser) this.line?.lost(error) })
    connection.on('blocked', () => this.line?.blocked(true))
    connection.on('unblocked', () => this.line?.blocked(false))
    connection.on('ready', () => { for (const follow of this.#followers) follow(this.line) })
  }

  /** Calls it with the line of each connection that is made, and with that which is there. */
  follow (follower) {
    this.#followers.push(follower)
    if (this.line && this.#connection.readyEmitted) follower(this.line)
  }

  /**
   * node-amqp makes a parser and a socket for each of its connections to the broker, and drops the parser at an error.
   * It passes on what any of its sockets tells: an old one may close when a new one is there.
   */
  #listen () {
    const { parser, socket } = this.#connection
    if (!parser || this.line?.parser === parser) return
    this.line?.lost()
    const line = this.line = new Line(this.#connection, parser)
    for (const event of ['close', 'end']) socket.once(event, () => line.lost())
    const { _parseHeaderFrame: parseHeader, _parseMethodFrame: parseMethod } = parser
    parser._parseHeaderFrame = (number, payload) => {
      line.heard(number, payload)
      parseHeader.call(parser, number, payload)
    }
    parser._parseMethodFrame = (number, payload) => {
      if (!line.took(number, payload)) parseMethod.call(parser, number, payload)
    }
  }
}

function tapOf (connection) {
  if (typeof connection?.generateChannelId !== 'function') {
    throw new ArgumentError('this is no connection of node-amqp: give what createConnection gave')
  }
  let tap = taps.get(connection)
  if (!tap) {
    tap = new Tap(connection)
    taps.set(connection, tap)
  }
  return tap
}

/** A connection of node-amqp's to the broker, until it is lost. */
class Line {
  isOpen = true
  isBlocked = false // node-amqp itself keeps it beyond the connection
  reason
  #isOrderly = false
  #connection
  #publishers = new Set()
  #channels = new Set()

  constructor (connection, parser) {
    this.#connection = connection
    this.parser = parser
  }

  get frameMax () {
    return this.parser.maxFrameBuffer
  }

  get serverProperties () {
    return this.#connection.serverProperties
  }

  watch (publisher) {
    if (this.isOpen) this.#publishers.add(publisher)
  }

  blocked (isBlocked) {
    this.isBlocked = isBlocked
    for (const publisher of this.#publishers) publisher.blocked(isBlocked)
  }

  lost (error) {
    if (!this.isOpen) return
    this.isOpen = false
    this.reason ??= error instanceof Error ? error : new Error('it was closed')
    for (const channel of this.#channels) channel.lost(this.reason)
    for (const publisher of this.#publishers) publisher.lost(this.reason.message, this.#isOrderly)
    this.#publishers.clear()
  }

  /** The header frame of a message, of which node-amqp has read the method. */
  heard (number, payload) {
    const channel = this.#connection.channels[number]
    if (channel instanceof WireChannel) {
      channel.header = payload
      return
    }
    const message = channel?.currentMessage
    if (!message) return
    const chunks = []
    message.on('data', chunk => chunks.push(chunk))
    message[ARRIVAL] = { line: this, payload, chunks }
  }

  /** A method that node-amqp does not know, of a channel of ours; and why the broker closes the connection. */
  took (number, payload) {
    const method = payload.readUInt32BE(0)
    if (method === CONNECTION_CLOSE) {
      const code = payload.readUInt16BE(4)
      const text = payload.toString('utf8', 7, 7 + payload[6])
      this.reason = Object.assign(new Error(text), { code })
    }
    if (method === CONNECTION_CLOSE_OK) this.#isOrderly = true
    const channel = this.#connection.channels[number]
    if (method !== BASIC_NACK || !(channel instanceof WireChannel)) return false
    channel.emit('basicNack', { deliveryTag: payload.subarray(4, 12), multiple: Boolean(payload[12] & 1) })
    return true
  }

  async #open () {
    if (!this.isOpen) throw new ConnectionFailedError(`the connection was lost: ${this.reason.message}`)
    const channel = new WireChannel(this.#connection)
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
      listener.returned(exchange, routingKey, idIn(header), `${replyCode} ${replyText}`)
    })
    channel.on('closed', ({ code, message: text }) => { if (this.isOpen) listener.closed({ code, text }) })
    await channel.call('confirmSelect', { noWait: false })
    return new PublishingChannel(this, channel)
  }
}

function numberOf (deliveryTag) {
  return Number(deliveryTag.readBigUInt64BE(0))
}

/** The backhop-id in a header frame, its text or bytes; empty where it cannot be read. */
function idIn (header) {
  try {
    const value = wire.decode(header).entries.find(({ name }) => name === 'backhop-id')?.value
    const id = value?.['!'] === 'string' ? value.value : value
    return typeof id === 'string' || Buffer.isBuffer(id) ? id : ''
  } catch {
    return ''
  }
}

/** One of the connection's channels, as node-amqp's Queue and Exchange are: it calls the methods with an underscore. */
class WireChannel extends EventEmitter {
  isOpen = true
  header
  #connection
  #number
  #calls = []
  #incoming // what a return or a get tells of the message that comes

  constructor (connection) {
    super()
    this.#connection = connection
    this.#number = connection.generateChannelId()
    connection.channels[this.#number] = this
  }

  /** Sends, and resolves to the arguments of the answer; rejects where the channel or the connection is closed. */
  call (name, args) {
    return this.#answer(() => this.send(name, args))
  }

  declareExchange (name, type, args, isPassive) {
    return this.#answer(() => this.#connection.write(wire.declareExchange(this.#number, name, type, args, isPassive)))
  }

  declareQueue (name, args, isPassive) {
    return this.#answer(() => this.#connection.write(wire.declareQueue(this.#number, name, args, isPassive)))
  }

  #answer (send) {
    return new Promise((resolve, reject) => {
      if (!this.isOpen) throw new ChannelClosedError('the channel was closed')
      this.#calls.push({ resolve, reject })
      send()
    })
  }

  send (name, args) {
    this.#connection._sendMethod(this.#number, methods[name], args)
  }

  publish (message, frameMax) {
    this.#connection.write(wire.frames(this.#number, message, frameMax))
  }

  lost (reason) {
    if (!this.isOpen) return
    this.isOpen = false
    if (this.#connection.channels[this.#number] === this) delete this.#connection.channels[this.#number]
    for (const { reject } of this.#calls.splice(0)) reject(reason)
    this.emit('closed', reason)
  }

  reconnect () {} // lost() took it away before

  _onChannelMethod (number, { name }, args) {
    if (name === 'channelClose') {
      this.send('channelCloseOk', {})
      this.lost(Object.assign(new Error(args.replyText), { code: args.replyCode }))
    } else if (name === 'channelCloseOk') {
      this.lost(new ChannelClosedError('the channel was closed'))
    } else if (name === 'basicReturn' || name === 'basicGetOk') {
      this.#incoming = { name, args, chunks: [] }
    } else if (REPLIES.has(name)) {
      this.#calls.shift()?.resolve(args)
    } else {
      this.emit(name, args)
    }
  }

  _onContentHeader (number, classInfo, weight, properties, size) {
    this.#incoming.left = size
    this.#arrived()
  }

  _onContent (number, data) {
    this.#incoming.chunks.push(data)
    this.#incoming.left -= data.length
    this.#arrived()
  }

  #arrived () {
    const { name, args, chunks, left } = this.#incoming
    if (left) return
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
  #line
  #channel

  constructor (line, channel) {
    this.#line = line
    this.#channel = channel
  }

  get isOpen () {
    return this.#channel.isOpen
  }

  publish (message) {
    if (!this.isOpen || !this.#line.isOpen) return false
    this.#channel.publish(message, this.#line.frameMax)
    return true
  }
}

class DeclaringChannel {
  #line
  #channel

  constructor (line, channel) {
    this.#line = line
    this.#channel = channel
  }

  async take ({ declaration, passive }) {
    try {
      await this.#declare(declaration, passive)
    } catch (error) {
      const isLost = !this.#line.isOpen && error.code !== COMMAND_INVALID
      if (error.code && !isLost) return { code: error.code, text: error.message }
      throw new ConnectionFailedError(`the connection was lost: ${error.message}`, { cause: error })
    }
  }

  #declare ({ what, name, type, source, routingKey, arguments: args = {} }, passive) {
    const channel = this.#channel
    if (what === 'binding') {
      const to = type === 'exchange' ? { destination: name, source } : { queue: name, exchange: source }
      const method = type === 'exchange' ? 'exchangeBind' : 'queueBind'
      return channel.call(method, { reserved1: 0, ...to, routingKey, noWait: false, arguments: {} })
    }
    return what === 'exchange'
      ? channel.declareExchange(name, type, args, passive)
      : channel.declareQueue(name, args, passive)
  }

  /** A message, and how many were left behind it; undefined where there is none; or the broker's refusal. */
  async get (queue) {
    try {
      const got = await this.#channel.call('basicGet', { reserved1: 0, queue, noAck: false })
      return got.payload && { ...got, channel: this.#channel, left: got.args.messageCount }
    } catch (error) {
      if (error.code) return { refusal: { code: error.code, text: error.message } }
      throw new ConnectionFailedError(`the channel was closed: ${error.message}`, { cause: error })
    }
  }

  close () {
    return this.#channel.close()
  }
}

/** A delivery to settle, on the channel and on the connection that it came by and on no other. */
class Original {
  constructor (line, decoded) {
    this.line = line
    this.decoded = decoded
  }

  settle (action) {
    if (!this.isHere) return // the broker delivers it again
    try {
      this.send(action)
    } catch (error) {
      debug('a delivery is not settled: %s', error.message)
    }
  }

  properties (plan) {
    return wire.encode(plan, this.decoded)
  }
}

/** Of a queue that the application subscribes to. */
class Subscribed extends Original {
  constructor (line, decoded, incoming) {
    super(line, decoded)
    this.incoming = incoming
  }

  get isCounted () {
    return this.decoded.entries.some(({ name }) => name === DELIVERY_COUNT)
  }

  /** What stands for the channel. */
  get channel () {
    return this.incoming.queue
  }

  get tag () {
    return numberOf(this.incoming.deliveryTag)
  }

  get isHere () {
    const { queue } = this.incoming
    return this.line.isOpen && queue.connection.parser === this.line.parser && queue.state === 'open'
  }

  /** node-amqp has no nack; for a delivery that does not go back to its queue, reject is the same. */
  send (action) {
    switch (action) {
      case 'ack': return this.incoming.acknowledge()
      case 'reject': return this.incoming.reject(false)
      case 'return':
      case 'back': return this.incoming.reject(true)
    }
  }
}

/** Of a get on a channel of ours: parked, to be replayed. */
class Got extends Original {
  constructor (line, decoded, channel, deliveryTag) {
    super(line, decoded)
    this.channel = channel
    this.deliveryTag = deliveryTag
  }

  get tag () {
    return numberOf(this.deliveryTag)
  }

  get isHere () {
    return this.channel.isOpen
  }

  send (action) {
    const { channel, deliveryTag } = this
    if (action === 'ack') channel.send('basicAck', { deliveryTag, multiple: false })
    else channel.send('basicReject', { deliveryTag, requeue: true })
  }
}

class Message extends BaseMessage {
  constructor (original, history, content, options, { incoming, payload, deliveryInfo } = {}) {
    super(content, history, options)
    this[ORIGINAL] = original
    this.incoming = incoming
    this.payload = payload
    this.deliveryInfo = deliveryInfo
  }
}

class Retrier extends BaseRetrier {
  #connection
  #tap
  #own = new WeakMap() // the last consumer tag by queue, of what is known to be its own

  constructor (connection, options) {
    super(options)
    this.#tap = tapOf(connection)
    this.#tap.follow(line => this._attend(line))
    this.#connection = connection
  }

  async _line (given = this.#connection) {
    const connection = this.#connection
    if (given !== connection) throw new ArgumentError('the retrier has its connection: give declare no other')
    while (!this.#tap.line?.isOpen || !connection.readyEmitted) {
      const { connectionAttemptScheduled: isScheduled, implOptions, socket } = connection
      // Without reconnect, node-amqp schedules nothing and says so all the same.
      const isComing = socket.connecting || (isScheduled ? implOptions.reconnect : !this.#tap.line)
      if (!isComing && !this.#tap.line?.isOpen) throw new ConnectionFailedError('the connection is closed')
      await once(connection, 'ready').catch(error => {
        throw new ConnectionFailedError(`there is no connection: ${error?.message ?? error}`, { cause: error })
      })
    }
    return this.#tap.line
  }

  wrap (handle) {
    handler(handle, 'wrap')
    return (payload, headers, deliveryInfo, incoming) => this._handle(
      () => this.#read(incoming, { payload, deliveryInfo, signal: this._signal }),
      message => handle(payload, headers, deliveryInfo, message)
    )
  }

  /** A listener for the queue of `consume`. */
  _taking (signal, handle) {
    return (payload, headers, deliveryInfo, incoming) => {
      this._handle(() => this.#read(incoming, { payload, deliveryInfo, signal }), handle)
    }
  }

  _consumer (handle, prefetch) {
    return new Consumer(this, this.#connection, handle, prefetch)
  }

  read (incoming) {
    const message = this.#read(incoming, {})
    this._begins(message)
    return message
  }

  #read (incoming, { payload: read, deliveryInfo, signal }) {
    const arrival = incoming?.[ARRIVAL]
    if (!arrival) {
      throw new ArgumentError(
        'this is no message of the retrier\'s connection: give the fourth argument of a subscribed listener'
      )
    }
    this.#refuseForeign(incoming)
    const { line, payload, chunks } = arrival
    const decoded = wire.decode(payload)
    const { exchange, routingKey, redelivered } = incoming
    const original = new Subscribed(line, decoded, incoming)
    const own = { incoming, payload: read, deliveryInfo }
    return this.#message(original, { exchange, routingKey }, chunks, { redelivered, signal }, own)
  }

  /** A delivery that it must not settle: of another queue, or one that the broker forgot as it sent it. */
  #refuseForeign ({ queue, consumerTag }) {
    if (this.#own.get(queue) === consumerTag) return
    const foreign = this._diagnosis('check_queue', queue.name)
    if (foreign) throw foreign
    if (queue.consumerTagOptions[consumerTag]?.noAck) throw this._diagnosis('refuse_no_ack', '{ ack: true }')
    this.#own.set(queue, consumerTag)
  }

  #message (original, { exchange, routingKey }, chunks, options, own) {
    const { line, decoded: { properties, entries } } = original
    const headers = Object.fromEntries(wire.pairsOf(entries))
    const history = this._read(line, { exchange, routingKey, properties, headers })
    const content = chunks.length === 1 ? chunks[0] : Buffer.concat(chunks)
    return new Message(original, history, content, { ...options, topology: this.topology }, own)
  }

  _parked ({ args, payload, chunks, channel }, line) {
    const original = new Got(line, wire.decode(payload), channel, args.deliveryTag)
    return this.#message(original, args, chunks, { redelivered: args.redelivered })
  }

  async _flush () {} // node-amqp writes in order, and closes in order
}

/** On a queue of its own among node-amqp's, which itself subscribes again where it connects again. */
class Consumer extends BaseConsumer {
  #retrier
  #connection
  #handle
  #prefetch
  #queue
  #tag

  constructor (retrier, connection, handle, prefetch) {
    super(retrier)
    this.#retrier = retrier
    this.#connection = connection
    this.#handle = handle
    this.#prefetch = prefetch
    connection.on('tag.change', ({ oldConsumerTag, consumerTag }) => {
      if (this.#tag === oldConsumerTag) this.#tag = consumerTag
    })
  }

  get isLost () {
    return undefined // node-amqp connects again, or the application makes it
  }

  async _subscribe () {
    const { queue: name } = this.#retrier.topology
    await new Promise((resolve, reject) => {
      const options = { passive: true, autoDelete: false, closeChannelOnUnsubscribe: false }
      const queue = this.#connection.queue(name, options, () => {
        const listener = this.#retrier._taking(this.signal, this.#handle)
        queue.subscribe({ ack: true, prefetchCount: this.#prefetch }, listener).addCallback(({ consumerTag }) => {
          this.#queue = queue
          this.#tag = consumerTag
          resolve()
        })
      })
      if (!queue) {
        reject(new ConnectionFailedError('node-amqp has no channel for the consumer'))
        return
      }
      let why = '' // none where the broker cancels it
      queue.on('error', error => {
        why = error.message
        reject(this.#retrier._consumerRefused({ code: error.code, text: error.message }, error))
      })
      queue.on('close', () => {
        if (queue !== this.#queue) return
        this.#queue = undefined
        this._ended(why)
      })
    })
  }

  async _unsubscribe () {
    const queue = this.#queue
    if (queue?.state !== 'open') return
    await new Promise(resolve => {
      queue.once('close', resolve)
      queue.unsubscribe(this.#tag).addCallback(resolve)
    })
  }
}

module.exports = { Message, Retrier }
