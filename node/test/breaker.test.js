'use strict'
// The breaker: the shared vectors, and its public class.

const assert = require('node:assert/strict')

const { c } = require('./internals')
const vectors = require('./vectors')

const SETTINGS = ['window_ms', 'least_calls', 'failure_percent', 'row_failures', 'slow_ms', 'slow_percent', 'probe_successes',
  'probe_timeout_ms', 'ramp_calls', 'throttled_opens']
const STATES = ['closed', 'open', 'half-open', 'disabled']
const KINDS = ['success', 'failure', 'ignored', 'throttled']
const PAUSES = { kind: 'fixed', initial_ms: 10000, jitter: 'none' }
const ROW = 'at_ms open_until_ms close disable permit record calls kind duration_ms retry_after_ms whole_queue error counts ' +
  'refused_until_ms state reason until_ms limit pauses generation window'

function pausesOf (given) {
  if (given === null) return null
  vectors.only(given, 'kind initial_ms max_ms jitter max_retry_after_ms')
  const [, policy] = c.bh_policy_new()
  policy.set_kind({ fixed: c.BH_KIND_FIXED, exponential: c.BH_KIND_EXPONENTIAL }[given.kind])
  policy.set_jitter({ none: c.BH_JITTER_NONE, full: c.BH_JITTER_FULL }[given.jitter], 0)
  for (const key of ['initial_ms', 'max_ms', 'max_retry_after_ms']) if (key in given) policy[`set_${key}`](given[key])
  return policy
}

class Sequence {
  constructor (breaker) {
    Object.assign(this, { breaker, permits: new Map(), now: 0, compared: 0 })
  }

  play (row) {
    vectors.only(row, ROW)
    const { breaker } = this
    this.now = row.at_ms ?? this.now
    if ('open_until_ms' in row) assert.equal(breaker.open(row.open_until_ms ?? -1, this.now), 0)
    if (row.close) breaker.close(this.now)
    if (row.disable) breaker.disable(this.now)
    for (const name of row.permit ?? []) this.permits.set(name, this.granted(row))
    for (const name of row.record ?? []) this.record(row, this.permits.get(name))
    for (let i = 0; i < (row.calls ?? 0); i++) this.record(row, this.granted(row))
    if ('refused_until_ms' in row) {
      const [generation, , until] = breaker.permit(this.now)
      this.same([generation, until], [0, row.refused_until_ms ?? -1], row)
    }
    const [state, generation, until, limit, pauses, calls, failures, slow, , reason] = breaker.read(this.now)
    const found = { state: STATES[state], generation, limit, pauses, reason, window: [calls, failures, slow] }
    found.until_ms = until === -1 ? null : until
    for (const key of Object.keys(found)) if (key in row) this.same(found[key], row[key], row)
  }

  same (got, expected, row) {
    assert.deepEqual(got, expected, `${JSON.stringify(row)}: ${JSON.stringify(got)}`)
    this.compared++
  }

  granted (row) {
    const permit = this.breaker.permit(this.now)
    assert.notEqual(permit[0], 0, JSON.stringify(row))
    return permit
  }

  record (row, [generation, number]) {
    const counted = this.breaker.record(generation, number, KINDS.indexOf(row.kind ?? 'success'), row.duration_ms ?? 0,
      row.retry_after_ms ?? 0, row.whole_queue ? 1 : 0, row.error ?? '', this.now)
    this.same(Boolean(counted), row.counts ?? true, row)
  }
}

vectors.cases('breaker', each => {
  vectors.only(each, 'name settings pauses random expect')
  vectors.only(each.settings ?? {}, SETTINGS.join(' '))
  const defaults = c.bh_breaker_defaults()
  const settings = SETTINGS.map((name, i) => each.settings?.[name] ?? defaults[i])
  const pauses = pausesOf(each.pauses === undefined ? PAUSES : each.pauses)
  const random = each.random ? Buffer.from(each.random.hex, 'hex') : Buffer.alloc(8)
  const [status, breaker] = c.bh_breaker_new('', ...settings, pauses, random)
  assert.equal(c.bh_status_name(status), vectors.status(each))
  assert.equal(c.bh_breaker_settings_error('', ...settings), each.expect.error ?? '')
  if (status !== 0) return
  vectors.only(each.expect, 'history')
  const sequence = new Sequence(breaker)
  for (const row of each.expect.history) sequence.play(row)
  assert.ok(sequence.compared)
})
