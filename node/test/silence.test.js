'use strict'
// The shared vectors of the silence, over the addon: it has no class of its own.

const assert = require('node:assert/strict')

const { c } = require('./internals')
const vectors = require('./vectors')

const CODES = Object.fromEntries(Array.from({ length: 41 }, (_, i) => [c.bh_status_name(-i), 0 - i])) // no -0

/** Returns the event to emit. */
function call (silence, now, verb, argument) {
  if (verb === 'check') return silence.check(Number(argument === 'blocked'), now)
  if (verb === 'end') return silence.end(CODES[argument])
  if (verb === 'begin') silence.begin(now)
  else silence[verb]()
  return c.BH_EVENT_LAST
}

vectors.cases('silence', each => {
  vectors.only(each, 'name timeout_ms expect')
  vectors.only(each.expect, 'history')
  const [status, silence] = c.bh_silence_new(each.timeout_ms)
  assert.equal(status, 0)
  let now = 0
  let compared = 0
  for (const row of each.expect.history) {
    vectors.only(row, 'at_ms do event due_ms pause_ms is_silent text')
    now = row.at_ms ?? now
    const event = row.do ? c.bh_event_name(call(silence, now, ...row.do)) : ''
    const due = silence.due_ms()
    const found = {
      event: event || null,
      due_ms: due < 0 ? null : due,
      pause_ms: silence.pause_ms(),
      is_silent: Boolean(silence.is_silent()),
      text: String(silence.text())
    }
    for (const key of Object.keys(found)) {
      if (!(key in row)) continue
      assert.equal(found[key], row[key], JSON.stringify(row))
      compared++
    }
  }
  assert.ok(compared)
})
