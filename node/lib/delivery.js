'use strict'
// Delivery: what arrived.

const { inspect } = require('node:util')

const c = require('./core')
const { check, made } = require('./errors')
const { NATIVE } = require('./native')
const { numberOf, numbers, only, refuse } = require('./checks')
const { TYPE_NAMES, pullHeaders, pushHeaders, secondsOf, shortText, unsigned } = require('./headers')

const camel = name => name.replace(/-./g, part => part[1].toUpperCase())
const PROPERTIES = Object.fromEntries(
  Object.entries(numbers('BH_PROPERTY_', 'HEADERS')).map(([name, number]) => [camel(name), number])
)
const HEADERS = c.BH_PROPERTY_HEADERS
const NUMBERS = new Set(['deliveryMode', 'priority', 'timestamp'])
const ENTRIES = Object.entries(PROPERTIES).map(([name, number]) => ({ name, number, isNumber: NUMBERS.has(name) }))
const OPTIONS = ['exchange', 'routingKey', 'properties', 'headers']
const INTEGERS = new Set(['int8', 'uint8', 'int16', 'uint16', 'int32', 'uint32', 'int64', 'timestamp'])

class Delivery {
  #native
  #fill

  /** With `fill`, the core's object is made on first access, and `fill` fills it. */
  constructor (options = {}, fill) {
    this.#fill = fill ?? (native => fillDelivery(native, only(options, OPTIONS, 'a Delivery')))
    if (!fill) this.#make()
  }

  get [NATIVE] () {
    return this.#native ?? this.#make()
  }

  #make () {
    const native = made(c.bh_delivery_new())
    this.#fill(native)
    this.#fill = undefined
    return (this.#native = native)
  }

  get exchange () {
    return this[NATIVE].exchange()
  }

  get routingKey () {
    return this[NATIVE].routing_key()
  }

  get properties () {
    const native = this[NATIVE]
    const there = ENTRIES.filter(({ number }) => native.has_property(number))
    const value = ({ number, isNumber }) => isNumber ? native.number(number) : native.property(number)
    return Object.fromEntries(there.map(entry => [entry.name, value(entry)]))
  }

  property (name) {
    const native = this[NATIVE]
    const number = Object.hasOwn(PROPERTIES, name) ? PROPERTIES[name] : numberOf(PROPERTIES, name, 'a property')
    if (!native.has_property(number)) return undefined
    return NUMBERS.has(name) ? native.number(number) : native.property(number)
  }

  get hasHeaders () {
    return Boolean(this[NATIVE].has_property(HEADERS))
  }

  get headers () {
    return pullHeaders(this[NATIVE])
  }

  headerType (name) {
    return TYPE_NAMES.get(this[NATIVE].header(name)[0])
  }

  header (name) {
    const [tag, , string, integer] = this[NATIVE].header(name)
    const type = TYPE_NAMES.get(tag)
    if (type === 'string') return string
    if (type === 'bytes') return Buffer.from(string)
    if (type === 'boolean') return Boolean(integer)
    if (type === 'uint64') return unsigned(integer)
    return INTEGERS.has(type) ? integer : undefined
  }

  get isTruncated () {
    return Boolean(this[NATIVE].is_truncated())
  }

  get headerBytes () {
    return this[NATIVE].header_bytes()
  }

  [inspect.custom] (depth, options) {
    const { exchange, routingKey, headerBytes } = this
    return `Delivery ${inspect({ exchange, routingKey, headerBytes }, options)}`
  }
}

/** Fills a delivery of the core, and replaces its content. */
function fillDelivery (native, { exchange, routingKey, properties, headers = properties?.headers }) {
  check(native.begin(shortText(exchange || ''), shortText(routingKey || '')))
  if (properties) setProperties(native, properties)
  if (headers) pushHeaders(native, headers)
}

function setProperties (native, properties) {
  for (const { name, number, isNumber } of ENTRIES) {
    const value = properties[name]
    if (value === undefined || value === null) continue
    if (isNumber) check(native.set_number(number, numberIn(name, value)))
    else check(native.set_property(number, textIn(name, value)))
  }
}

/**
 * Returns a copy of a client's properties with other headers. A spread would cost more than the
 * rest of the copy.
 */
function propertiesOf ({
  contentType, contentEncoding, deliveryMode, priority, correlationId, replyTo, expiration, messageId, timestamp, type,
  userId, appId, clusterId
}, headers) {
  return {
    contentType,
    contentEncoding,
    headers,
    deliveryMode,
    priority,
    correlationId,
    replyTo,
    expiration,
    messageId,
    timestamp,
    type,
    userId,
    appId,
    clusterId
  }
}

/**
 * Returns a property that is a number. Clients give timestamps as seconds or as dates, and accept
 * strings for numbers.
 */
function numberIn (name, value) {
  if (value instanceof Date) return secondsOf(value)
  const number = typeof value === 'bigint' ? value : Number(value)
  if (Number.isNaN(number)) refuse(`the property ${name}`, value, 'a number')
  return number
}

function textIn (name, value) {
  if (typeof value === 'string') return shortText(value)
  if (value instanceof Uint8Array) return value
  if (typeof value === 'number' || typeof value === 'bigint') return String(value)
  return refuse(`the property ${name}`, value, 'a string')
}

module.exports = { Delivery, PROPERTIES, fillDelivery, propertiesOf }
