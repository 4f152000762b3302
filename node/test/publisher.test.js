'use strict'
// What no broker does on demand: returns that are like no copy, confirms that are late, an original that is gone.

const assert = require('node:assert/strict')
const { describe, it } = require('node:test')

const { inside } = require('./internals')

const { Copy, Publisher, tellRefused } = inside('publisher')
const { BUDGET_MS } = inside('turns')

const turn = () => new Promise(setImmediate)

async function settle () {
  for (let i = 0; i < 10; i++) await turn() // on a slow machine one has time for less
}

/** A connection whose broker says what the test says. */
class Line {
  isOpen = true
  isBlocked = false
  published = []
  channels = 0

  watch (publisher) {
    this.publisher = publisher
  }

  async openConfirms (listener) {
    this.listener = listener
    this.channels++
    return {
      isOpen: true,
      publish: copy => {
        if (copy.content === null) throw new TypeError('it has no content')
        this.published.push(copy)
        return true
      },
      close () {}
    }
  }
}

const declared = { doubts: 0, doubt () { this.doubts++ }, needed: () => [], made () {}, hint: () => '' }

function publishing ({ confirmTimeout = 30_000 } = {}) {
  const line = new Line()
  return { line, publisher: new Publisher(line, {}, declared, confirmTimeout) }
}

function copyOf (id, { replayed, content = 'content', original } = {}) {
  const settled = []
  const plan = { delay: 100, onDemand: false, exchange: 'wait', routingKey: 'key', mandatory: true }
  return Object.assign(new Copy({
    plan,
    history: { id },
    id,
    properties: {},
    content,
    original: original ?? { isHere: true, settle: action => settled.push(action) },
    replayed
  }), { settled })
}

/** Keeps the processor. */
function work (ms) {
  const end = performance.now() + ms
  while (performance.now() < end);
}

describe('a publisher', () => {
  it('sends every copy again where a return is like none of them', async () => {
    const { line, publisher } = publishing()
    const copies = ['a', 'b'].map(id => copyOf(id))
    for (const copy of copies) publisher.publish(copy)
    await settle()
    line.listener.returned('wait', 'key', 'another')
    line.listener.answered(2, true, true)
    assert.deepEqual(copies.map(({ settled }) => settled), [[], []])
    assert.equal(publisher.pending, 2)
    publisher.lost('the test is over')
    assert.equal(publisher.pending, 0)
  })

  it('sends only the copy again that a return names', async () => {
    const { line, publisher } = publishing()
    const copies = ['a', 'b'].map(id => copyOf(id))
    for (const copy of copies) publisher.publish(copy)
    await settle()
    line.listener.returned('wait', 'key', 'a')
    line.listener.answered(2, true, true)
    assert.deepEqual(copies.map(({ settled }) => settled), [[], ['ack']])
    publisher.lost('the test is over')
  })

  it('sends one by one again what was in flight as the channel closed', async () => {
    const { line, publisher } = publishing()
    for (const id of ['a', 'b', 'c']) publisher.publish(copyOf(id))
    await settle()
    line.listener.closed('404')
    await settle()
    assert.deepEqual([line.channels, line.published.map(({ id }) => id).join('')], [2, 'abca'])
    line.listener.closed('404') // so it is this one
    await settle()
    assert.deepEqual([line.channels, line.published.map(({ id }) => id).join('')], [3, 'abcab'])
    line.listener.answered(1, false, true)
    line.listener.answered(2, false, true)
    assert.equal(publisher.pending, 1)
    publisher.lost('the test is over')
  })

  it('sends in the next turn what one has no time for', async () => {
    const { line, publisher } = publishing()
    const slow = { get isHere () { work(BUDGET_MS); return true }, settle () {} }
    const sent = () => line.published.map(({ id }) => id).join('')
    for (const id of ['a', 'b', 'c']) publisher.publish(copyOf(id, { original: slow }))
    while (!sent()) await Promise.resolve()
    assert.equal(sent(), 'a')
    publisher.publish(copyOf('d'))
    assert.equal(sent(), 'a')
    await settle()
    assert.deepEqual([sent(), publisher.pending], ['abcd', 4])
    publisher.lost('the test is over')
  })

  it('ends every copy with its connection, and the replay of one whose channel is closed', async () => {
    const { line, publisher } = publishing()
    const ends = []
    const replayed = error => ends.push(error?.code)
    publisher.publish(copyOf('gone', { replayed, original: { isHere: false } }))
    await settle()
    assert.deepEqual(ends, ['BH_ERR_CONNECTION'])
    publisher.publish(copyOf('unwritten', { replayed, content: null }))
    publisher.publish(copyOf('in flight', { replayed }))
    publisher.publish(copyOf('nacked'))
    await settle()
    line.listener.answered(2, false, false)
    publisher.lost('reset')
    assert.deepEqual(ends, ['BH_ERR_CONNECTION', 'BH_ERR_PUBLISH', 'BH_ERR_CONNECTION'])
    assert.equal(publisher.pending, 0)
    await publisher.idle()
    line.isOpen = false
    publisher.publish(copyOf('late', { replayed }))
    assert.equal(ends.length, 4)
  })

  it('waits for a confirm as long as it is told, and longer than a timer can', async () => {
    const { line, publisher } = publishing({ confirmTimeout: 90 * 86_400_000 })
    const overflows = []
    const heard = ({ name }) => { if (name === 'TimeoutOverflowWarning') overflows.push(name) }
    process.on('warning', heard)
    publisher.publish(copyOf('a'))
    await settle()
    await settle()
    process.off('warning', heard)
    assert.deepEqual([overflows, line.channels, publisher.pending], [[], 1, 1])
    publisher.lost('the test is over')
  })

  it('tells of a message that cannot even be named', () => {
    const history = { get id () { throw new Error('no') } }
    tellRefused(history, Symbol('what was thrown'))
    tellRefused(undefined, undefined)
  })
})
