'use strict'
// Values from clients, in their own shapes.

const assert = require('node:assert/strict')
const { test } = require('node:test')

const { ArgumentError, Delivery, History, Plan, Topology } = require('backhop')

const types = headers => {
  const delivery = new Delivery({ headers })
  return Object.fromEntries(Object.keys(headers).map(name => [name, delivery.headerType(name)]))
}

test('values are pushed with the widest type that holds them', () => {
  assert.deepEqual(types({
    text: 'x', raw: Buffer.from('x'), view: new Uint8Array(1), yes: true, one: 1, big: 2 ** 40, fraction: 0.5, nan: NaN,
    infinite: Infinity, huge: 1e300, date: new Date(), nothing: null, missing: undefined, table: { a: 1 },
    map: new Map(), array: [1, undefined], wide: 2n ** 62n, unsigned: 2n ** 63n, vast: 2n ** 70n
  }), {
    text: 'string', raw: 'bytes', view: 'bytes', yes: 'boolean', one: 'int64', big: 'int64', fraction: 'double',
    nan: 'double', infinite: 'double', huge: 'double', date: 'timestamp', nothing: 'void', missing: undefined,
    table: 'table', map: 'table', array: 'array', wide: 'int64', unsigned: 'uint64', vast: 'double'
  })
})

test('tagged values are what they say, by the names of amqplib and of the core', () => {
  const tagged = (type, value) => ({ '!': type, value })
  assert.deepEqual(types({
    a: tagged('timestamp', 1700000000), b: tagged('decimal', { places: 2, digits: 314 }), c: tagged('byte', -1),
    d: tagged('unsignedbyte', 255), e: tagged('short', 1), f: tagged('unsignedshort', 1), g: tagged('int', 1),
    h: tagged('unsignedint', 1), i: tagged('long', 1), j: tagged('float', 0.5), k: tagged('float64', 0.5),
    l: tagged('double', 1), m: tagged('object', { '!': 'int8' }), n: tagged('uint64', 2n ** 64n - 1n),
    o: tagged('string', Buffer.from([0xff]))
  }), {
    a: 'timestamp', b: 'decimal', c: 'int8', d: 'uint8', e: 'int16', f: 'uint16', g: 'int32', h: 'uint32', i: 'int64',
    j: 'float', k: 'double', l: 'double', m: 'table', n: 'uint64', o: 'string'
  })
})

const SPOOFS = [
  { '!': 'timestamp', value: 'soon' }, { '!': 'timestamp' }, { '!': 'no-type', value: 1 }, { '!': 5, value: 1 },
  { '!': 'toString' }, { '!': 'decimal', value: { places: -1, digits: 1 } }, { '!': 'decimal', value: null },
  { '!': 'int8', value: 1.5 }, { '!': 'array', value: {} }, { '!': 'object', value: null },
  { '!': '__proto__', value: 1 }, { '!': 'long', value: 1e30 }
]

for (const spoof of SPOOFS) {
  test(`a stranger's table that looks like a tagged value is a table: ${JSON.stringify(spoof)}`, () => {
    assert.equal(types({ spoof }).spoof, 'table')
    const topology = new Topology({ queue: 'orders' })
    const plan = new Plan(new History(new Delivery({ headers: { spoof } }), { topology }), topology)
    assert.deepEqual(plan.copyHeaders({ spoof }).spoof, { '!': 'object', value: spoof })
  })
}

test('a header named __proto__ is a header', () => {
  const headers = JSON.parse('{"__proto__": {"backhop-attempts": 7}, "a": 1}')
  const delivery = new Delivery({ headers })
  assert.equal(delivery.headerType('__proto__'), 'table')
  assert.ok(Object.hasOwn(delivery.headers, '__proto__'))
  const topology = new Topology({ queue: 'orders' })
  const copy = new Plan(new History(delivery, { topology }), topology).copyHeaders(headers)
  assert.ok(Object.hasOwn(copy, '__proto__'))
  assert.equal(Object.getPrototypeOf(copy), Object.prototype)
})

test('what a client made of bytes that were no UTF-8, and is too long by that, is cut', () => {
  const long = '\ufffd'.repeat(100)
  const headers = { [long]: 1, [`${long}x`]: 2 }
  const delivery = new Delivery({ exchange: long, properties: { messageId: long }, headers })
  assert.equal(delivery.exchange, '\ufffd'.repeat(85))
  assert.equal(delivery.properties.messageId, '\ufffd'.repeat(85))
  assert.deepEqual(delivery.headers, { ['\ufffd'.repeat(85)]: 1 })
  assert.throws(() => new Delivery({ exchange: 'x'.repeat(256) }), ArgumentError)
})

test('headers of any depth do no harm', () => {
  let deep = {}
  for (let i = 0; i < 100_000; i++) deep = { n: deep }
  assert.ok(new Delivery({ headers: { deep } }).isTruncated)
})

test('properties are taken as clients give them', () => {
  const delivery = new Delivery({
    properties: { // amqplib's, with missing ones as undefined
      contentType: 'text/plain', contentEncoding: undefined, headers: { a: 1 }, deliveryMode: 2, priority: '5',
      expiration: 100,
      messageId: 42, timestamp: new Date(1_700_000_000_000), clusterId: null
    }
  })
  assert.deepEqual(delivery.properties, {
    contentType: 'text/plain', deliveryMode: 2, priority: 5, expiration: '100', messageId: '42',
    timestamp: 1_700_000_000
  })
  assert.equal(delivery.header('a'), 1)
})

test('a property or a header of a type that AMQP lacks is refused by name', () => {
  assert.throws(() => new Delivery({ properties: { messageId: {} } }), /property messageId/)
  assert.throws(() => new Delivery({ properties: { priority: 'high' } }), /property priority/)
  assert.throws(() => new Delivery({ headers: { f () {} } }), /header f holds a function/)
})

test('integers that no number holds exactly are bigints', () => {
  const { headers } = new Delivery({ headers: { a: 2n ** 60n + 1n, b: -(2n ** 63n), c: 2n ** 64n - 1n, d: 5n } })
  assert.deepEqual(headers, { a: 2n ** 60n + 1n, b: -(2n ** 63n), c: 2n ** 64n - 1n, d: 5 })
})
