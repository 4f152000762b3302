'use strict'

const assert = require('node:assert/strict')
const { test } = require('node:test')

const { Topology } = require('backhop')

const { inside } = require('./internals')

const { Decider } = inside('decider')

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

test('a plan stays that of its message, whatever is decided in between', () => {
  const decider = deciderWith()
  const read = key => decider.read({ exchange: '', routingKey: key, properties: { headers: { key } } })
  const [one, two] = [read('one'), read('two')]
  const plans = [decider.plan(one, FAILED), decider.plan(two, FAILED)]
  decider.guard(read('three'))
  plans.forEach((plan, i) => assert.equal(new Map(plan.headers).get('backhop-routing-key').value, ['one', 'two'][i]))
})
