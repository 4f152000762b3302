'use strict'

const assert = require('node:assert/strict')
const { test } = require('node:test')

const { Drop } = require('backhop')

const { inside } = require('./internals')

const { limitOf, limited } = inside('limit')
const { Message, stopping } = inside('message')
const { Choice, Overrun, isAbort } = inside('outcomes')

const TEXT = 'the handler ran for longer than its limit of 0.02 s'

function block () {
  const end = performance.now() + 50
  while (performance.now() < end);
}

const messageOf = signal => new Message(Buffer.from('x'), undefined, { signal })

test('without a limit the handler stays as it is', () => {
  const handle = () => {}
  assert.equal(limited(handle, limitOf(undefined)), handle)
  assert.equal(limitOf('30s'), 30_000)
  for (const wrong of [0, -1, '25h', null, '30']) assert.throws(() => limitOf(wrong), { name: 'ArgumentError' })
})

test('a handler within its limit returns, rejects and throws as it does', async () => {
  const host = stopping()
  assert.equal(limited(() => 7, 60_000)(messageOf(host.signal)), 7)
  assert.equal(await limited(async () => 7, 60_000)(messageOf(host.signal)), 7)
  const error = new Error('507')
  await assert.rejects(limited(async () => { throw error }, 60_000)(messageOf(host.signal)), error)
  assert.throws(() => limited(() => { throw error }, 60_000)(messageOf(host.signal)), error)
})

test('at the limit the signal is aborted and the promise is left', async () => {
  const host = stopping()
  const message = messageOf(host.signal)
  let signal
  const error = await limited(given => {
    signal = given.signal
    return new Promise(() => {})
  }, 20)(message).catch(thrown => thrown)
  assert.ok(error instanceof Overrun)
  assert.deepEqual([error.name, error.message], ['TimeoutError', TEXT])
  assert.equal(signal.reason, error)
  assert.equal(message.signal, signal)
  assert.ok(!isAbort(error, signal))
  const never = new Choice({ never: () => true, only: RangeError })
  assert.deepEqual(never.result(error), { outcome: 'failed', error: TEXT, retryAfter: 0 })
})

test('a handler that blocks the loop fails when it ends, also by Drop', async () => {
  for (const end of [() => block(), async () => block(), () => { block(); throw new Drop() }]) {
    const error = await Promise.resolve(messageOf()).then(limited(end, 20)).catch(thrown => thrown)
    assert.deepEqual([error.name, error.message], ['TimeoutError', TEXT])
  }
})

test('a stop aborts the signal of a message with a limit, and its listener is removed at the end', async () => {
  const host = stopping()
  const added = []
  const { signal } = host
  const { addEventListener, removeEventListener } = signal
  signal.addEventListener = (...args) => { added.push(args[1]); addEventListener.apply(signal, args) }
  signal.removeEventListener = (...args) => {
    added.splice(added.indexOf(args[1]), 1)
    removeEventListener.apply(signal, args)
  }
  await limited(async ({ signal: own }) => assert.notEqual(own, signal), 60_000)(messageOf(signal))
  assert.deepEqual(added, [])
  const aborted = limited(({ signal: own }) => new Promise((resolve, reject) => {
    own.addEventListener('abort', () => reject(own.reason))
  }), 60_000)(messageOf(signal))
  host.abort()
  await assert.rejects(aborted, thrown => isAbort(thrown, signal))
})
