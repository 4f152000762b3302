'use strict'
// The breaker: the shared vectors, and its public class.

const assert = require('node:assert/strict')
const { test } = require('node:test')

const { Breaker, Policy, RetryAfter, Throttled } = require('backhop')
const { Retrier } = require('backhop/amqplib')

const { c, inside, outcomes: { Choice } } = require('./internals')
const vectors = require('./vectors')

const { now } = inside('breaker')

const SETTINGS = [
  'window_ms', 'least_calls', 'failure_percent', 'row_failures', 'slow_ms', 'slow_percent', 'probe_successes',
  'probe_timeout_ms', 'ramp_calls', 'throttled_opens'
]
const STATES = ['closed', 'open', 'half-open', 'disabled']
const KINDS = ['success', 'failure', 'ignored', 'throttled']
const PAUSES = { kind: 'fixed', initial_ms: 10000, jitter: 'none' }
const ROW = 'at_ms open_until_ms close disable permit record calls kind duration_ms retry_after_ms whole_queue error ' +
  'counts refused_until_ms state reason until_ms limit pauses generation window'

class Sequence {
  constructor (breaker) {
    Object.assign(this, { breaker, permits: new Map(), now: 0, compared: 0 })
  }

  play (row) {
    vectors.only(row, ROW)
    const { breaker } = this
    this.now = row.at_ms ?? this.now
    if ('open_until_ms' in row) assert.equal(breaker.open('', row.open_until_ms ?? -1, this.now), 0)
    if (row.close) breaker.close('', this.now)
    if (row.disable) breaker.disable('', this.now)
    for (const name of row.permit ?? []) this.permits.set(name, this.granted(row))
    for (const name of row.record ?? []) this.record(row, this.permits.get(name))
    for (let i = 0; i < (row.calls ?? 0); i++) this.record(row, this.granted(row))
    if ('refused_until_ms' in row) {
      const [generation, , until] = breaker.permit('', this.now)
      this.same([generation, until], [0, row.refused_until_ms ?? -1], row)
    }
    const [state, generation, until, limit, pauses, calls, failures, slow, , reason] = breaker.read('', this.now)
    const found = { state: STATES[state], generation, limit, pauses, reason, window: [calls, failures, slow] }
    found.until_ms = until === -1 ? null : until
    for (const key of Object.keys(found)) if (key in row) this.same(found[key], row[key], row)
  }

  same (got, expected, row) {
    assert.deepEqual(got, expected, `${JSON.stringify(row)}: ${JSON.stringify(got)}`)
    this.compared++
  }

  granted (row) {
    const permit = this.breaker.permit('', this.now)
    assert.notEqual(permit[0], 0, JSON.stringify(row))
    return permit
  }

  record (row, [generation, number]) {
    const counted = this.breaker.record(
      '', generation, number, KINDS.indexOf(row.kind ?? 'success'), row.duration_ms ?? 0,
      row.retry_after_ms ?? 0, row.whole_queue ? 1 : 0, row.error ?? '', this.now
    )
    this.same(Boolean(counted), row.counts ?? true, row)
  }
}

vectors.cases('breaker', each => {
  vectors.only(each, 'name settings pauses random expect')
  vectors.only(each.settings ?? {}, SETTINGS.join(' '))
  const defaults = c.bh_breaker_defaults()
  const settings = SETTINGS.map((name, i) => each.settings?.[name] ?? defaults[i])
  const pauses = each.pauses === null ? null : vectors.backOff(each.pauses ?? PAUSES)
  const random = each.random ? Buffer.from(each.random.hex, 'hex') : Buffer.alloc(8)
  const [status, breaker] = c.bh_breaker_new('', ...settings, 0, pauses, random)
  assert.equal(c.bh_status_name(status), vectors.status(each))
  assert.equal(c.bh_breaker_settings_error('', ...settings), each.expect.error ?? '')
  if (status !== 0) return
  vectors.only(each.expect, 'history')
  const sequence = new Sequence(breaker)
  for (const row of each.expect.history) sequence.play(row)
  assert.ok(sequence.compared)
})

// --- The public class ----------------------------------------------------------------------------

const SOON = {
  rowFailures: 2, probeSuccesses: 1, pauses: new Policy({ kind: 'fixed', initial: '10s', jitter: 'none' })
}

/** Fails calls at this time, in ms of the breaker's clock. */
function fail (breaker, count, at, { message, thrown = new TypeError('down') } = {}) {
  for (let i = 0; i < count; i++) {
    const isDownstreams = breaker._isDownstreams(thrown)
    breaker._begin(message, at).end({ outcome: 'failed' }, { errorClass: 'TypeError', isDownstreams }, at)
  }
}

test('a breaker has a name, a state and a reason, and opens and closes by hand', () => {
  const breaker = new Breaker('api')
  assert.deepEqual([breaker.name, breaker.state, breaker.hasKey], ['api', 'closed', false])
  breaker.open()
  assert.deepEqual([breaker.state, breaker._begin().delay], ['open', 60_000])
  breaker.open({ duration: '5s' })
  assert.ok(breaker._begin().delay > 4000)
  assert.match(breaker.reason, /by hand/)
  breaker.close()
  assert.deepEqual([breaker.state, breaker._begin().delay], ['closed', undefined])
  breaker.disable()
  assert.equal(breaker.state, 'disabled')
})

test('a breaker opens after failures in a row, and tells why', () => {
  const breaker = new Breaker('api', SOON)
  fail(breaker, 2, now())
  assert.deepEqual([breaker.state, breaker.reason], ['open', '2 failed in a row: TypeError'])
})

test('a breaker counts only the failures that errors selects', () => {
  const breaker = new Breaker('api', { ...SOON, errors: [RangeError, error => error?.code === 503] })
  const isDownstreams = thrown => breaker._isDownstreams(thrown)
  assert.ok(isDownstreams(new RangeError()) && isDownstreams({ code: 503 }))
  assert.ok(isDownstreams(new RetryAfter('1s')) && isDownstreams(new Throttled('1s', new RangeError())))
  assert.ok(!isDownstreams(new TypeError()) && !isDownstreams(new RetryAfter('1s', new TypeError())) &&
    !isDownstreams(null))
  fail(breaker, 5, now())
  assert.equal(breaker.state, 'closed')
  assert.ok(new Breaker('api')._isDownstreams(undefined))
})

test('a function of errors that throws counts for the downstream', () => {
  assert.ok(new Breaker('api', { errors: () => { throw new Error('mine') } })._isDownstreams(new TypeError()))
})

test('a breaker by key has a state for each key', () => {
  const breaker = new Breaker('hosts', { ...SOON, key: ({ host }) => host })
  fail(breaker, 2, now(), { message: { host: 'a' } })
  assert.deepEqual(['a', 'b'].map(key => breaker.stateOf(key)), ['open', 'closed'])
  assert.match(breaker.reasonOf('a'), /TypeError/)
  assert.ok(breaker._begin({ host: 'a' }).delay > 9000)
  assert.equal(breaker._begin({ host: 'b' }).delay, undefined)
  breaker.open({ key: 7 })
  assert.equal(breaker.stateOf('7'), 'open')
  breaker.close({ key: '7' })
  assert.equal(breaker.stateOf(7), 'closed')
  const says = text => error => error.message.includes(text)
  assert.throws(() => breaker.state, says('call stateOf(key)'))
  assert.throws(() => breaker.disable(), says('cannot be disabled'))
  assert.throws(() => breaker.open(), says('has a key: call open with one'))
  assert.throws(() => breaker._begin({}), says('key of the breaker "hosts" returned is undefined')) // R4-6
  assert.throws(() => new Breaker('api').close({ key: 'a' }), says('has no key'))
})

test('an option that cannot be used is refused by its name and unit', () => {
  const refused = {
    window: [5, /^window is 5: give a duration from 6 ms to 1 d$/],
    leastCalls: [0, /^leastCalls is 0: give a whole number from 1 to 1000000000$/],
    failurePercent: [101, /^failurePercent is 101: .* from 1 to 100$/],
    rowFailures: [-1, /^rowFailures is -1/],
    slow: ['2d', /^slow is '2d': give a duration from 0 ms to 1 d$/],
    slowPercent: [0.5, /^slowPercent is 0.5: give a whole number$/],
    probeTimeout: ['10', /^probeTimeout is '10': give milliseconds/],
    rampCalls: [0, /^rampCalls/],
    throttledOpens: [1, /^throttledOpens is 1: give true or false$/],
    errors: [[7], /^errors holds 7/],
    key: ['host', /^key is 'host': give a function/],
    pauses: [10, /^pauses is 10: give a Policy$/],
    windows: [1, /has no option windows/]
  }
  for (const [name, [value, message]] of Object.entries(refused)) {
    assert.throws(() => new Breaker('api', { [name]: value }), { name: 'ArgumentError', message })
  }
  for (const name of ['', 7, undefined, 'x'.repeat(65)]) {
    assert.throws(() => new Breaker(name), /^ArgumentError: the name of a Breaker/)
  }
})

test('a breaker by key is refused where no message can wait without an attempt', () => {
  const breaker = new Breaker('hosts', { key: () => 'a' })
  const policy = new Policy({ kind: 'fixed', initial: '5s', jitter: 'none' })
  for (const strategy of ['reject', 'native']) {
    assert.throws(() => new Retrier(null, { queue: 'orders', policy, strategy, breaker }), {
      name: 'StrategyError', message: new RegExp(`"hosts" has a key, and with the strategy ${strategy}`)
    })
  }
  assert.throws(() => new Retrier(null, { queue: 'orders', breaker: {} }), /breaker is \{\}: give a Breaker/)
})

test('Throttled may open the breaker', () => {
  const throttled = new Throttled('30s', '429', { wholeQueue: true })
  assert.deepEqual([throttled.wholeQueue, new Throttled(1).wholeQueue], [true, false])
  assert.throws(() => new Throttled(1, '', { wholeQueue: 1 }), /wholeQueue is 1: give true or false/)
  const result = new Choice({}).result(throttled)
  assert.deepEqual(result, { outcome: 'throttled', error: '429', retryAfter: 30_000, wholeQueue: true })
  const breaker = new Breaker('api', SOON)
  breaker._begin().end(result)
  assert.equal(breaker.state, 'open')
})
