'use strict'
// Frames of exchange.declare and queue.declare. node-amqp writes integers above 31 bits as doubles,
// which RabbitMQ refuses as arguments of a queue.

const { FRAME_METHOD, frame } = require('../frames')
const { encodeValue, shortString, table } = require('./properties')

const EXCHANGE_DECLARE = 40 << 16 | 10
const QUEUE_DECLARE = 50 << 16 | 10
const PASSIVE = 1
const DURABLE = 2

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

module.exports = { declareExchange, declareQueue }
