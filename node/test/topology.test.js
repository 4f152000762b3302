'use strict'

const assert = require('node:assert/strict')
const { test } = require('node:test')

const { ArgumentError, Delivery, History, Plan, Policy, Topology } = require('backhop')

const vectors = require('./vectors')
const { is, raw, text } = vectors

function declaration (given) {
  vectors.only(given, 'exchange queue binding type source routing_key arguments wait_ms on_demand')
  const [what, ...more] = ['exchange', 'queue', 'binding'].filter(key => key in given)
  assert.deepEqual(more, [])
  return {
    what,
    name: text(given[what]),
    type: given.type,
    source: text(given.source ?? ''),
    routingKey: text(given.routing_key ?? ''),
    arguments: Object.fromEntries((given.arguments ?? []).map(([name, value]) => [
      text(name), typeof value === 'number' ? value : text(value)
    ])),
    wait: given.wait_ms ?? 0,
    onDemand: given.on_demand ?? false
  }
}

function compareDeclarations ({ declarations }, expected) {
  assert.deepEqual([...declarations], expected.map(declaration))
  declarations.forEach((each, i) => {
    assert.deepEqual(Object.keys(each.arguments), (expected[i].arguments ?? []).map(([name]) => text(name)))
  })
}

function declared ({ declarations }, onDemand) {
  const rungs = declarations.filter(each => each.what === 'queue' && each.wait && each.onDemand === onDemand)
  return [...new Set(rungs.map(({ wait }) => wait))] // stripes share a rung
}

function comparePreview (topology, rows) {
  for (const [attempt, lowest, mean, highest, total, rungs] of rows) {
    assert.deepEqual(topology.row(attempt), { attempt, lowest, mean, highest, total, rungs })
  }
}

function compareShares (topology, rows) {
  for (const [attempt, rung, share] of rows) {
    assert.ok(Math.abs((topology.shares(attempt).get(rung) ?? 0) - vectors.fraction(share)) < 0.0005, `${rung} ms`)
  }
}

function compareRungs (topology, expected) {
  assert.deepEqual(topology.rungs, expected)
  assert.deepEqual(declared(topology, false), expected)
}

function compareBrokers (topology, rows) {
  for (const [product, version, status, ...texts] of rows) {
    const check = () => topology.checkBroker(raw(product), raw(version))
    if (status === 'BH_OK') check()
    else vectors.tells(vectors.refused(status, check), texts)
  }
}

function compareDefinitions (topology, expected) {
  vectors.only(expected, 'vhost json status')
  const define = () => topology.definitions(raw(expected.vhost ?? '/'))
  if ('status' in expected) vectors.refused(expected.status, define)
  else assert.deepEqual(JSON.parse(define()), expected.json)
}

vectors.cases('topology', each => {
  vectors.only(each, 'name policy topology expect')
  const { expect } = each
  if (vectors.status(each) !== 'BH_OK') {
    vectors.only(expect, 'status refused_by error')
    const error = vectors.refused(expect.status, () => vectors.topology(each, vectors.policy(each)))
    vectors.tells(error, expect.error)
    return
  }
  const policy = vectors.policy(each)
  vectors.topology(each, policy)
  const topology = vectors.topology(each, policy)
  vectors.compare(expect, {
    queue: is(() => topology.queue, text),
    strategy: is(() => topology.strategy),
    parked_queue: is(() => topology.parkedQueue, text),
    worst_lateness_ms: is(() => topology.worstLateness),
    rungs: expected => compareRungs(topology, expected),
    on_demand_rungs: is(() => declared(topology, true)),
    declarations: expected => compareDeclarations(topology, expected),
    brokers: expected => compareBrokers(topology, expected),
    preview: expected => comparePreview(topology, expected),
    shares: expected => compareShares(topology, expected),
    definitions: expected => compareDefinitions(topology, expected)
  })
})

test('a topology without a policy has the default one', () => {
  assert.equal(new Topology({ queue: 'orders' }).policy.maxAttempts, new Policy().maxAttempts)
})

test('a topology keeps its policy alive', () => {
  const topology = new Topology({ queue: 'orders', policy: new Policy({ maxAttempts: 2 }) })
  global.gc?.()
  assert.equal(new Plan(new History(new Delivery(), { topology }), topology).action, 'retry')
})

test('a series that is none is refused with those there are', () => {
  assert.throws(() => new Topology({ queue: 'orders', series: 7 }), error => {
    return error instanceof ArgumentError && /give one of 5, 10, 20, 40/.test(error.message)
  })
})

test('NT12: an argument of the work queue may be an empty string', () => {
  const workQueueArguments = { 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': 'work.parked' }
  const { declarations } = new Topology({ queue: 'work', workQueue: 'quorum', workQueueArguments })
  const { arguments: declared } = declarations.find(({ name }) => name === 'work')
  assert.deepEqual({ ...declared, ...workQueueArguments }, declared)
})

test('what is no policy is refused', () => {
  assert.throws(() => new Topology({ queue: 'orders', policy: { initial: '10s' } }), /give a Policy/)
})

test('a topology cannot be changed', () => {
  const { declarations } = new Topology({ queue: 'orders' })
  assert.throws(() => { declarations[0].name = 'other' }, TypeError)
  assert.throws(() => declarations.pop(), TypeError)
})
