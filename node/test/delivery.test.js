'use strict'

const assert = require('node:assert/strict')
const { test } = require('node:test')

const { ArgumentError, Delivery } = require('backhop')

const vectors = require('./vectors')
const { INTEGERS, is, raw, text, typed } = vectors

function compareProperties (delivery, { headers = false, ...expected }) {
  assert.equal(delivery.hasHeaders, headers)
  assert.deepEqual(delivery.properties, Object.fromEntries(Object.entries(expected).map(([name, content]) => [
    vectors.camel(name), typeof content === 'number' ? content : text(content)
  ])))
}

function compareHeaders (delivery, expected) {
  for (const [name, given] of expected) {
    const [type, content] = typed(given)
    assert.equal(delivery.headerType(raw(name)), type)
    assert.deepEqual(delivery.header(raw(name)), valueOf(type, content))
  }
}

function valueOf (type, content) {
  if (type === 'string') return text(content)
  if (type === 'bytes') return raw(content)
  if (INTEGERS.has(type)) return vectors.integer(content)
  return type === 'boolean' ? content : undefined
}

/** A typed value as the package gives it. */
function native (given) {
  const [type, content] = typed(given)
  switch (type) {
    case 'table': return table(content)
    case 'array': return content.map(native)
    case 'void': return null
    case 'float':
    case 'double': return vectors.fraction(content)
    case 'decimal': return { '!': type, value: { places: content.places, digits: vectors.integer(content.value) } }
    case 'timestamp': return { '!': type, value: vectors.integer(content) }
  }
  return valueOf(type, content)
}

function table (content) {
  const first = [...content].reverse() // of one name, the first
  return Object.fromEntries(first.map(([name, inner]) => {
    const key = text(name)
    return [typeof key === 'string' ? key : key.toString('latin1'), native(inner)]
  }))
}

function compareAbsent (delivery, names) {
  for (const name of names) {
    assert.equal(delivery.headerType(raw(name)), undefined)
    assert.equal(delivery.header(raw(name)), undefined)
  }
}

vectors.cases('delivery', each => {
  vectors.only(each, 'name delivery expect')
  if (vectors.status(each) !== 'BH_OK') {
    vectors.refused(vectors.status(each), () => vectors.delivery(each))
    return
  }
  vectors.delivery(each)
  const delivery = vectors.delivery(each)
  vectors.compare(each.expect, {
    exchange: is(() => delivery.exchange, text),
    routing_key: is(() => delivery.routingKey, text),
    properties: expected => compareProperties(delivery, expected),
    headers: expected => compareHeaders(delivery, expected),
    values: expected => assert.deepEqual(delivery.headers, table(expected)),
    absent: expected => compareAbsent(delivery, expected),
    truncated: is(() => delivery.isTruncated),
    header_bytes: is(() => delivery.headerBytes, vectors.integer)
  })
})

test('a name above 255 bytes is refused', () => {
  assert.throws(() => new Delivery({ headers: { ['n'.repeat(256)]: 1 } }), ArgumentError)
})
