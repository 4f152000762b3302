'use strict'
// The shared vectors of the ledger, over the addon: it has no class of its own.

const assert = require('node:assert/strict')

const { c } = require('./internals')
const vectors = require('./vectors')

const ACTIONS = ['none', 'ack', 'retry', 'reject', 'return', 'park', 'drop', 'replay', 'defer']
const ENDINGS = ['orderly', 'cut', 'error', 'missing']
const STATES = [
  'none', 'arrived', 'taken', 'settled', 'due', 'sent', 'waiting', 'confirmed', 'abandoned', 'acknowledged', 'rejected',
  'given-back'
]
const STEPS = ['rest', 'emit', 'ack', 'nack', 'reject', 'give_back', 'open', 'declare', 'publish']
const BACK_OFF = { kind: 'fixed', initial_ms: 100, jitter: 'none' }
const CODES = Object.fromEntries(Array.from({ length: 41 }, (_, i) => [c.bh_status_name(-i), 0 - i])) // no -0

class Sequence {
  constructor ({ policy = BACK_OFF, random }) {
    const bytes = random ? Buffer.from(random.hex, 'hex') : Buffer.alloc(8)
    const [status, ledger] = c.bh_ledger_new(vectors.backOff(policy), bytes)
    assert.equal(status, 0)
    Object.assign(this, { ledger, numbers: new Map(), now: 0, compared: 0 })
  }

  play (row) {
    vectors.only(row, 'at_ms do status may_publish step steps due_ms states counts copies')
    const { ledger } = this
    const mayPublish = row.may_publish === false ? 0 : 1
    this.now = row.at_ms ?? this.now
    if (row.do) this.same(this.call(...row.do), CODES[row.status ?? 'BH_OK'], row)
    if (row.step) {
      this.same(this.step(ledger.next(this.now, mayPublish)), row.step, row)
    }
    if (row.steps) {
      const steps = []
      for (let step; steps.length < 200 && (step = ledger.next(this.now, mayPublish))[0] !== c.BH_STEP_REST;) {
        steps.push(this.step(step))
      }
      this.same(steps, row.steps, row)
    }
    for (const [name, state] of Object.entries(row.states ?? {})) {
      this.same(STATES[ledger.state(this.number(name))], state, row)
    }
    for (const [state, count] of Object.entries(row.counts ?? {})) {
      this.same(ledger.count(STATES.indexOf(state)), count, row)
    }
    if ('due_ms' in row) this.same(ledger.due_ms(), row.due_ms ?? -1, row)
    if ('copies' in row) this.same(ledger.copies(), row.copies, row)
  }

  same (got, expected, row) {
    assert.deepEqual(got, expected, `${JSON.stringify(row)}: ${JSON.stringify(got)}`)
    this.compared++
  }

  number (name) {
    const number = typeof name === 'number' ? name : this.numbers.get(name)
    assert.notEqual(number, undefined, `nothing has the name ${name}`)
    return number
  }

  /** By its name; a failure's status is below 0. */
  keep (name, number) {
    assert.notEqual(number, 0)
    if (number < 0) return number
    this.numbers.set(name, number)
    return 0
  }

  call (verb, ...args) {
    const { ledger, now } = this
    const [first, second, third, fourth] = args
    switch (verb) {
      case 'open_channel':
      case 'open_publisher': return this.keep(first, ledger[verb]())
      case 'arrive': return this.keep(third, ledger.arrive(this.number(first), second))
      case 'acknowledge':
      case 'give_back': return ledger[verb](this.number(first))
      case 'abandon': return ledger.abandon(this.number(first), now)
      case 'settle':
        return ledger.settle(
          this.number(first), ACTIONS.indexOf(second), third, fourth ?? 'id', 'events', 'order.created'
        )
      case 'close_channel':
      case 'lose_channel': this.same(ledger[verb](this.number(first)), second, args); break
      case 'set_restores': ledger.set_restores(first ? 1 : 0); break
      case 'publisher_failed': ledger.publisher_failed(CODES[first], now); break
      case 'close_publisher':
        this.same(Boolean(ledger.close_publisher(this.number(first), ENDINGS.indexOf(second), now)), third, args)
        break
      case 'disconnect': ledger.disconnect(ENDINGS.indexOf(first), now); break
      case 'confirm': ledger.confirm(this.number(first), second, third ? 1 : 0, fourth === false ? 0 : 1, now); break
      case 'return': c.bh_ledger_return(ledger, this.number(first), second, 'events', third ?? 'order.created'); break
      case 'block': ledger.block(first ? 1 : 0, now); break
      case 'rung': ledger.rung(first, CODES[second], now); break
      case 'forget_rungs': ledger[verb](); break
      default:
        assert.match(verb, /^set_/)
        return ledger[verb](...args)
    }
    return 0
  }

  step ([number, entryNumber, channelNumber, publisher, tag, multiple, event, status, delay, count]) {
    const names = new Map(Array.from(this.numbers, ([name, number]) => [number, name]))
    const kind = STEPS[number]
    const entry = names.get(entryNumber) ?? ''
    const channel = names.get(channelNumber) ?? ''
    switch (kind) {
      case 'emit': return [kind, c.bh_event_name(event), entry, c.bh_status_name(status), delay, count]
      case 'ack': return [kind, channel, tag, Boolean(multiple)]
      case 'open': return [kind]
      case 'declare': return [kind, delay]
      case 'publish': return [kind, entry, names.get(publisher), tag]
      default: return [kind, channel, tag, entry]
    }
  }
}

vectors.cases('ledger', each => {
  vectors.only(each, 'name policy random expect')
  vectors.only(each.expect, 'history')
  const sequence = new Sequence(each)
  for (const row of each.expect.history) sequence.play(row)
  assert.ok(sequence.compared)
})
