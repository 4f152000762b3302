'use strict'

const assert = require('node:assert/strict')
const { test } = require('node:test')

const { Policy, Topology, explain } = require('backhop')

const lines = (...given) => explain(...given).split('\n')

test('a message without headers never failed', () => {
  for (const headers of [undefined, null, {}]) assert.equal(explain(headers), 'It never failed.')
})

test('a parked message tells its whole story', () => {
  assert.deepEqual(lines({
    'backhop-attempts': 8,
    'backhop-first-failure': 1_700_000_000_000,
    'backhop-delay': 90_000,
    'backhop-id': '5f0c',
    'backhop-exchange': 'cdn',
    'backhop-routing-key': 'purge.image',
    'backhop-error': 'HTTPError: 507 queue is full',
    'backhop-parked': 'exhausted'
  }), [
    'It failed 8 times, first at 2023-11-14 22:13:20 UTC.',
    'The last error was: HTTPError: 507 queue is full',
    'Its last wait was 1 min 30 s.',
    'It was parked because its attempts were used up.',
    'It was first published to exchange "cdn" with routing key "purge.image".',
    'All its attempts have the id 5f0c.'
  ])
})

test('what the broker did is told', () => {
  const death = {
    queue: 'orders', reason: 'rejected', count: 1, exchange: '', 'routing-keys': ['orders'],
    time: { '!': 'timestamp', value: 1_700_000_000 }
  }
  assert.deepEqual(lines({ 'x-death': [death], 'x-delivery-count': 2 }), [
    'No failure of it was reported.',
    'The broker dead-lettered it from queue orders once (rejected), first at 2023-11-14 22:13:20 UTC.',
    'Its consumer was lost, or gave it back, 2 times while it, or a message beside it, was in hand.'
  ])
})

test('a strategy that leaves counting to the broker is understood', () => {
  const policy = new Policy({ kind: 'fixed', jitter: 'none' })
  const topology = new Topology({ queue: 'orders', policy, strategy: 'reject' })
  const death = { queue: 'orders', reason: 'rejected', count: 1 }
  assert.match(explain({ 'x-death': [death] }, { topology }), /^It failed once \(by the broker's x-death records\)\./)
})

test('a header that cannot be trusted is named', () => {
  assert.match(explain({ 'backhop-attempts': 'many' }), /Ignored: backhop-attempts/)
})

test('every reason for parking has its words', () => {
  const reasons = ['exhausted', 'permanent', 'too-old', 'oversized', 'poison']
  const stories = reasons.map(reason => lines({ 'backhop-parked': reason })[1])
  assert.equal(new Set(stories).size, reasons.length)
  stories.forEach((story, i) => assert.ok(!story.includes(reasons[i])))
})
