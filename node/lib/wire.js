'use strict'
// The header frame of a message as it is on the wire: node-amqp can read and write only some of AMQP's types.
//
// A copy keeps the bytes of what it keeps, so that all types come back. What is decoded is what the core asks for;
// tables are lists of entries { name, bytes, value }, where `bytes` are type and value as they are on the wire.

const { ArgumentError } = require('./errors')

const CLASS_BASIC = 60
const EXCHANGE_DECLARE = 40 << 16 | 10
const QUEUE_DECLARE = 50 << 16 | 10
const BASIC_PUBLISH = CLASS_BASIC << 16 | 40
const MANDATORY = 1
const MOST_NAME_BYTES = 255
const PASSIVE = 1
const DURABLE = 2
const FRAME_METHOD = 1
const FRAME_HEADER = 2
const FRAME_BODY = 3
const FRAME_END = 206
const FRAME_OVERHEAD = 8
const MOST_DEPTH = 100 // what is deeper is not read; the core's limit is lower
const FLAG_HEADERS = 1 << 13
// Properties in the order of their flags, from bit 15 downwards, and how many bytes each has; 0: a short string.
const PROPERTIES = [
  ['contentType', 0], ['contentEncoding', 0], ['headers', NaN], ['deliveryMode', 1], ['priority', 1],
  ['correlationId', 0], ['replyTo', 0], ['expiration', 0], ['messageId', 0], ['timestamp', 8],
  ['type', 0], ['userId', 0], ['appId', 0], ['clusterId', 0]
].map(([name, size], i) => ({ name, size, flag: 1 << (15 - i) }))
const LENGTH = Buffer.alloc(4)

/** The strings of AMQP are bytes: a Buffer where they are no UTF-8. */
function textOf (bytes) {
  const text = bytes.toString('utf8')
  return text.includes('\ufffd') && !Buffer.from(text).equals(bytes) ? bytes : text
}

/** The payload of a header frame: properties by name, their bytes by name, and the entries of the headers. */
function decode (payload) {
  const flags = payload.readUInt16BE(12)
  const properties = {}
  const bytes = {}
  let entries = []
  let at = 14
  for (const { name, size, flag } of PROPERTIES) {
    if (!(flags & flag)) continue
    const begin = at
    if (flag === FLAG_HEADERS) {
      const end = at + 4 + payload.readUInt32BE(at)
      entries = entriesOf(payload.subarray(at + 4, end), 0)
      at = end
    } else if (size === 0) {
      at += 1 + payload[at]
      properties[name] = textOf(payload.subarray(begin + 1, at))
    } else {
      at += size
      properties[name] = size === 1 ? payload[begin] : payload.readBigUInt64BE(begin)
    }
    bytes[name] = payload.subarray(begin, at)
  }
  return { properties, bytes, entries }
}

function entriesOf (table, depth) {
  const entries = []
  for (let at = 0; at < table.length;) {
    const begin = at + 1 + table[at]
    const name = textOf(table.subarray(at + 1, begin))
    const [value, end] = valueOf(table, begin, depth)
    entries.push({ name, bytes: table.subarray(begin, end), value })
    at = end
  }
  return entries
}

/** A value as the core is given it, and where it ends. */
function valueOf (bytes, begin, depth) {
  const at = begin + 1
  const tagged = (type, value, size) => [{ '!': type, value }, at + size]
  switch (String.fromCharCode(bytes[begin])) {
    case 't': return [bytes[at] !== 0, at + 1]
    case 'b': return tagged('int8', bytes.readInt8(at), 1)
    case 'B': return tagged('uint8', bytes.readUInt8(at), 1)
    case 's': return tagged('int16', bytes.readInt16BE(at), 2)
    case 'u': return tagged('uint16', bytes.readUInt16BE(at), 2)
    case 'I': return tagged('int32', bytes.readInt32BE(at), 4)
    case 'i': return tagged('uint32', bytes.readUInt32BE(at), 4)
    case 'l':
    case 'L': return tagged('int64', bytes.readBigInt64BE(at), 8)
    case 'f': return tagged('float', bytes.readFloatBE(at), 4)
    case 'd': return tagged('double', bytes.readDoubleBE(at), 8)
    case 'D': return tagged('decimal', { places: bytes[at], digits: bytes.readInt32BE(at + 1) }, 5)
    case 'T': return tagged('timestamp', bytes.readBigUInt64BE(at), 8)
    case 'V': return [null, at]
  }
  const end = at + 4 + bytes.readUInt32BE(at)
  const inner = bytes.subarray(at + 4, end)
  switch (String.fromCharCode(bytes[begin])) {
    case 'S': return [stringOf(inner), end]
    case 'x': return [inner, end]
    case 'A': return [depth < MOST_DEPTH ? elementsOf(inner, depth + 1) : [], end]
    case 'F': return [new Map(depth < MOST_DEPTH ? pairsOf(entriesOf(inner, depth + 1)) : []), end]
  }
  throw new ArgumentError(`a header has the type ${bytes[begin]}, which AMQP does not know`)
}

function pairsOf (entries) {
  return entries.map(({ name, value }) => [name, value])
}

function stringOf (bytes) {
  const text = textOf(bytes)
  return typeof text === 'string' ? text : { '!': 'string', value: text }
}

function elementsOf (array, depth) {
  const values = []
  for (let at = 0; at < array.length;) {
    const [value, end] = valueOf(array, at, depth)
    values.push(value)
    at = end
  }
  return values
}

/** The bytes of the copy's properties, flags first, of an original that was decoded. */
function encode (plan, { bytes, entries }) {
  const kept = new Set(plan.keptProperties)
  const own = { deliveryMode: Buffer.of(2), headers: encodeHeaders(plan, entries) }
  if (plan.expiration) own.expiration = shortString(plan.expiration)
  let flags = 0
  const parts = []
  for (const { name, flag } of PROPERTIES) {
    const part = own[name] ?? (kept.has(name) ? bytes[name] : undefined)
    if (!part) continue
    flags |= flag
    parts.push(part)
  }
  const head = Buffer.alloc(2)
  head.writeUInt16BE(flags)
  return Buffer.concat([head, ...parts])
}

function encodeHeaders (plan, entries) {
  const parts = []
  for (const { name, bytes } of entries) {
    if (plan.keepsHeader(name)) parts.push(shortString(name), bytes)
  }
  for (const [name, { '!': type, value }] of plan.headers) {
    const source = type === 'void' && entries.find(entry => entry.name === value)
    parts.push(shortString(name), source ? source.bytes : encodeValue(type, value))
  }
  return table(parts)
}

function table (parts) {
  const bytes = Buffer.concat([LENGTH, ...parts])
  bytes.writeUInt32BE(bytes.length - 4)
  return bytes
}

/** What the core sets: int64, string, and an array of one string. */
function encodeValue (type, value) {
  if (type === 'int64') {
    const bytes = Buffer.alloc(9)
    bytes.write('l')
    bytes.writeBigInt64BE(BigInt(value), 1)
    return bytes
  }
  return type === 'array' ? long('A', encodeValue('string', value[0])) : long('S', Buffer.from(value))
}

function long (type, content) {
  const head = Buffer.alloc(5)
  head.write(type)
  head.writeUInt32BE(content.length, 1)
  return Buffer.concat([head, content])
}

function shortString (text) {
  const bytes = Buffer.from(text)
  return Buffer.concat([Buffer.of(bytes.length), bytes])
}

/** node-amqp writes integers above 31 bits as doubles, which no queue takes as an argument. */
function declareExchange (channel, name, type, args, isPassive) {
  return declare(channel, EXCHANGE_DECLARE, [shortString(name), shortString(type)], args, isPassive)
}

function declareQueue (channel, name, args, isPassive) {
  return declare(channel, QUEUE_DECLARE, [shortString(name)], args, isPassive)
}

function declare (channel, method, names, args, isPassive) {
  const head = Buffer.alloc(6)
  head.writeUInt32BE(method)
  const entries = Object.entries(args).map(([name, value]) => {
    return [shortString(name), encodeValue(typeof value === 'string' ? 'string' : 'int64', value)]
  })
  const flags = Buffer.of(isPassive ? DURABLE | PASSIVE : DURABLE)
  return Buffer.concat(frame(FRAME_METHOD, channel, head, ...names, flags, table(entries.flat())))
}

/** The frames of a message: encoded properties and content. `room` gives a Buffer of so many bytes to write them to. */
function frames (channel, message, frameMax, room = Buffer.allocUnsafe) {
  const { exchange, routingKey, mandatory, properties, content } = message
  if (!(content instanceof Uint8Array)) throw new TypeError(`the body is no Buffer, but ${typeof content}`)
  const exchangeSize = Buffer.byteLength(exchange)
  const keySize = Buffer.byteLength(routingKey)
  if (Math.max(exchangeSize, keySize) > MOST_NAME_BYTES) {
    throw new RangeError(`the exchange or the routing key has more than ${MOST_NAME_BYTES} bytes`)
  }
  const most = frameMax - FRAME_OVERHEAD
  const methodSize = 4 + 2 + 1 + exchangeSize + 1 + keySize + 1
  const count = 2 + Math.ceil(content.length / most)
  const to = room(methodSize + 12 + properties.length + content.length + count * FRAME_OVERHEAD)

  let at = begin(to, 0, FRAME_METHOD, channel, methodSize)
  at = to.writeUInt32BE(BASIC_PUBLISH, at)
  at = to.writeUInt16BE(0, at)
  at = put(to, exchange, to.writeUInt8(exchangeSize, at))
  at = put(to, routingKey, to.writeUInt8(keySize, at))
  at = to.writeUInt8(mandatory ? MANDATORY : 0, at)
  at = to.writeUInt8(FRAME_END, at)

  at = begin(to, at, FRAME_HEADER, channel, 12 + properties.length)
  at = to.writeUInt32BE(CLASS_BASIC << 16, at)
  at = to.writeUInt32BE(0, at) // the size's upper half
  at = to.writeUInt32BE(content.length, at)
  at = to.writeUInt8(FRAME_END, put(to, properties, at))

  for (let from = 0; from < content.length; from += most) {
    const part = content.length > most ? content.subarray(from, from + most) : content
    at = to.writeUInt8(FRAME_END, put(to, part, begin(to, at, FRAME_BODY, channel, part.length)))
  }
  return to
}

function begin (to, at, type, channel, size) {
  return to.writeUInt32BE(size, to.writeUInt16BE(channel, to.writeUInt8(type, at)))
}

function put (to, content, at) {
  if (typeof content === 'string') return at + to.write(content, at)
  to.set(content, at)
  return at + content.length
}

function frame (type, channel, ...payload) {
  const head = Buffer.alloc(7)
  head[0] = type
  head.writeUInt16BE(channel, 1)
  head.writeUInt32BE(payload.reduce((length, part) => length + part.length, 0), 3)
  return [head, ...payload, Buffer.of(FRAME_END)]
}

module.exports = { declareExchange, declareQueue, decode, encode, frames, pairsOf }
