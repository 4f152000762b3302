'use strict'

const assert = require('node:assert/strict')
const { test } = require('node:test')

const { Delivery, History, Topology } = require('backhop')

const vectors = require('./vectors')
const { is, text } = vectors

const LAST_MS = 8_640_000_000_000_000 // a Date can be no later

function ms (moment) {
  return moment ? moment.getTime() : -1
}

function expectedMs (value) {
  return Math.min(Number(vectors.integer(value)), LAST_MS)
}

function compareDeaths (history, expected) {
  assert.equal(history.deaths.length, expected.length)
  history.deaths.forEach((death, i) => vectors.compare(expected[i], {
    queue: is(() => death.queue, text),
    reason: is(() => death.reason, text),
    exchange: is(() => death.exchange, text),
    original_expiration: is(() => death.originalExpiration, text),
    times: is(() => death.times, vectors.integer),
    first_time_s: is(() => ms(death.time), s => s === -1 ? -1 : expectedMs(BigInt(s) * 1000n)),
    routing_keys: is(() => death.routingKeys, keys => keys.map(text))
  }))
}

function comparePlace (place, expected) {
  vectors.compare(expected, {
    queue: is(() => place.queue, text), reason: is(() => place.reason, text), exchange: is(() => place.exchange, text)
  })
}

function compareProblems ({ problems }, expected) {
  if (expected === 'any') return
  const begins = (problem, name) => Buffer.from(problem).subarray(0, vectors.raw(name).length).equals(vectors.raw(name))
  for (const problem of problems) assert.ok(expected.some(name => begins(problem, name)), String(problem))
  for (const name of expected) assert.ok(problems.some(problem => begins(problem, name)), `${name}: ${problems}`)
}

vectors.cases('history', each => {
  vectors.only(each, 'name delivery policy topology legacy_counter wait_queues expect')
  assert.ok('topology' in each || !('policy' in each))
  const delivery = vectors.delivery(each)
  const topology = 'topology' in each ? vectors.topology(each, vectors.policy(each)) : undefined
  vectors.history(each, delivery, topology)
  const history = vectors.history(each, delivery, topology)
  vectors.compare({ problems: [], ...each.expect }, {
    attempts: is(() => history.attempts, vectors.integer),
    deferrals: is(() => history.deferrals, vectors.integer),
    source: is(() => history.source),
    first_failure_ms: is(() => ms(history.firstFailure), value => value === -1 ? -1 : expectedMs(value)),
    last_delay_ms: is(() => history.lastDelay, value => value === -1 ? undefined : vectors.integer(value)),
    last_error: is(() => history.lastError, text),
    id: is(() => history.id, text),
    exchange: is(() => history.exchange, text),
    routing_key: is(() => history.routingKey, text),
    parked: is(() => history.parked, text),
    delivery_count: is(() => history.deliveryCount, vectors.integer),
    acquired_count: is(() => history.acquiredCount, vectors.integer),
    crashes: is(() => history.crashes, vectors.integer),
    replays: is(() => history.replays, vectors.integer),
    deaths: expected => compareDeaths(history, expected),
    death_count: is(() => history.deaths.length),
    first_death: expected => comparePlace(history.firstDeath, expected),
    last_death: expected => comparePlace(history.lastDeath, expected),
    problems: expected => compareProblems(history, expected)
  })
})

test('a history outlives what it was read from', () => {
  const topology = new Topology({ queue: 'orders' })
  const history = new History(new Delivery({ headers: { 'backhop-attempts': 3 } }), { topology })
  global.gc?.()
  assert.equal(history.attempts, 3)
})

test('an option that there is not is refused with those there are', () => {
  assert.throws(() => new History(new Delivery(), { legacy: 'x-retry' }),
    /no option legacy: give any of topology, legacyCounter, /)
})
