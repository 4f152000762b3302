'use strict'
// Reads the header frame of a message, and writes the properties of its copy.
//
// node-amqp can read and write only some of AMQP's types. A copy keeps the bytes of the headers
// that it keeps, so all types survive. A table is an array of entries `{ name, bytes, value }`:
// `bytes` are type and value as on the wire, `value` is what the core reads.

const { ArgumentError } = require('../../errors')

const MOST_DEPTH = 100 // deeper values are read as empty; the core's limit is lower
const FLAG_HEADERS = 1 << 13
// Properties in the order of their flags, from bit 15 downwards, and how many bytes each has; 0: a
// short string.
const PROPERTIES = [
  ['contentType', 0], ['contentEncoding', 0], ['headers', NaN], ['deliveryMode', 1], ['priority', 1],
  ['correlationId', 0], ['replyTo', 0], ['expiration', 0], ['messageId', 0], ['timestamp', 8],
  ['type', 0], ['userId', 0], ['appId', 0], ['clusterId', 0]
].map(([name, size], i) => ({ name, size, flag: 1 << (15 - i) }))
const LENGTH = Buffer.alloc(4)

/** Returns a string of AMQP; as a Buffer if its bytes are not UTF-8. */
function textOf (bytes) {
  const text = bytes.toString('utf8')
  return text.includes('\ufffd') && !Buffer.from(text).equals(bytes) ? bytes : text
}

/**
 * Reads the payload of a header frame. Returns properties by name, their bytes by name, and the
 * entries of the headers.
 */
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

/** Returns a value in the form that the core reads, and the offset of its end. */
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

/**
 * Returns the bytes of a copy's properties, flags first.
 *
 * The core's bh_plan_copy_properties is not used here. It writes the values that the core has read,
 * at most 32 levels deep; this keeps the bytes of every header.
 */
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

/** Returns a value that the core adds: an int64, a string, or an array of one string. */
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

/** Returns the number of a delivery tag of node-amqp's. */
function numberOf (deliveryTag) {
  return Number(deliveryTag.readBigUInt64BE(0))
}

module.exports = { decode, encode, encodeValue, numberOf, pairsOf, shortString, table }
