'use strict'

const assert = require('node:assert/strict')
const { test } = require('node:test')

const { Breaker, Drop, Park, Policy, RetryAfter, Topology } = require('backhop')
const { Clock, rehearse, seededRandom } = require('backhop/testing')

const { longTest } = require('./profile')

const policy = new Policy({ initial: '1s', factor: 2, max: '1m', jitter: 'none', maxAttempts: 4 })

async function fail () {
  throw new TypeError('507 queue is full')
}

test('a handler that always fails sees its message until it is parked', async () => {
  const rehearsal = await rehearse(fail, 'body', { policy })
  assert.deepEqual([...rehearsal].map(({ number }) => number), [1, 2, 3, 4])
  assert.deepEqual(rehearsal.delays, [1000, 2000, 4000])
  assert.deepEqual([...rehearsal].map(({ at }) => at), [0, 1000, 3000, 7000])
  assert.deepEqual([rehearsal.outcome, rehearsal.reason], ['parked', 'exhausted'])
  assert.equal(rehearsal.errors.length, 4)
  assert.match(String(rehearsal), /attempt {2}3 after {10}3 s: TypeError: 507 queue is full, again in 4 s/)
  assert.match(String(rehearsal), /\nparked \(exhausted\)$/)
})

test('N4-5: a message as JSON has what identifies it', async () => {
  let json
  await rehearse(message => { json = JSON.stringify(message) }, 'body',
    { policy, queue: 'orders', properties: { messageId: '7' } })
  assert.deepEqual(JSON.parse(json),
    { id: '7', attempt: 1, queue: 'orders', exchange: '', routingKey: 'orders', size: 4 })
})

test('a handler sees what became of its message before', async () => {
  const seen = []
  const rehearsal = await rehearse(message => {
    seen.push([message.attempt, message.lastError, message.exchange, message.routingKey, message.lastDelay,
      String(message.content)])
    if (message.attempt === 1) throw new RetryAfter('30s', 'busy')
  }, 'body', { policy, queue: 'orders', exchange: 'events', routingKey: 'order.created' })
  assert.equal(rehearsal.outcome, 'acked')
  assert.deepEqual(seen, [
    [1, '', 'events', 'order.created', undefined, 'body'], [2, 'busy', 'events', 'order.created', 31500, 'body']
  ])
})

test('park, drop and never end it at once', async () => {
  const park = await rehearse(() => { throw new Park('no such page') })
  assert.deepEqual([park.outcome, park.reason, park.length], ['parked', 'permanent', 1])
  assert.equal((await rehearse(() => { throw new Drop() })).outcome, 'dropped')
  const never = await rehearse(fail, '', { never: [TypeError] })
  assert.deepEqual([never.reason, never.length], ['permanent', 1])
})

for (const strategy of ['reject', 'native']) {
  test(`strategy ${strategy}, of the broker alone, counts too`, async () => {
    const policy = new Policy({ initial: '5s', kind: 'fixed', jitter: 'none', maxAttempts: 3 })
    const rehearsal = await rehearse(fail, '', { policy, strategy })
    assert.deepEqual([rehearsal.delays, rehearsal.reason], [[5000, 5000], 'exhausted'])
  })

  test(`strategy ${strategy} counts an earlier count once`, async () => {
    const policy = new Policy({ initial: '5s', kind: 'fixed', jitter: 'none', maxAttempts: 6 })
    const rehearsal = await rehearse(fail, '', { policy, strategy, headers: { 'backhop-attempts': 3 } })
    assert.deepEqual([...rehearsal].map(({ number }) => number), [4, 5, 6])
  })
}

test('a rehearsal prints every error that a handler throws', async () => {
  const once = { policy: new Policy({ maxAttempts: 1 }) }
  const hostile = new Proxy({}, { get () { throw new Error('trap') }, getPrototypeOf () { throw new Error('trap') } })
  const printed = async thrown =>
    String(await rehearse(() => { throw thrown }, '', once)).split('\n')[0].split(': ').slice(1)
  assert.deepEqual(await printed(Object.create(null)), ['[Object', 'null prototype] {}'])
  assert.equal((await printed({ toString: null })).length, 2)
  assert.ok((await printed(hostile)).length)
  assert.deepEqual(await printed(new TypeError('no')), ['TypeError', 'no'])
  assert.deepEqual(await printed('text'), ['text'])
  assert.match(String(await rehearse(() => { throw new RetryAfter('5s') }, '', { policy })), /: RetryAfter, again in/)
})

test('what would go on for ever ends', async () => {
  const rehearsal = await rehearse(fail, '', { policy: new Policy({ maxAttempts: 0 }), mostAttempts: 7 })
  assert.deepEqual([rehearsal.length, rehearsal.outcome], [7, 'waiting'])
})

test('a message that crashes its consumers is not handed to the handler', async () => {
  const headers = { 'x-delivery-count': 1, 'backhop-crashes': 20 }
  const rehearsal = await rehearse(() => assert.fail(), '', { headers })
  assert.deepEqual([rehearsal.reason, rehearsal.errors], ['poison', []])
})

test('jitter is the same in every run', async () => {
  const policy = new Policy({ initial: '10s', maxAttempts: 6 })
  const { delays } = await rehearse(fail, '', { policy })
  assert.deepEqual((await rehearse(fail, '', { policy })).delays, delays)
  assert.notDeepEqual((await rehearse(fail, '', { policy, random: seededRandom(1) })).delays, delays)
  policy.preview().forEach((row, i) => { // a rung below or above
    assert.ok(row.lowest * 0.79 <= delays[i] && delays[i] <= row.highest * 1.26)
  })
})

test('time passes as the clock says', async () => {
  const clock = new Clock()
  const policy = new Policy({ initial: '1s', jitter: 'none', maxAge: '150s' })
  const rehearsal = await rehearse(() => {
    clock.advance('1m')
    throw new Error('late')
  }, '', { policy, clock })
  assert.deepEqual([...rehearsal].map(({ at }) => at), [0, 61000, 123000, 187000])
  assert.equal(rehearsal.reason, 'too-old')
})

test('an error has the policy of the first that matches, and all have one count', async () => {
  const policyOf = (initial, maxAttempts) => new Policy({ kind: 'fixed', initial, jitter: 'none', maxAttempts })
  const [main, slow, status] = [policyOf('1s', 10), policyOf('50s', 4), policyOf('10s', 20)]
  const policies = [[RangeError, slow], [error => error.status === 429, status], [Error, main]]
  const errors = [
    new Error('no'), new RangeError('slow'), Object.assign(new TypeError('429'), { status: 429 }),
    Object.assign(new RangeError('both'), { status: 429 })
  ]
  for (const given of [policies, new Map(policies), policies.values()]) {
    let attempt = 0
    const rehearsal = await rehearse(() => { throw errors[attempt++] }, '', { policy: main, policies: given })
    assert.deepEqual(rehearsal.delays, [1000, 50_000, 10_000])
    assert.deepEqual([rehearsal.outcome, rehearsal.reason, rehearsal.length], ['parked', 'exhausted', 4])
  }
  const topology = new Topology({ queue: 'work', policy: main, policies: [slow] })
  await rehearse(() => {}, '', { topology, policies: [[RangeError, slow]] })
  await assert.rejects(rehearse(() => {}, '', { topology, policies }), { name: 'ForeignPolicyError' })
})

longTest('NT18: the core\'s objects of many rehearsals are freed, even if no test lets the loop turn', async () => {
  const limited = { policy: new Policy({ maxAttempts: 10 }) }
  const many = async () => {
    for (let i = 0; i < 1000; i++) await rehearse(fail, 'x', limited)
    global.gc()
    return process.memoryUsage().rss
  }
  await many()
  const before = await many()
  const after = await many()
  assert.ok(after - before < 32 * 2 ** 20, `${Math.round((after - before) / 2 ** 20)} MiB more`)
})

test('a message waits without an attempt while its breaker is open', async () => {
  const pauses = new Policy({ kind: 'fixed', initial: '1m', jitter: 'none' })
  const breaker = new Breaker('api', { rowFailures: 2, probeSuccesses: 1, pauses })
  const clock = new Clock()
  const times = []
  const rehearsal = await rehearse(() => {
    times.push(clock.now)
    if (times.length < 4) throw new TypeError('down')
  }, 'body', { policy, breaker, clock })
  const states = rehearsal.map(each => [each.number, each.plan.action, each.breaker])
  const calls = states.filter(([, action]) => action !== 'defer')
  assert.deepEqual(calls, [[1, 'retry', 'closed'], [2, 'retry', 'open'], [3, 'retry', 'open'], [4, 'ack', 'closed']])
  assert.deepEqual(states[2], [3, 'defer', 'open'])
  assert.ok(times[2] - times[1] >= 60_000)
  assert.match(String(rehearsal), /attempt {2}3 after {10}3 s: no call, again in .* \(breaker open\)/)
})

test('a message waits for its key', async () => {
  const breaker = new Breaker('hosts', { rowFailures: 1, key: ({ headers }) => headers.host })
  await rehearse(fail, '', { policy, breaker, headers: { host: 'a' }, mostAttempts: 1 })
  const [other] = await rehearse(() => {}, '', { policy, breaker, headers: { host: 'b' } })
  const [same] = await rehearse(() => {}, '', { policy, breaker, headers: { host: 'a' }, mostAttempts: 1 })
  assert.deepEqual([other.plan.action, same.plan.action], ['ack', 'defer'])
  const [wrong] = await rehearse(() => {}, '', { policy, breaker, mostAttempts: 1 })
  assert.match(String(wrong.error), /returned is undefined/)
})
