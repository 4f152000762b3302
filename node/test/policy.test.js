'use strict'

const assert = require('node:assert/strict')
const { test } = require('node:test')
const { inspect } = require('node:util')

const { Policy, PolicyError } = require('backhop')

const { inside } = require('./internals')
const vectors = require('./vectors')

const { NATIVE } = inside('native')
const { is } = vectors

function compareDelays (policy, rows) {
  for (const [attempt, previous, u, expected] of rows) {
    // the core's own: the class refuses numbers below or beyond the range
    const delay = policy[NATIVE].delay_ms(vectors.integer(attempt), Number(previous), vectors.fraction(u))
    assert.equal(delay, vectors.integer(expected), `attempt ${attempt}, u ${vectors.fraction(u)}`)
  }
}

function comparePreview (policy, rows) {
  for (const [attempt, lowest, mean, highest, total] of rows) {
    assert.deepEqual(policy.row(vectors.integer(attempt)), {
      attempt: vectors.integer(attempt), lowest, mean, highest, total, rungs: 0
    })
  }
}

vectors.cases('policy', each => {
  vectors.only(each, 'name policy expect')
  const { expect } = each
  if (vectors.status(each) !== 'BH_OK') {
    vectors.only(expect, 'status refused_by error')
    assert.ok(expect.refused_by)
    vectors.tells(vectors.refused(expect.status, () => vectors.policy(each)), expect.error)
    return
  }
  vectors.policy(each)
  const policy = vectors.policy(each)
  vectors.compare(expect, {
    kind: is(() => policy.kind),
    jitter: is(() => policy.jitter),
    max_attempts: is(() => policy.maxAttempts, vectors.integer),
    max_crashes: is(() => policy.maxCrashes, vectors.integer),
    max_deferrals: is(() => policy.maxDeferrals, vectors.integer),
    max_ms: is(() => policy.max, vectors.integer),
    max_age_ms: is(() => policy.maxAge, vectors.integer),
    max_retry_after_ms: is(() => policy.maxRetryAfter, vectors.integer),
    delays: expected => compareDelays(policy, expected),
    preview: expected => comparePreview(policy, expected)
  })
})

test('durations are milliseconds or strings', () => {
  for (const initial of [2000, '2s', '2 s', '0 min 2 s', '2000ms']) {
    assert.equal(new Policy({ initial, jitter: 'none' }).delay(1), 2000)
  }
})

test('a duration is 0, which can mean no limit, only if 0 is given', () => {
  for (const maxAge of [0.4, 1e-300, '0.4ms', 1.4]) assert.equal(new Policy({ maxAge }).maxAge, 1)
  for (const maxAge of [0, -0, '0s']) assert.equal(new Policy({ maxAge }).maxAge, 0)
})

for (const initial of ['soon', '2000', '', ' ', '1'.repeat(200), true, [1], {}, NaN, 10n]) {
  test(`${inspect(initial)} is no duration, and is refused with what to give`, () => {
    assert.throws(() => new Policy({ initial }), {
      name: 'ArgumentError', message: /^initial is .*: give milliseconds, or a string with its unit as "30s"/
    })
  })
}

test('a duration beyond all bounds is refused by the policy', () => {
  for (const initial of [Infinity, -Infinity, '329000d']) assert.throws(() => new Policy({ initial }), PolicyError)
})

test('a name that is none is refused with those there are', () => {
  for (const kind of ['cubic', 'toString', 7]) {
    assert.throws(() => new Policy({ kind }), /kind is .*: give one of exponential, linear, fixed, steps/)
  }
})

test('an option that is misspelt is refused with those there are', () => {
  assert.throws(() => new Policy({ maxAttemps: 3 }), /no option maxAttemps: give any of .*maxAttempts/)
})

test('a count that is no whole number is refused', () => {
  for (const maxAttempts of [1.5, '3', NaN]) assert.throws(() => new Policy({ maxAttempts }), /give a whole number/)
})

test('steps need no kind', () => {
  const policy = new Policy({ steps: ['1s', '1m'], jitter: 'none' })
  assert.equal(policy.kind, 'steps')
  assert.deepEqual([...policy.preview()].map(({ mean }) => mean), [1000, 60000])
})

test('a policy cannot be changed', () => {
  const policy = new Policy()
  assert.throws(() => { policy.maxAttempts = 3 }, TypeError)
})

test('the preview prints as a table and is data', () => {
  const preview = new Policy({ initial: '10s', factor: 3, max: '1h', jitter: 0.2, maxAttempts: 4 }).preview()
  assert.deepEqual(preview[1], { attempt: 2, lowest: 20000, mean: 30000, highest: 40000, total: 40000, rungs: 4 })
  assert.equal(String(preview), inspect(preview))
  assert.deepEqual(String(preview).split('\n'), [
    'failure     lowest        mean    highest       total  rungs',
    '      1        8 s        10 s     12.5 s        10 s      3',
    '      2       20 s        30 s       40 s        40 s      4',
    '      3  1 min 3 s  1 min 30 s  2 min 5 s  2 min 10 s      4'
  ])
  assert.equal(JSON.parse(JSON.stringify(preview)).length, 3)
  assert.deepEqual(preview.map(({ attempt }) => attempt), [1, 2, 3])
})

test('the preview of a policy that no ladder serves is its formula', () => {
  const preview = new Policy({ initial: 10, max: 50, kind: 'fixed', maxAttempts: 2 }).preview()
  assert.deepEqual([...preview], [{ attempt: 1, lowest: 8, mean: 10, highest: 12, total: 10, rungs: 0 }])
})

test('the preview of a policy without a limit ends', () => {
  assert.equal(new Policy({ maxAttempts: 0 }).preview().length, 20)
  assert.equal(new Policy({ maxAttempts: 0 }).preview(3).length, 3)
})

test('a policy keeps its steps, whatever becomes of the list that it was given', () => {
  const steps = [1000, '2s']
  const policy = new Policy({ steps })
  steps.push(3000)
  assert.deepEqual(policy.toJSON(), { steps: [1000, '2s'] })
  function * generated () { yield* [1000, '2s'] }
  for (const given of [steps.slice(0, 2), new Set([1000, '2s']), generated()]) {
    const again = new Policy(JSON.parse(JSON.stringify(new Policy({ steps: given }))))
    assert.deepEqual(again, policy)
    assert.equal(again.maxAttempts, policy.maxAttempts)
    assert.deepEqual(again.toJSON(), policy.toJSON())
  }
})

test('a policy goes through JSON', () => {
  const policy = new Policy({ steps: ['1s', 2000], jitter: 'full' })
  const again = new Policy(JSON.parse(JSON.stringify(policy)))
  assert.deepEqual([...again.preview()], [...policy.preview()])
  assert.equal(inspect(again), inspect(policy))
})
