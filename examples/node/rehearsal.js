'use strict'
// A test of a handler and its policy, for node:test.

const assert = require('node:assert/strict')
const { test } = require('node:test')

const { Policy } = require('backhop')
const { rehearse } = require('backhop/testing')

const policy = new Policy({ initial: '10s', factor: 3, max: '1h', maxAttempts: 8 })

async function handle () {
  throw new Error('507 queue is full')
}

// begin
test('a full queue is retried and then parked', async () => {
  const rehearsal = await rehearse(handle, '/index.html', { policy }) // no broker, no waiting
  assert.equal(rehearsal.outcome, 'parked')
  assert.equal(rehearsal.length, 8)
  console.log(rehearsal) // attempt by attempt
})
// end
