'use strict'
// The shared vectors of the calls of handlers, over the addon: it has no class of its own.

const assert = require('node:assert/strict')

const { c, inside } = require('./internals')
const vectors = require('./vectors')

const { NATIVE } = inside('native')
const ACTIONS = ['none', 'ack', 'retry', 'reject', 'return', 'park', 'drop', 'replay', 'defer']

class Sequence {
  constructor (messages) {
    const [status, calls] = c.bh_calls_new(Buffer.from('0123456789abcdef'))
    assert.equal(status, 0)
    Object.assign(this, { calls, messages, numbers: new Map(), now: 0, compared: 0 })
  }

  play (row) {
    vectors.only(row, 'at_ms do arrival')
    this.now = row.at_ms ?? this.now
    const [verb, name, ...args] = row.do
    const { calls, numbers, now } = this
    switch (verb) {
      case 'open_channel': numbers.set(name, calls.open_channel()); break
      case 'end': calls.end(numbers.get(name), ACTIONS.indexOf(args[0]), now); break
      case 'lose_channel': calls.lose_channel(numbers.get(name), args[0], now); break
      default:
        assert.equal(verb, 'arrive')
        assert.deepEqual(this.arrive(numbers.get(name), ...args), row.arrival, JSON.stringify(row))
        this.compared++
    }
  }

  arrive (channel, message, redelivered, name) {
    const given = this.messages[message]
    vectors.only(given, 'delivery queue body')
    const history = vectors.history({}, vectors.delivery(given))
    const [kind, call, action] = this.calls.arrive(
      channel, history[NATIVE], given.queue ?? 'orders', given.body ?? 'body', redelivered ? 1 : 0,
      this.now
    )
    if (kind === c.BH_ARRIVAL_ACK) return ['ack', ACTIONS[action]]
    if (kind === c.BH_ARRIVAL_WAIT) {
      return ['wait', [...this.numbers].find(([key, number]) => !key.startsWith('channel') && number === call)[0]]
    }
    this.numbers.set(name, call)
    return ['call', call ? 'kept' : 'not kept']
  }
}

vectors.cases('calls', each => {
  vectors.only(each, 'name messages expect')
  vectors.only(each.expect, 'history')
  const sequence = new Sequence(each.messages)
  for (const row of each.expect.history) sequence.play(row)
  assert.ok(sequence.compared)
})
