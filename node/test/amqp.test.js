'use strict'
// The bytes that node-amqp does not keep: of a header frame that it reads, and of a copy.

const assert = require('node:assert/strict')
const { once } = require('node:events')
const net = require('node:net')
const { describe, it } = require('node:test')

const amqp = require('amqp')

const { ConnectionFailedError, Policy, Topology } = require('backhop')
const { Retrier } = require('backhop/amqp')

const { inside } = require('./internals')

const { Decider } = inside('decider')
const { frames: framesOf } = inside('adapters/frames')
const wire = inside('adapters/amqp/properties')

const decider = new Decider(new Topology({ queue: 'work', policy: new Policy({ initial: 100, jitter: 'none' }) }))

const int = (size, value) => {
  const bytes = Buffer.alloc(size)
  size === 8 ? bytes.writeBigInt64BE(BigInt(value)) : bytes.writeIntBE(value, 0, size)
  return bytes
}
const real = (method, size, value) => {
  const bytes = Buffer.alloc(size)
  bytes[method](value)
  return bytes
}
const long = content => Buffer.concat([int(4, content.length), content])
const short = text => Buffer.concat([Buffer.of(Buffer.byteLength(text)), Buffer.from(text)])
const field = (type, ...content) => Buffer.concat([Buffer.from(type), ...content])
const table = entries => long(Buffer.concat(entries.flatMap(([name, value]) => [short(name), value])))

/** Every type of a header on the wire, and how the core is given it. */
const HEADERS = [
  ['boolean', field('t', Buffer.of(1)), true],
  ['int8', field('b', int(1, -3)), { '!': 'int8', value: -3 }],
  ['uint8', field('B', Buffer.of(200)), { '!': 'uint8', value: 200 }],
  ['int16', field('s', int(2, -300)), { '!': 'int16', value: -300 }],
  ['uint16', field('u', Buffer.of(255, 0)), { '!': 'uint16', value: 65280 }],
  ['int32', field('I', int(4, -70000)), { '!': 'int32', value: -70000 }],
  ['uint32', field('i', Buffer.of(255, 0, 0, 0)), { '!': 'uint32', value: 4278190080 }],
  ['int64', field('l', int(8, 2 ** 53 + 2)), { '!': 'int64', value: 9007199254740994n }],
  ['float', field('f', real('writeFloatBE', 4, 1.5)), { '!': 'float', value: 1.5 }],
  ['double', field('d', real('writeDoubleBE', 8, 2)), { '!': 'double', value: 2 }],
  ['decimal', field('D', Buffer.of(2), int(4, 125)), { '!': 'decimal', value: { places: 2, digits: 125 } }],
  ['timestamp', field('T', int(8, 1_767_225_600)), { '!': 'timestamp', value: 1_767_225_600n }],
  ['void', field('V'), null],
  ['string', field('S', long(Buffer.from('grün'))), 'grün'],
  ['not UTF-8', field('S', long(Buffer.from([254]))), { '!': 'string', value: Buffer.from([254]) }],
  ['bytes', field('x', long(Buffer.from([0, 1]))), Buffer.from([0, 1])],
  ['array', field('A', long(Buffer.concat([field('V'), field('t', Buffer.of(0))]))), [null, false]],
  ['table', field('F', table([['!', field('S', long(Buffer.from('int8')))]])), new Map([['!', 'int8']])]
]

function payload (flags, ...parts) {
  return Buffer.concat([Buffer.of(0, 60, 0, 0), int(8, 0), Buffer.of(flags >> 8, flags & 255), ...parts])
}

const FLAGS = 1 << 15 | 1 << 13 | 1 << 12 | 1 << 11 | 1 << 8 | 1 << 6 | 1 << 2
const PARTS = [
  short('text/plain'), table(HEADERS), Buffer.of(1), Buffer.of(7), short('600000'), int(8, 1_767_225_600),
  short('cluster')
]

describe('a header frame', () => {
  const decoded = wire.decode(payload(FLAGS, ...PARTS))

  it('is read with every type', () => {
    assert.deepEqual(decoded.properties, {
      contentType: 'text/plain',
      deliveryMode: 1,
      priority: 7,
      expiration: '600000',
      timestamp: 1_767_225_600n,
      clusterId: 'cluster'
    })
    for (const [i, [name, bytes, value]] of HEADERS.entries()) {
      assert.deepEqual(decoded.entries[i], { name, bytes, value }, name)
    }
  })

  it('gives a copy whose kept bytes are the same', () => {
    const headers = Object.fromEntries(decoded.entries.map(({ name, value }) => [name, value]))
    const { properties } = decoded
    const history = decider.read({ exchange: '', routingKey: 'work', properties, headers })
    const plan = decider.plan(history, decider.result(new Error('no')))
    const copy = wire.decode(Buffer.concat([payload(0).subarray(0, 12), wire.encode(plan, decoded)]))
    const { expiration, ...kept } = properties
    assert.equal(expiration, '600000')
    assert.deepEqual(copy.properties, { ...kept, deliveryMode: 2 })
    for (const [name, bytes] of HEADERS) {
      assert.deepEqual(copy.entries.find(entry => entry.name === name).bytes, bytes, name)
    }
    const own = Object.fromEntries(copy.entries.map(({ name, value }) => [name, value]))
    assert.deepEqual(own['backhop-attempts'], { '!': 'int64', value: 1n })
    assert.deepEqual(own['backhop-expiration'], '600000')
    assert.deepEqual(own.BCC, ['backhop:work'])
  })

  it('of a stranger\'s, deep or cut, is no danger', () => {
    let deep = Buffer.alloc(0)
    for (let i = 0; i < 4000; i++) deep = field('A', long(deep))
    const { entries: [{ bytes, value }] } = wire.decode(payload(1 << 13, table([['deep', deep]])))
    assert.ok(bytes.equals(deep))
    assert.ok(Array.isArray(value))
    assert.throws(() => wire.decode(payload(1 << 13, table([['cut', field('l', int(4, 0))]]))), RangeError)
    const odd = table([['odd', field('?', int(4, 0))]])
    assert.throws(() => wire.decode(payload(1 << 13, odd)), /which AMQP does not know/)
  })

  it('and the body are cut into frames', () => {
    const content = Buffer.alloc(100, 'x')
    const message = { exchange: 'a', routingKey: Buffer.of(254), mandatory: true, properties: Buffer.of(0, 0), content }
    const bytes = framesOf(3, message, 48)
    const frames = []
    for (let at = 0; at < bytes.length;) {
      const size = bytes.readUInt32BE(at + 3)
      frames.push([bytes[at], bytes.readUInt16BE(at + 1), size, bytes[at + 7 + size]])
      at += 8 + size
    }
    assert.deepEqual(bytes.subarray(7, 19), Buffer.of(0, 60, 0, 40, 0, 0, 1, 97, 1, 254, 1, 206))
    assert.deepEqual(frames, [[1, 3, 11, 206], [2, 3, 14, 206], [3, 3, 40, 206], [3, 3, 40, 206], [3, 3, 20, 206]])
    assert.throws(() => framesOf(3, { ...message, content: 'parsed' }, 48), /the body is no Buffer, but string/)
    const refused = { ...message, routingKey: 'ä'.repeat(128) }
    assert.throws(() => framesOf(3, refused, 48, () => assert.fail('it asks for room')), /more than 255 bytes/)
  })
})

describe('a retrier over node-amqp', () => {
  it('says what it needs', () => {
    assert.throws(() => new Retrier({}, { queue: 'work' }), /this is no connection of node-amqp/)
  })

  it('waits for no connection that failed and is not tried again', async () => {
    const nobody = net.createServer().listen(0, '127.0.0.1')
    await once(nobody, 'listening')
    const { port } = nobody.address()
    nobody.close()
    await once(nobody, 'close')
    const connection = amqp.createConnection({ host: '127.0.0.1', port }, { reconnect: false })
    const retrier = new Retrier(connection, { queue: 'work' })
    await assert.rejects(retrier.declare(), ConnectionFailedError) // it connects still
    await assert.rejects(retrier.declare(), ConnectionFailedError)
  })
})
