'use strict'
// The guide's listeners for loggers, as they stand there.

const assert = require('node:assert/strict')
const { Writable } = require('node:stream')
const { test } = require('node:test')

const pino = require('pino')
const winston = require('winston')

const { inside } = require('./internals')
const listeners = require('../examples/recipes/loggers')

const { Emitter } = inside('observe/emitter')

function told (onEvent) {
  const emitter = new Emitter('orders', onEvent)
  const error = new TypeError('no')
  const failure = { id: '17', attempts: 2, error, errorClass: 'TypeError', errorText: 'TypeError: no' }
  emitter.emit('retried', () => ({ ...failure, delay: 1000 }))
  emitter.emit('parked', () => ({ ...failure, reason: 'exhausted' }))
}

const lines = []
const stream = new Writable({
  write (chunk, encoding, done) {
    lines.push(JSON.parse(chunk))
    done()
  }
})

function check (lineOf, levels) {
  const [retried, parked] = lines.splice(0)
  assert.deepEqual([retried.level, parked.level], levels)
  assert.match(lineOf(parked), /^parked: message "17" of "orders".*TypeError: no$/)
  assert.deepEqual(retried.event, {
    level: 'info', name: 'retried', text: 'TypeError: no', error: 'TypeError: no', errorClass: 'TypeError',
    errorText: 'TypeError: no', id: '17', queue: 'orders', attempts: 2, delay: 1000
  })
  assert.deepEqual([parked.event.level, parked.event.reason], ['warning', 'exhausted'])
}

test('pino', () => {
  const logger = pino({ name: 'mine' }, stream)
  told(listeners(logger).toPino)
  assert.ok(lines.every(({ name }) => name === 'mine'))
  check(({ msg }) => msg, [30, 40])
})

test('winston', async () => {
  const transports = [new winston.transports.Stream({ stream })]
  const logger = winston.createLogger({ format: winston.format.json(), transports })
  told(listeners(logger).toWinston)
  while (lines.length < 2) await new Promise(setImmediate)
  check(({ message }) => message, ['info', 'warn'])
})
