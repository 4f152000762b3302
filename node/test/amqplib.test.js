'use strict'
// amqplib's own shapes, by amqplib's own codec: of a message that it reads, and of a copy that it
// writes.

const assert = require('node:assert/strict')
const path = require('node:path')
const { PassThrough } = require('node:stream')
const { describe, it } = require('node:test')

const { Policy, Topology } = require('backhop')
const { Retrier } = require('backhop/amqplib')

const { inside } = require('./internals')

const { Decider } = inside('decider')
const { BACK_OFF } = inside('adapters/publisher')
const { decodedHeaders } = inside('adapters/amqplib/headers')
const { frames } = inside('adapters/frames')

const LIB = path.join(path.dirname(require.resolve('amqplib')), 'lib')
const { BasicProperties, BasicPublish, decode, encodeProperties } = require(path.join(LIB, 'defs'))
const { Connection } = require(path.join(LIB, 'connection'))
const { Channel, ChannelModel } = require(path.join(LIB, 'channel_model'))
const { CallbackModel } = require(path.join(LIB, 'callback_model'))

const HEAD = 7 + 12 // bytes of the frame, the class and the size
const topology = new Topology({ queue: 'work', policy: new Policy({ initial: 100, jitter: 'none' }) })
const decider = new Decider(topology, { clock: () => 1_800_000_000_000 })
const LONG = { integer: value => ({ '!': 'long', value }) }

function encoded (properties) {
  return encodeProperties(BasicProperties, 1, 0, properties).subarray(HEAD, -1)
}

/** Returns properties as amqplib reads them, after it wrote them. */
function wire (properties) {
  return decode(BasicProperties, encoded(properties))
}

function planOf (properties) {
  const headers = properties.headers && decodedHeaders(properties.headers)
  const history = decider.read({ exchange: 'events', routingKey: 'order.created', properties, headers })
  return { history, plan: decider.plan(history, decider.result(new Error('no'))) }
}

/**
 * Returns a failed message's copy as amqplib reads it: the same bytes, whether the core or amqplib
 * writes it.
 */
function copied (properties, isWritten = true) {
  const { history, plan } = planOf(properties)
  const written = plan._encodedProperties()
  if (!isWritten) assert.equal(written, undefined)
  const bytes = encoded(plan.copyProperties(history.given.properties, LONG))
  if (isWritten) assert.deepEqual(written, bytes)
  return decode(BasicProperties, bytes)
}

const table = value => ({ '!': 'object', value }) // amqplib's notation: it is one, whatever it looks like

describe('a copy over amqplib', () => {
  it('keeps headers of every shape', () => {
    const headers = {
      text: 'grün',
      digits: '42',
      number: 7,
      wide: 2 ** 40,
      double: 0.25,
      flag: false,
      nothing: null,
      bytes: Buffer.from([0, 255]),
      moment: { '!': 'timestamp', value: 1_767_225_600 },
      decimal: { '!': 'decimal', value: { places: 2, digits: 125 } },
      list: [1, 'two', { three: null }],
      table: { deep: { deeper: {} } },
      hasOwnProperty: 'x',
      constructor: 'y',
      '': 'no name'
    }
    const { headers: kept } = copied({ headers: wire({ headers }).headers })
    for (const [name, value] of Object.entries(headers)) assert.deepEqual(kept[name], value, name)
  })

  it('has the bytes that amqplib writes', () => {
    const edges = [2 ** 7, 2 ** 8, 2 ** 15, 2 ** 16, 2 ** 31, 2 ** 32, 2 ** 50, 2 ** 53, 2 ** 63, 2 ** 64]
    const near = edges.flatMap(edge => [edge - 1, edge, edge + 1, 1 - edge, -edge, -edge - 1])
    const numbers = [0, -0, 0.5, -0.5, 1e-300, 1e300, 2 ** 63 - 1024, ...near].filter(number => number >= -(2 ** 63))
    let deep = 'end'
    for (let i = 0; i < 30; i++) deep = i % 2 ? [deep, i] : { inner: deep, more: [] }
    copied({
      headers: {
        numbers,
        ...Object.fromEntries(numbers.map((number, i) => [`number ${i}`, number])),
        2: 'a name that is a number comes first',
        long: 'grün '.repeat(2000),
        most: Buffer.alloc(20_000, 7),
        ['n'.repeat(255)]: '',
        [`cut ${'\ufffd'.repeat(200)}`]: 'a name of what was no UTF-8',
        empty: {},
        deep,
        CC: ['other', 'ünother'],
        'x-death': [{ count: 1, queue: 'x' }],
        'backhop-attempts': 3,
        'backhop-error': 'old',
        moment: { '!': 'timestamp', value: 0 },
        decimal: { '!': 'decimal', value: { places: 255, digits: 2 ** 32 - 1 } }
      },
      contentType: 'text/plain',
      contentEncoding: '',
      deliveryMode: 1,
      priority: 255,
      correlationId: '\ufffd'.repeat(200),
      replyTo: 'c'.repeat(255),
      expiration: '600000',
      messageId: 'ü',
      timestamp: 2 ** 53,
      type: 't',
      userId: 'guest',
      appId: 'a',
      clusterId: 'k'
    })
    copied({})
    copied({ headers: {}, priority: 0, timestamp: 0 })
  })

  it('is left to amqplib where the core cannot write it, which throws then', () => {
    for (const priority of [-1, 256]) {
      assert.throws(() => copied({ priority }, false), RangeError)
    }
  })

  it('has the frames that amqplib writes', () => {
    const { history, plan } = planOf({ headers: { text: 'x' } })
    const properties = plan._encodedProperties()
    const given = plan.copyProperties(history.given.properties, LONG)
    const { exchange } = plan
    for (const size of [0, 1, 4088, 4089, 8176, 8177, 100_000]) {
      const message = { exchange, routingKey: 'grün', mandatory: size !== 1, content: Buffer.alloc(size, 'backhop') }
      const written = []
      const connection = new Connection(new PassThrough())
      connection.channels[7] = { buffer: { write: chunk => written.push(chunk) } }
      connection.sendMessage(7, BasicPublish, message, BasicProperties, given, message.content)
      assert.deepEqual(frames(7, { ...message, properties }, connection.frameMax), Buffer.concat(written))
    }
  })

  it('writes its own numbers as 64-bit integers', () => {
    const history = decider.read({ properties: {} })
    const plan = decider.plan(history, decider.result(new Error('no')))
    const { headers } = plan.copyProperties({}, LONG)
    assert.deepEqual(headers['backhop-attempts'], { '!': 'long', value: 1 })
    assert.deepEqual(headers['backhop-first-failure'], { '!': 'long', value: 1_800_000_000_000 })
    assert.equal(copied({}).headers['backhop-first-failure'], 1_800_000_000_000)
  })

  it('leaves out what is undefined', () => {
    const { headers, messageId, priority } = copied({
      headers: { gone: undefined, big: 5 },
      messageId: '7',
      priority: undefined,
      correlationId: undefined
    })
    assert.ok(!('gone' in headers))
    assert.deepEqual([headers.big, messageId, priority], [5, '7', undefined])
  })

  it('has a stranger\'s tables as they were, also those that look like tagged values', () => {
    const looks = [
      'void', 'bytes', 'string', 'boolean', 'byte', 'int8', 'unsignedbyte', 'uint8', 'short', 'uint16', 'int', 'uint32',
      'long', 'int64', 'uint64', 'float', 'float64', 'double', 'decimal', 'timestamp', 'array', 'object', 'table', 'any'
    ]
    const values = ['x', 1e17, 70_000, -1, -5, true, null, Buffer.from('x'), [1], { places: 1, digits: -1 }, {}]
    for (const tag of looks) {
      for (const value of values) {
        if (tag === 'timestamp' && value > 0) continue // amqplib reads it as one: the types are the same
        const inner = { '!': tag, value }
        const { headers } = wire({ headers: { a: table(inner), deep: [{ b: table(inner) }] } })
        assert.deepEqual(headers.a, inner)
        const copy = copied({ headers }).headers
        assert.deepEqual(copy.a, inner, `${tag} ${value}`)
        assert.deepEqual(copy.deep, [{ b: inner }], `${tag} ${value}`)
      }
    }
    const { headers } = wire({ headers: { a: table({ '!': 'timestamp', value: 5, more: 1 }) } })
    assert.deepEqual(copied({ headers }).headers.a, { '!': 'timestamp', value: 5, more: 1 })
  })

  it('keeps numbers that amqplib would take for integers, and cannot write', () => {
    const odd = { low: -1e300, none: NaN, least: -Infinity, most: Infinity }
    const { headers } = wire({ headers: Object.fromEntries(
      Object.entries(odd).map(([name, value]) => [name, { '!': 'double', value }])
    ) })
    assert.deepEqual(headers, odd)
    const { low, none, least, most } = copied({ headers }).headers
    assert.deepEqual({ low, none, least, most }, odd)
  })

  it('has the latest timestamp that amqplib can write', () => {
    const headers = { late: { '!': 'timestamp', value: 2 ** 64 } } // as it reads the highest one
    assert.deepEqual(copied({ headers }).headers.late, { '!': 'timestamp', value: 2 ** 64 - 2048 })
  })

  it('is no deeper than can be encoded', () => {
    for (const outer of [value => [value], value => ({ a: value })]) {
      let deep = 'end'
      for (let i = 0; i < 3000; i++) deep = outer(deep)
      let copy = copied({ headers: { deep } }, false).headers.deep
      let depth = 0
      for (; typeof copy === 'object' && Object.values(copy).length; depth++) copy = Object.values(copy)[0]
      assert.ok(depth > 32 && depth <= 90, String(depth))
    }
  })

  it('is written also by an amqplib that asks tables for their hasOwnProperty', () => {
    const { headers } = wire({ headers: { a: table({ hasOwnProperty: 1 }) } })
    const history = decider.read({ properties: {}, headers: decodedHeaders(headers) })
    const plan = decider.plan(history, decider.result(new Error('no')))
    assert.deepEqual(plan.copyProperties(history.given.properties, LONG).headers.a, table({ hasOwnProperty: 1 }))
  })

  it('is the original, whatever a handler does to its headers', () => {
    const properties = { messageId: '1', headers: { a: { b: [1] } } }
    const given = { exchange: '', routingKey: 'work', properties, headers: decodedHeaders(properties.headers) }
    const history = decider.read(given)
    properties.messageId = 5
    properties.headers.a.b.push(() => {})
    properties.headers.more = Symbol('unknown to AMQP')
    const plan = decider.plan(history, decider.result(new Error('no')))
    const { headers, messageId } = wire(plan.copyProperties(history.given.properties, LONG))
    assert.deepEqual([headers.a, headers.more, messageId], [{ b: [1] }, undefined, '1'])
  })

  it('takes nothing from a table that is named __proto__', () => {
    const evil = JSON.parse('{"__proto__": {"CC": ["other"], "backhop-attempts": 9}, "a": 1}')
    const { headers } = wire({ headers: evil })
    assert.deepEqual(headers.CC, ['other']) // as amqplib reads it
    const copy = copied({ headers })
    assert.equal(copy.headers['backhop-attempts'], 1)
    assert.equal(copy.headers.CC, undefined)
    assert.equal(copy.headers.a, 1)
  })

  it('goes back to its queue by BCC alone', () => {
    const { headers } = copied({ headers: { CC: ['other'], BCC: ['another'] } })
    assert.deepEqual([headers.BCC, headers.CC], [['backhop:work'], undefined])
  })
})

describe('a retrier', () => {
  const options = { queue: 'work' }

  it('says what it needs', () => {
    assert.throws(() => new Retrier({}, options), /this is no channel of amqplib/)
    assert.throws(() => new Retrier(null, { ...options, polcy: 1 }), /a Retrier has no option polcy/)
    assert.throws(() => new Retrier(null, { ...options, confirmTimeout: 0 }), { code: 'BH_ERR_ARGUMENT' })
    assert.throws(() => new Retrier(null, options).wrap(() => {}), /the retrier has no channel/)
  })

  it('refuses a connection of either API', () => {
    const message = 'this is a connection of amqplib: give a channel, which its createChannel makes'
    const connection = new Connection(new PassThrough())
    for (const Model of [ChannelModel, CallbackModel]) {
      assert.throws(() => new Retrier(new Model(connection), options), { name: 'ArgumentError', message })
    }
    new Retrier(new Channel(connection), options)
  })

  it('needs no channel to tell its topology', () => {
    const retrier = new Retrier(null, options)
    assert.equal(retrier.topology.parkedQueue, 'work.parked')
    assert.equal(retrier.pending, 0)
    assert.equal(retrier.policy.maxAttempts, 10)
  })

  it('publishes again with a back-off up to ten seconds, of which half is chance', () => {
    const waits = random => [1, 2, 3, 8, 100].map(failures => BACK_OFF.delay(failures, { random }))
    assert.deepEqual(waits(0), [50, 100, 200, 5000, 5000])
    assert.deepEqual(waits(0.999999), [100, 200, 400, 10_000, 10_000])
  })
})
