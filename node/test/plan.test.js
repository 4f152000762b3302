'use strict'

const assert = require('node:assert/strict')
const { test } = require('node:test')

const { Delivery, History, Plan, Topology } = require('backhop')

const { inside } = require('./internals')
const vectors = require('./vectors')
const { camel, is, raw, text, typed } = vectors
const { Message } = inside('message')
const { endOf } = inside('observe/event')

const NOW_MS = 1_700_000_000_000
const KEYS =
  'name delivery policy topology legacy_counter wait_queues outcome error retry_after_ms now_ms random frame_max ' +
  'guard replay expect'

function fraction (u) {
  const bytes = Buffer.alloc(8)
  bytes.writeBigUInt64BE(BigInt(Math.floor(u * 2 ** 53)) << 11n)
  return bytes
}

function randomOf (given = {}) {
  if ('hex' in given) return raw(given)
  vectors.only(given, 'u pick id')
  const { u = 0.5, pick = 0.5, id = { hex: '00112233445566778899aabbccddeeff' } } = given
  return Buffer.concat([fraction(vectors.fraction(u)), fraction(vectors.fraction(pick)), raw(id)])
}

function planOf (each, history, topology) {
  const random = randomOf(each.random)
  const frameMax = each.frame_max
  if (each.replay) return Plan.replay(history, topology, { random, frameMax })
  const now = Number(each.now_ms ?? NOW_MS)
  if (each.guard) return Plan.guard(history, topology, { random, frameMax, now })
  return new Plan(history, topology, {
    outcome: each.outcome, error: raw(each.error ?? ''), retryAfter: Number(each.retry_after_ms ?? 0), frameMax, now,
    random
  })
}

/** By the event: a permanent failure has the same one as a failure. */
function countsAs ({ outcome = 'failed' }, history, topology) {
  const event = endOf({ outcome }, new Message(undefined, history, { topology }), topology)
  if (event === '') return outcome // a deferral has no event of its own
  return event === 'failed' && outcome === 'permanent' ? 'permanent' : event
}

/** Names as distinct strings, whatever bytes they hold. */
const key = name => raw(name).toString('latin1')

function compareKeptHeaders ({ delivery }, plan, expected) {
  const names = delivery.headers.map(([name]) => name)
  const kept = names.filter(name => plan.keepsHeader(raw(name))).map(key)
  assert.ok(expected.every(name => names.map(key).includes(key(name))))
  assert.deepEqual(new Set(kept), new Set(expected.map(key)))
}

function compareKeptProperties ({ delivery }, plan, expected) {
  const there = Object.keys(delivery.properties).map(camel)
  assert.deepEqual(new Set(plan.keptProperties.filter(name => there.includes(name))), new Set(expected.map(camel)))
}

function header ([name, value]) {
  if (typeof value === 'object' && value !== null && 'copy_of' in value) {
    vectors.only(value, 'copy_of')
    return [text(name), { '!': 'void', value: text(value.copy_of) }]
  }
  const [type, content] = typed(value)
  const contents = { int64: vectors.integer, array: items => items.map(text) }
  return [text(name), { '!': type, value: (contents[type] ?? text)(content) }]
}

function compareHeadersWith (plan, expected) {
  for (const entry of expected) {
    const [name, value] = header(entry)
    assert.deepEqual(plan.headers.find(([found]) => text(found) === name)?.[1], value)
  }
}

function checkInvariants (plan) {
  assert.equal(plan.publishes, ['retry', 'defer', 'park', 'replay'].includes(plan.action))
  assert.ok(plan.publishes || !plan.headers.length)
  assert.equal(plan.action === 'park', Boolean(plan.reason))
  if (!plan.publishes) return
  for (const name of ['userId', 'expiration', 'deliveryMode']) assert.ok(!plan.keptProperties.includes(name))
  for (const [name] of plan.headers) assert.ok(!plan.keepsHeader(name), String(name))
}

vectors.cases('plan', each => {
  vectors.only(each, KEYS)
  const delivery = vectors.delivery(each)
  const topology = vectors.topology(each, vectors.policy(each))
  const history = vectors.history(each, delivery, topology)
  if (vectors.status(each) !== 'BH_OK') {
    vectors.refused(vectors.status(each), () => planOf(each, history, topology))
    return
  }
  planOf(each, history, topology)
  const plan = planOf(each, history, topology)
  new Plan(new History(new Delivery()), topology) // takes its place; the next reads decide again
  vectors.compare(each.expect, {
    action: is(() => plan.action),
    counts_as: is(() => countsAs(each, history, topology)),
    attempts: is(() => plan.attempts, vectors.integer),
    deferrals: is(() => plan.deferrals, vectors.integer),
    delay_ms: is(() => plan.delay, vectors.integer),
    retry_after_met: is(() => plan.retryAfterMet),
    reason: is(() => plan.reason),
    id: is(() => plan.id, text),
    exchange: is(() => plan.exchange, text),
    routing_key: is(() => plan.routingKey, text),
    mandatory: is(() => plan.mandatory),
    on_demand: is(() => plan.onDemand),
    expiration: is(() => plan.expiration, digits => digits || undefined),
    kept_properties: expected => compareKeptProperties(each, plan, expected),
    kept_headers: expected => compareKeptHeaders(each, plan, expected),
    headers: is(() => plan.headers, expected => expected.map(header)),
    headers_in_any_order: is(() => new Map(plan.headers), expected => new Map(expected.map(header))),
    headers_with: expected => compareHeadersWith(plan, expected),
    headers_without: expected => {
      for (const name of expected) assert.ok(!plan.headers.some(([found]) => Buffer.from(found).equals(raw(name))))
    }
  })
  checkInvariants(plan)
})

test('a plan outlives what it was made of', () => {
  const history = new History(new Delivery({ headers: { tenant: 'acme' } }))
  const plan = new Plan(history, new Topology({ queue: 'orders' }), { error: '507' })
  global.gc?.()
  assert.equal(plan.copyHeaders({ tenant: 'acme' })['backhop-error'], '507')
})

test('without a moment and random bytes the clock and the system give them', () => {
  const topology = new Topology({ queue: 'orders' })
  const history = new History(new Delivery(), { topology })
  const [one, two] = [0, 1].map(() => new Map(new Plan(history, topology).headers))
  assert.notEqual(one.get('backhop-id').value, two.get('backhop-id').value)
  assert.ok(one.get('backhop-first-failure').value > NOW_MS)
})

test('a moment may be a Date', () => {
  const topology = new Topology({ queue: 'orders' })
  const plan = new Plan(new History(new Delivery(), { topology }), topology, { now: new Date(NOW_MS) })
  assert.equal(new Map(plan.headers).get('backhop-first-failure').value, NOW_MS)
})

test('the properties of a copy are those that the plan keeps, and its own', () => {
  const topology = new Topology({ queue: 'orders' })
  const properties = {
    contentType: 'text/plain', messageId: '42', userId: 'guest', expiration: '100', priority: undefined,
    headers: { tenant: 'acme' }
  }
  const plan = new Plan(new History(new Delivery({ properties }), { topology }), topology, { error: '507' })
  const { headers, ...copy } = plan.copyProperties(properties, { integer: value => ({ '!': 'long', value }) })
  assert.deepEqual(copy, { deliveryMode: 2, contentType: 'text/plain', messageId: '42' })
  assert.equal(headers.tenant, 'acme')
  assert.deepEqual(headers['backhop-attempts'], { '!': 'long', value: 1 })
  assert.equal(headers['backhop-user-id'], 'guest')
  assert.deepEqual(headers.BCC, ['backhop:orders'])
})
