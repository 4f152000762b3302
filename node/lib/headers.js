'use strict'
// Headers: converts values of AMQP clients to the core's, and back.
//
// A client decodes a header into a JavaScript value, which does not show its AMQP type:
//
//   JavaScript                      is pushed as
//   string                          string
//   Buffer, Uint8Array              bytes
//   boolean                         boolean
//   number, bigint                  int64, above it uint64: the widest types, as the core
//                                   computes the size of a copy; double for fractions, NaN,
//                                   Infinity and integers above uint64
//   Date                            timestamp
//   null                            void
//   undefined                       nothing: clients leave it out
//   object, Map; array              table; array
//   { '!': type, value }            its type, by the core's names or amqplib's
//
// Headers are untrusted: a table may look like a tagged value. If its type is unknown or its value
// does not fit, it is pushed as a table.

const { ArgumentError, check } = require('./errors')
const { namesOf, numbers } = require('./checks')

const MOST_SHORT_BYTES = 255

const TYPES = numbers('BH_TYPE_')
const TYPE_NAMES = namesOf(TYPES)
const AMQPLIB_NAMES = {
  byte: 'int8',
  unsignedbyte: 'uint8',
  short: 'int16',
  unsignedshort: 'uint16',
  int: 'int32',
  unsignedint: 'uint32',
  long: 'int64',
  float64: 'double',
  object: 'table'
}

const { boolean: BOOLEAN, int64: INT64, uint64: UINT64, double: DOUBLE } = TYPES
const { string: STRING, bytes: BYTES, timestamp: TIMESTAMP } = TYPES
const LOWEST = -(2n ** 63n)
const ABOVE = 2n ** 63n
// Lowest value, and the first value above.
const RANGES = {
  int8: [-(2n ** 7n), 2n ** 7n],
  uint8: [0n, 2n ** 8n],
  int16: [-(2n ** 15n), 2n ** 15n],
  uint16: [0n, 2n ** 16n],
  int32: [-(2n ** 31n), 2n ** 31n],
  uint32: [0n, 2n ** 32n],
  int64: [LOWEST, ABOVE],
  uint64: [0n, 2n * ABOVE],
  timestamp: [LOWEST, 2n * ABOVE]
}
const UNWRITABLE = new Set(['void', 'bytes', 'uint64']) // as tags, by amqplib

/** Pushes headers of any depth: an object, a Map, or pairs of name and value. */
function pushHeaders (delivery, headers) {
  const outer = []
  let entries = entriesOf(headers)
  for (;;) {
    const next = entries.next()
    if (next.done) {
      if (!outer.length) return
      check(delivery.end())
      entries = outer.pop()
      continue
    }
    const name = shortText(next.value[0])
    const inner = push(delivery, name, next.value[1])
    if (inner) {
      outer.push(entries)
      entries = inner
    }
  }
}

/** Pushes a value. For a table or an array, returns an iterator over the entries to push. */
function push (delivery, name, value) {
  switch (typeof value) {
    case 'string': return check(delivery.push_string(name, STRING, value))
    case 'number': return check(pushNumber(delivery, name, value))
    case 'boolean': return check(delivery.push_int(name, BOOLEAN, Number(value)))
    case 'bigint': return check(pushBigInt(delivery, name, value))
    case 'undefined': return
    case 'object': return pushObject(delivery, name, value)
  }
  throw new ArgumentError(`header ${name} holds a ${typeof value}, for which AMQP has no type`)
}

function pushNumber (delivery, name, value) {
  if (Number.isInteger(value) && value >= -(2 ** 63) && value < 2 ** 63) return delivery.push_int(name, INT64, value)
  return delivery.push_float(name, DOUBLE, value)
}

function pushBigInt (delivery, name, value) {
  if (value >= LOWEST && value < ABOVE) return delivery.push_int(name, INT64, value)
  if (value >= ABOVE && value < 2n * ABOVE) return delivery.push_int(name, UINT64, BigInt.asIntN(64, value))
  return delivery.push_float(name, DOUBLE, Number(value))
}

function pushObject (delivery, name, value) {
  if (value === null) return check(delivery.push_void(name))
  if (Array.isArray(value)) return begin(delivery.begin_array(name), elementsOf(value))
  if (value instanceof Uint8Array) return check(delivery.push_string(name, BYTES, value))
  if (value instanceof Date) return check(delivery.push_int(name, TIMESTAMP, secondsOf(value)))
  const type = typeOf(value)
  if (!type) return begin(delivery.begin_table(name), entriesOf(value))
  if (type === 'table') return begin(delivery.begin_table(name), entriesOf(value.value))
  if (type === 'array') return begin(delivery.begin_array(name), elementsOf(value.value))
  check(pushTagged(delivery, name, type, value.value))
}

function begin (status, entries) {
  check(status)
  return entries
}

function pushTagged (delivery, name, type, value) {
  switch (type) {
    case 'string':
    case 'bytes': return delivery.push_string(name, TYPES[type], value)
    case 'float':
    case 'double': return delivery.push_float(name, TYPES[type], value)
    case 'decimal': return delivery.push_decimal(name, value.places, value.digits)
    case 'void': return delivery.push_void(name)
  }
  const isWide = typeof value === 'bigint' || value >= 2 ** 63
  return delivery.push_int(name, TYPES[type], isWide ? BigInt.asIntN(64, BigInt(value)) : Number(value))
}

/**
 * Returns the type of a tagged value; undefined if the value does not fit the type, or for any
 * other object.
 */
function typeOf (value) {
  if (!Object.hasOwn(value, '!') || typeof value['!'] !== 'string') return undefined
  const tag = value['!']
  const type = Object.hasOwn(AMQPLIB_NAMES, tag) ? AMQPLIB_NAMES[tag] : tag
  return Object.hasOwn(TYPES, type) && isOf(type, value.value) ? type : undefined
}

function isOf (type, value) {
  switch (type) {
    case 'void': return true
    case 'boolean': return typeof value === 'boolean'
    case 'string':
    case 'bytes': return typeof value === 'string' || value instanceof Uint8Array
    case 'float':
    case 'double': return typeof value === 'number'
    case 'array': return Array.isArray(value)
    case 'table': return typeof value === 'object' && value !== null
    case 'decimal': return isDecimal(value)
  }
  return isIn(RANGES[type], value)
}

function isDecimal (value) {
  return typeof value === 'object' && value !== null && isIn(RANGES.uint8, value.places) &&
    isIn(RANGES.int64, value.digits)
}

function isIn ([from, to], value) {
  return (typeof value === 'bigint' || Number.isInteger(value)) && value >= from && value < to
}

function entriesOf (headers) {
  if (headers instanceof Map) return headers.entries()
  if (Array.isArray(headers)) return headers[Symbol.iterator]()
  return Object.entries(headers)[Symbol.iterator]()
}

function * elementsOf (values) {
  for (const value of values) yield ['', value === undefined ? null : value]
}

/**
 * Returns headers of any depth in amqplib's shape. If several headers have one name, the first one
 * counts.
 */
function pullHeaders (delivery) {
  const count = delivery.value_count()
  const headers = {}
  const outer = [{ inside: headers, end: count }]
  for (let i = 0; i < count; i++) {
    while (i === outer.at(-1).end) outer.pop()
    const [tag, name, string, integer, number, places, end] = delivery.value(i)
    const type = TYPE_NAMES.get(tag)
    const value = type === 'table' ? {} : type === 'array' ? [] : pullValue(type, string, integer, number, places)
    const { inside } = outer.at(-1)
    if (Array.isArray(inside)) inside.push(value)
    else add(inside, name, value)
    if (type === 'table' || type === 'array') outer.push({ inside: value, end })
  }
  return headers
}

/** Adds an own property, also __proto__. A name that is not UTF-8 is read as Latin-1. */
function add (table, name, value) {
  const key = typeof name === 'string' ? name : name.toString('latin1')
  if (Object.hasOwn(table, key)) return
  Object.defineProperty(table, key, { value, configurable: true, enumerable: true, writable: true })
}

function pullValue (type, string, integer, number, places) {
  switch (type) {
    case 'string': return string
    case 'bytes': return Buffer.from(string)
    case 'void': return null
    case 'float':
    case 'double': return number
    case 'boolean': return Boolean(integer)
    case 'uint64': return unsigned(integer)
    case 'decimal': return { '!': type, value: { places, digits: integer } }
    case 'timestamp': return { '!': type, value: integer }
  }
  return integer
}

/** Returns the unsigned number of the same 64 bits. */
function unsigned (value) {
  return value < 0 ? BigInt.asUintN(64, BigInt(value)) : value
}

/** Returns seconds since the epoch; 0 for an invalid Date. */
function secondsOf (date) {
  return Math.trunc(date.getTime() / 1000) || 0
}

/**
 * Returns a name or a property of at most 255 bytes. A client replaces bytes that are not UTF-8 by
 * U+FFFD, which has three bytes: such a text is cut.
 */
function shortText (text) {
  if (typeof text !== 'string' || text.length * 3 <= MOST_SHORT_BYTES || !text.includes('\ufffd')) return text
  const bytes = Buffer.from(text)
  let end = MOST_SHORT_BYTES
  while (end > 0 && (bytes[end] & 0xc0) === 0x80) end-- // at the border of a character
  return bytes.length > MOST_SHORT_BYTES ? bytes.toString('utf8', 0, end) : text
}

/**
 * Returns a header's value in a form that amqplib can write. Two kinds of table are marked as
 * tables, in amqplib's notation. One is a table that looks like a tagged value. The other has a key
 * hasOwnProperty, which amqplib before 1.0 calls.
 */
function wireValue (value) {
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array || value instanceof Date) return value
  if (Array.isArray(value)) return value.map(wireValue)
  if (isWritable(value)) return value
  const table = Object.fromEntries(Array.from(entriesOf(value), ([name, inner]) => [shortText(name), wireValue(inner)]))
  return isAmbiguous(table) ? { '!': 'object', value: table } : table
}

function isAmbiguous (table) {
  return Object.hasOwn(table, '!') || Object.hasOwn(table, 'hasOwnProperty')
}

/** Returns whether amqplib can write a value as the tagged value that it is. */
function isWritable (value) {
  const type = value instanceof Map ? undefined : typeOf(value)
  switch (type) {
    case undefined:
    case 'table':
    case 'array': return false
    case 'string': return typeof value.value === 'string'
    case 'timestamp': return value.value >= 0
    case 'decimal': return isIn(RANGES.uint32, value.value.digits)
  }
  return !UNWRITABLE.has(type)
}

module.exports = {
  RANGES,
  TYPES,
  TYPE_NAMES,
  isAmbiguous,
  isDecimal,
  isIn,
  pullHeaders,
  pushHeaders,
  secondsOf,
  shortText,
  unsigned,
  wireValue
}
