'use strict'

const assert = require('node:assert/strict')
const { test } = require('node:test')

const { Drop, Park, RetryAfter } = require('backhop')
const { outcomes: { resultOf } } = require('./internals')

const failed = (error, retryAfter = 0) => ({ outcome: 'failed', error, retryAfter })
const permanent = error => ({ outcome: 'permanent', error, retryAfter: 0 })

test('an error is a failure with its name and text', () => {
  assert.deepEqual(resultOf(new TypeError('507 queue is full')), failed('TypeError: 507 queue is full'))
  assert.deepEqual(resultOf(new RangeError()), failed('RangeError'))
  assert.deepEqual(resultOf(new Error('507')), failed('Error: 507'))
})

test('an error of a class without a name of its own is named by its class', () => {
  class QueueFull extends Error {}
  assert.deepEqual(resultOf(new QueueFull('507')), failed('QueueFull: 507'))
})

test('an error that says no more than its code is told by it, as of a refused connection', () => {
  assert.deepEqual(resultOf(Object.assign(new AggregateError([]), { code: 'ECONNREFUSED' })), failed('AggregateError: ECONNREFUSED'))
})

test('a class in never parks, and so do its children', () => {
  class BadInput extends SyntaxError {}
  assert.equal(resultOf(new BadInput('bad'), [SyntaxError]).outcome, 'permanent')
  assert.equal(resultOf(new Error('bad'), [SyntaxError]).outcome, 'failed')
})

test('retry after is a floor', () => {
  assert.deepEqual(resultOf(new RetryAfter('30s')), failed('', 30000))
  assert.deepEqual(resultOf(new RetryAfter(500, 'busy')), failed('busy', 500))
})

test('retry after of what is no duration fails where it is thrown', () => {
  assert.throws(() => new RetryAfter('soon'), /give milliseconds, or a string/)
})

test('park and drop say what they mean', () => {
  assert.deepEqual(resultOf(new Park('no such file')), permanent('no such file'))
  assert.deepEqual(resultOf(new Drop()), { outcome: 'dropped', error: '', retryAfter: 0 })
})

test('what an outcome was caused by is the error', () => {
  assert.deepEqual(resultOf(new Park('', { cause: new RangeError('gone') })), permanent('RangeError: gone'))
  assert.deepEqual(resultOf(new Park(new RangeError('gone'))), permanent('RangeError: gone'))
  assert.deepEqual(resultOf(new RetryAfter('5s', new Error('busy'))), failed('Error: busy', 5000))
  assert.equal(new Park(new RangeError('gone')).cause.message, 'gone')
})

test('what is no error can be thrown too', () => {
  assert.deepEqual(resultOf('507'), failed('507'))
  assert.deepEqual(resultOf(undefined), failed('undefined'))
  assert.deepEqual(resultOf({ status: 507 }), failed('{ status: 507 }'))
  assert.deepEqual(resultOf(Object.create(null)), failed('[Object: null prototype] {}'))
})

test('an error that cannot be printed is a failure all the same', () => {
  const mute = Object.defineProperty(new Error('x'), 'message', { get () { throw new TypeError('no') } })
  assert.equal(resultOf(mute).outcome, 'failed')
  const refuse = () => { throw new TypeError('no') }
  assert.equal(resultOf(new Proxy({}, { get: refuse, getPrototypeOf: refuse })).outcome, 'failed')
})
