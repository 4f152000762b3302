'use strict'
// What no broker does on demand: answers in an order of the test's own, an original that is gone, a turn without time.

const assert = require('node:assert/strict')
const { describe, it } = require('node:test')

const { inside } = require('./internals')

const { Copy, Publisher } = inside('publisher')
const { BUDGET_MS } = inside('turns')

const PATIENCE = 60_000 // ms, that nothing takes which ends well
const turn = () => new Promise(setImmediate)

/** As many turns as it takes: on a slow machine one has time for less. */
async function until (isSo) {
  const end = Date.now() + PATIENCE
  while (!isSo()) {
    assert.ok(Date.now() < end, `it did not come true: ${isSo}`)
    await turn()
  }
}

/** A connection whose broker says what the test says. */
class Line {
  isOpen = true
  isBlocked = false
  published = []
  channels = 0
  takes = 0 // ms, to publish one

  /** The ids of what was published, in its order. */
  get sent () {
    return this.published.map(({ id }) => id).join('')
  }

  watch (publisher) {
    this.publisher = publisher
  }

  end (reason) {
    this.isOpen = false
    this.publisher.lost(reason)
  }

  async openConfirms (listener) {
    this.listener = listener
    this.channels++
    return {
      isOpen: true,
      publish: copy => {
        if (copy.content === null) throw new TypeError('it has no content')
        work(this.takes)
        this.published.push(copy)
        return true
      }
    }
  }
}

function publishing () {
  const line = new Line()
  const told = []
  const teller = { tell: name => told.push(name), note: name => told.push(name), refused: () => told.push('refused') }
  const declaring = { isThere: true, makesRungs: true, forgotten: '', doubt () {} }
  const random = count => Buffer.alloc(count)
  const publisher = new Publisher(line, { declaring, confirmTimeout: 30_000, random, teller })
  return { line, publisher, told }
}

let tag = 0

function copyOf (id, { replayed, content = 'content', channel = 'channel', isHere = () => true } = {}) {
  const settled = []
  const plan = { action: replayed ? 'replay' : 'retry', delay: 100, rung: 0, exchange: 'wait', routingKey: 'key', mandatory: true }
  const original = {
    channel, tag: ++tag, get isHere () { return isHere() }, settle: action => settled.push(action)
  }
  return Object.assign(new Copy({ plan, id, properties: {}, content, original, replayed }), { settled })
}

/** Keeps the processor. */
function work (ms) {
  const end = performance.now() + ms
  while (performance.now() < end);
}

describe('a publisher', () => {
  it('sends only the copy again that a return names', async () => {
    const { line, publisher, told } = publishing()
    const copies = ['a', 'b'].map(id => copyOf(id))
    for (const copy of copies) publisher.publish(copy)
    await until(() => line.sent === 'ab')
    line.listener.returned('wait', 'key', 'a', '312 NO_ROUTE')
    line.listener.answered(2, true, true)
    assert.deepEqual(copies.map(({ settled }) => settled), [[], ['ack']])
    assert.deepEqual(told, ['returned', 'retried'])
    line.end('the test is over')
  })

  it('sends one by one again what was in flight as the channel closed', async () => {
    const { line, publisher, told } = publishing()
    for (const id of ['a', 'b', 'c']) publisher.publish(copyOf(id))
    await until(() => line.sent === 'abc')
    const missing = { code: 404, text: 'NOT_FOUND' }
    line.listener.closed(missing)
    await until(() => line.sent.length > 3)
    assert.deepEqual([line.channels, line.sent], [2, 'abca'])
    line.listener.closed(missing) // so it is this one
    await until(() => line.sent.length > 4)
    assert.deepEqual([line.channels, line.sent], [3, 'abcab'])
    assert.deepEqual(told, ['unavailable', 'unavailable', 'returned'])
    line.listener.answered(1, false, true)
    await until(() => line.sent.length > 5)
    assert.equal(line.sent, 'abcabc')
    line.listener.answered(2, false, true)
    assert.equal(publisher.pending, 1)
    line.end('the test is over')
  })

  it('sends in the next turn what one has no time for', async () => {
    const { line, publisher } = publishing()
    line.takes = BUDGET_MS
    for (const id of ['a', 'b', 'c']) publisher.publish(copyOf(id))
    await until(() => line.sent)
    assert.equal(line.sent, 'a')
    publisher.publish(copyOf('d'))
    assert.equal(line.sent, 'a')
    await until(() => line.sent.length > 3)
    assert.deepEqual([line.sent, publisher.pending], ['abcd', 4])
    line.end('the test is over')
  })

  it('ends every copy with its connection, and the replay of one whose channel is closed', async () => {
    const { line, publisher } = publishing()
    const ends = []
    const replayed = error => ends.push(error?.code)
    let isHere = true
    publisher.publish(copyOf('gone', { replayed, channel: 'another', isHere: () => isHere }))
    isHere = false
    await until(() => ends.length)
    assert.deepEqual(ends, ['BH_ERR_CONNECTION'])
    publisher.publish(copyOf('unwritten', { replayed, content: null }))
    publisher.publish(copyOf('in flight', { replayed }))
    publisher.publish(copyOf('nacked'))
    await until(() => line.published.length > 1)
    line.listener.answered(2, false, false)
    line.end('reset')
    assert.deepEqual(ends, ['BH_ERR_CONNECTION', 'BH_ERR_CONTENT', 'BH_ERR_CONNECTION'])
    assert.equal(publisher.pending, 0)
    await publisher.idle()
    publisher.publish(copyOf('late', { replayed }))
    assert.equal(ends.length, 4)
  })

  it('publishes nothing more of a replay that is not taken, and gives its message back', async () => {
    const { line, publisher } = publishing()
    let end
    const copy = copyOf('nacked', { replayed: error => { end = error.code } })
    publisher.publish(copy)
    await until(() => line.sent)
    line.listener.answered(1, false, false)
    assert.deepEqual([end, copy.settled, publisher.pending], ['BH_ERR_PUBLISH', ['back'], 0])
  })
})
