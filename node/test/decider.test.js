'use strict'

const assert = require('node:assert/strict')
const { test } = require('node:test')

const { Policy, Topology } = require('backhop')

const { inside } = require('./internals')

const { Decider } = inside('decider')
const { Message, idOf } = inside('message')

const FAILED = { outcome: 'failed', error: '507', retryAfter: 0 }

function deciderWith (options) {
  return new Decider(new Topology({ queue: 'orders' }), options)
}

for (const [form, headersOf] of [
  ['an object', pairs => Object.fromEntries(pairs)], ['a Map', pairs => new Map(pairs)], ['pairs', pairs => pairs]
]) {
  test(`headers may be ${form}: all are read, and kept`, () => {
    const headers = headersOf([['tenant', 'acme'], ['backhop-attempts', 2], ['__proto__', 'own']])
    const decider = deciderWith()
    const history = decider.read({ exchange: '', routingKey: 'orders', properties: { headers } })
    assert.equal(history.attempts, 2)
    const copy = decider.plan(history, FAILED).copyProperties(history.given.properties)
    assert.equal(copy.headers['backhop-attempts'], 3)
    assert.equal(copy.headers.tenant, 'acme')
    assert.equal(Object.getOwnPropertyDescriptor(copy.headers, '__proto__')?.value, 'own')
  })
}

test('T5: a message without an id gets one for its events and its copy, and equal messages get different ones', () => {
  const decider = deciderWith()
  const idsOf = given => {
    const history = decider.read({ exchange: '', routingKey: 'orders', ...given })
    const message = new Message(Buffer.from('x'), history)
    const eventId = decider.held(history).event_id()
    return [message.id, idOf(message), eventId, decider.plan(history, FAILED).id]
  }
  const [[id, ...first], [, ...second]] = [idsOf({}), idsOf({})]
  assert.equal(id, undefined)
  assert.match(first[0], /^[0-9a-f]{32}$/)
  for (const ids of [first, second]) assert.deepEqual(ids, Array(3).fill(ids[0]))
  assert.notEqual(first[0], second[0])
  assert.deepEqual(idsOf({ properties: { messageId: '42' } }), ['42', '42', '42', '42'])
})

test('what a handler does with what its client gave it is in no copy', () => {
  const properties = { messageId: '42', headers: { tenant: 'acme' } }
  const decider = deciderWith()
  const history = decider.read({ exchange: '', routingKey: 'orders', properties })
  decider.guard(history)
  Object.assign(properties, { messageId: 'other', correlationId: '7' })
  Object.assign(properties.headers, { tenant: () => {}, seen: true })
  const { headers, ...copy } = decider.plan(history, FAILED).copyProperties(history.given.properties)
  assert.deepEqual(copy, { deliveryMode: 2, messageId: '42' })
  assert.equal(headers.tenant, 'acme')
  assert.ok(!('seen' in headers))
})

test('only what parks is given random bytes before its handler', () => {
  let drawn = 0
  const random = count => {
    drawn++
    return Buffer.alloc(count)
  }
  const decider = deciderWith({ random })
  const read = headers => decider.read({ exchange: '', routingKey: 'orders', properties: { headers } })
  assert.equal(decider.guard(read({})), undefined)
  assert.equal(drawn, 0)
  const poison = decider.guard(read({ 'x-delivery-count': 1, 'backhop-crashes': 20 }))
  assert.deepEqual([poison.action, poison.reason, drawn], ['park', 'poison', 1])
})

test('NT15: a message that ends each consumer waits 16 times after maxCrashes deaths, and is parked', () => {
  for (const maxCrashes of [1, 5]) {
    const decider = new Decider(new Topology({ queue: 'orders', policy: new Policy({ maxCrashes, jitter: 'none' }) }))
    let properties = { messageId: '42', headers: {} }
    let deaths = 0
    let waits = 0
    for (let lost = 0; ;) {
      const given = { exchange: '', routingKey: 'orders', properties }
      const plan = lost ? decider.guard(decider.read(given)) : undefined
      if (plan?.action === 'park') break
      if (plan) {
        waits++
        assert.ok(plan.delay > 0)
        properties = { ...properties, headers: plan.copyHeaders(properties.headers) }
        lost = 0
      }
      deaths++ // the handler ends the process
      properties = { ...properties, headers: { ...properties.headers, 'x-delivery-count': ++lost } }
    }
    assert.deepEqual([deaths, waits], [maxCrashes + 16, 16])
  }
})

test('a plan stays that of its message, whatever is decided in between', () => {
  const decider = deciderWith()
  const read = key => decider.read({ exchange: '', routingKey: key, properties: { headers: { key } } })
  const [one, two] = [read('one'), read('two')]
  const plans = [decider.plan(one, FAILED), decider.plan(two, FAILED)]
  decider.guard(read('three'))
  plans.forEach((plan, i) => assert.equal(new Map(plan.headers).get('backhop-routing-key').value, ['one', 'two'][i]))
})
