'use strict'
// The frames of basic.publish, for clients whose connection takes bytes.

const CLASS_BASIC = 60
const BASIC_PUBLISH = CLASS_BASIC << 16 | 40
const MANDATORY = 1
const MOST_NAME_BYTES = 255
const FRAME_METHOD = 1
const FRAME_HEADER = 2
const FRAME_BODY = 3
const FRAME_END = 206
const FRAME_OVERHEAD = 8

/**
 * The frames of a message: encoded properties and content. `room` gives a Buffer of so many bytes
 * to write them to.
 */
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

module.exports = { FRAME_METHOD, frame, frames }
