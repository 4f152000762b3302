'use strict'
// A test of a whole consumer with its client, for node:test: from the first failure to the parked
// message.

const assert = require('node:assert/strict')
const { EventEmitter, once } = require('node:events')
const { test } = require('node:test')

const amqplib = require('amqplib')
const { Policy } = require('backhop')
const { Retrier } = require('backhop/amqplib')
const { startBroker } = require('backhop/testing')

const policy = new Policy({ initial: '10s', factor: 3, max: '1h', maxAttempts: 8 })

// begin
test('a purge is parked after its last attempt', async t => {
  const broker = await startBroker(t)
  const connection = await amqplib.connect(broker.url)
  const channel = await connection.createChannel()
  const attempts = []
  const events = new EventEmitter()
  events.on('failed', event => attempts.push(event.attempt))
  const onEvent = event => events.emit(event.name, event)
  const retrier = new Retrier(channel, { queue: 'purges', policy, workQueue: 'quorum', onEvent })
  await retrier.declare()
  channel.sendToQueue('purges', Buffer.from('/index.html'))
  await retrier.consume(() => { throw new Error('507 queue is full') })
  await once(events, 'parked') // after more than an hour of delays, which the model skips
  assert.deepEqual(attempts, [1, 2, 3, 4, 5, 6, 7, 8])
  assert.equal(String((await channel.get('purges.parked')).content), '/index.html')
  await connection.close()
})
// end
