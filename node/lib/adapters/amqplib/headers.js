'use strict'
// Headers as amqplib decodes them. They are untrusted input.

const { RANGES, isAmbiguous, isDecimal, isIn } = require('../../headers')

const MOST_DEPTH = 90 // levels; the core's limit is lower
const LATEST = 2 ** 64 - 2048 // seconds: the greatest number that amqplib can write as a timestamp

/**
 * Returns a copy of decoded headers that amqplib can write again.
 *
 * amqplib makes tagged values of timestamps and decimals alone. Any other table that looks like a
 * tagged value becomes a Map. Tables and arrays below level 90 become empty. A number below -2^63
 * is tagged as a double: amqplib would write an integer.
 */
function decodedHeaders (headers, depth = 0) {
  const copy = { ...headers }
  for (const name of Object.keys(copy)) {
    const value = copy[name]
    if (typeof value === 'string') continue
    const decoded = decodedValue(value, depth + 1)
    if (decoded !== value) copy[name] = decoded
  }
  return copy
}

function decodedValue (value, depth) {
  if (typeof value === 'number') return value >= -(2 ** 63) ? value : { '!': 'double', value }
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return value
  if (Array.isArray(value)) return depth < MOST_DEPTH ? value.map(inner => decodedValue(inner, depth + 1)) : []
  if (isDecodedTag(value)) return value.value > LATEST ? { '!': 'timestamp', value: LATEST } : value
  const table = depth < MOST_DEPTH ? decodedHeaders(value, depth) : {}
  return isAmbiguous(table) ? new Map(Object.entries(table)) : table
}

function isDecodedTag (value) {
  if (!Object.hasOwn(value, '!') || Object.keys(value).length !== 2) return false
  if (value['!'] === 'timestamp') return Number.isInteger(value.value) && value.value >= 0
  return value['!'] === 'decimal' && isDecimal(value.value) && isIn(RANGES.uint32, value.value.digits)
}

module.exports = { decodedHeaders }
