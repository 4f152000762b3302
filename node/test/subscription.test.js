'use strict'
// The shared vectors of the subscription, over the addon: it has no class of its own.

const assert = require('node:assert/strict')

const { c } = require('./internals')
const vectors = require('./vectors')

const LOSSES = ['consumer', 'channel', 'connection']
const STEPS = ['rest', 'emit', 'declare', 'consume', 'give_up']
const BACK_OFF = { kind: 'linear', initial_ms: 100, jitter: 'none' }
const CODES = Object.fromEntries(Array.from({ length: 41 }, (_, i) => [c.bh_status_name(-i), 0 - i])) // no -0

function call (subscription, now, verb, argument) {
  if (verb === 'lost') subscription.lost(LOSSES.indexOf(argument), now)
  else if (verb === 'failed') subscription.failed(CODES[argument], now)
  else subscription[verb]()
}

function noted ([number, event, status, delay]) {
  const kind = STEPS[number]
  if (kind === 'emit') return [kind, c.bh_event_name(event), c.bh_status_name(status), delay]
  return kind === 'give_up' ? [kind, c.bh_status_name(status)] : [kind]
}

vectors.cases('subscription', each => {
  vectors.only(each, 'name policy random expect')
  vectors.only(each.expect, 'history')
  const random = each.random ? Buffer.from(each.random.hex, 'hex') : Buffer.alloc(8)
  const [status, subscription] = c.bh_subscription_new(vectors.backOff(each.policy ?? BACK_OFF), random)
  assert.equal(status, 0)
  let now = 0
  let compared = 0
  for (const row of each.expect.history) {
    vectors.only(row, 'at_ms do may_subscribe steps due_ms is_consuming')
    now = row.at_ms ?? now
    if (row.do) call(subscription, now, ...row.do)
    if (row.steps) {
      const steps = []
      let step
      const next = () => (step = subscription.next(row.may_subscribe === false ? 0 : 1, now))
      while (steps.length < 10 && next()[0] !== c.BH_SUBSCRIPTION_REST) steps.push(noted(step))
      assert.deepEqual(steps, row.steps, JSON.stringify(row))
      if ('due_ms' in row) assert.equal(step.at(-1), row.due_ms ?? -1, JSON.stringify(row))
      compared++
    }
    if ('is_consuming' in row) assert.equal(Boolean(subscription.is_consuming()), row.is_consuming, JSON.stringify(row))
  }
  assert.ok(compared)
})
