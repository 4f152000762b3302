'use strict'
// Tests that no broker can do: answers in an order of the test's own, an original that is gone, a
// turn without time.

const assert = require('node:assert/strict')
const { describe, it } = require('node:test')

const { Policy } = require('backhop')

const { inside } = require('./internals')

const { Copy, Publisher } = inside('adapters/publisher')
const { BUDGET_MS } = inside('adapters/scheduler')

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
class Connection {
  isOpen = true
  isBlocked = false
  published = []
  declared = []
  channels = 0
  takes = 0 // ms, to publish one

  /** Returns the ids of the published messages, in their order. */
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

const QUICK = new Policy({ initial: 20, jitter: 'none' }) // a back-off, in ms

function publishing ({ isOwn = false, refusal } = {}) {
  const connection = new Connection()
  const emitted = []
  const emitter = {
    emit (name, fieldsOf) {
      emitted.push(name)
      Object.defineProperty(emitted, 'last', { value: fieldsOf(), configurable: true })
    },
    refused: () => emitted.push('refused')
  }
  const declaring = {
    isOwn,
    makesRungs: true,
    suggestion: '',
    forget () {},
    restore: async () => {
      connection.declared.push('topology')
      if (refusal) throw refusal
    }
  }
  const random = count => Buffer.alloc(count)
  const publisher = new Publisher(connection, {
    declaring, confirmTimeout: 30_000, backOff: QUICK, random, emitter
  })
  return { connection, publisher, emitted }
}

let tag = 0

function copyOf (id, { replayed, content = 'content', channel = 'channel', isOpen = () => true } = {}) {
  const settled = []
  const plan = {
    action: replayed ? 'replay' : 'retry', delay: 100, rung: 0, exchange: 'wait', routingKey: 'key', mandatory: true
  }
  const original = {
    channel, tag: ++tag, get isOpen () { return isOpen() }, settle: action => settled.push(action)
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
    const { connection, publisher, emitted } = publishing()
    const copies = ['a', 'b'].map(id => copyOf(id))
    for (const copy of copies) publisher.publish(copy)
    await until(() => connection.sent === 'ab')
    connection.listener.returned('wait', 'key', 'a', '312 NO_ROUTE')
    connection.listener.answered(2, true, true)
    assert.deepEqual(copies.map(({ settled }) => settled), [[], ['ack']])
    assert.deepEqual(emitted, ['returned', 'retried'])
    connection.end('the test is over')
  })

  it('sends one by one again what was in flight as the channel closed', async () => {
    const { connection, publisher, emitted } = publishing()
    for (const id of ['a', 'b', 'c']) publisher.publish(copyOf(id))
    await until(() => connection.sent === 'abc')
    const missing = { code: 404, text: 'NOT_FOUND' }
    connection.listener.closed(missing)
    await until(() => connection.sent.length > 3)
    assert.deepEqual([connection.channels, connection.sent], [2, 'abca'])
    connection.listener.closed(missing) // so it is this one
    await until(() => connection.sent.length > 4)
    assert.deepEqual([connection.channels, connection.sent], [3, 'abcab'])
    assert.deepEqual(emitted, ['unavailable', 'unavailable', 'returned'])
    connection.listener.answered(1, false, true)
    await until(() => connection.sent.length > 5)
    assert.equal(connection.sent, 'abcabc')
    connection.listener.answered(2, false, true)
    assert.equal(publisher.pending, 1)
    connection.end('the test is over')
  })

  it('opens a channel and declares again after the ledger\'s delays alone, and events have the deferrals', async () => {
    const { connection, publisher, emitted } = publishing({ isOwn: true })
    const open = connection.openConfirms
    let tries = 0
    connection.openConfirms = async listener => {
      if (++tries < 3) throw new Error('no channel is left')
      return open.call(connection, listener)
    }
    publisher.publish(Object.assign(copyOf('a'), { deferrals: 7 }))
    await until(() => connection.sent === 'a')
    assert.deepEqual([tries, connection.channels, emitted], [3, 1, ['unavailable', 'unavailable']])
    connection.listener.returned('wait', 'key', 'a', '312 NO_ROUTE')
    connection.listener.answered(1, false, true)
    await until(() => connection.sent === 'aa')
    assert.deepEqual(connection.declared, ['topology']) // before the copy was sent again
    connection.listener.answered(2, false, true)
    assert.equal(emitted.last.deferrals, 7)
    connection.end('the test is over')
  })

  it('waits for the confirm of a replay while the topology cannot be declared', async () => {
    const { connection, publisher, emitted } = publishing({ isOwn: true, refusal: new Error('access refused') })
    const ends = []
    const [inFlight, due] = ['r', 's'].map(id => copyOf(id, { replayed: error => ends.push([id, error?.code]) }))
    publisher.publish(inFlight)
    publisher.publish(copyOf('a'))
    await until(() => connection.sent === 'ra')
    connection.listener.returned('wait', 'key', 'a', '312 NO_ROUTE')
    publisher.publish(due)
    await until(() => emitted.includes('unavailable'))
    assert.deepEqual([ends, due.settled], [[['s', 'BH_ERR_PUBLISH']], ['back']])
    connection.listener.answered(1, false, true)
    assert.deepEqual([ends[1], inFlight.settled], [['r', undefined], ['ack']])
    connection.end('the test is over')
  })

  it('sends in the next turn what one has no time for', async () => {
    const { connection, publisher } = publishing()
    connection.takes = BUDGET_MS
    for (const id of ['a', 'b', 'c']) publisher.publish(copyOf(id))
    await until(() => connection.sent)
    assert.equal(connection.sent, 'a')
    publisher.publish(copyOf('d'))
    assert.equal(connection.sent, 'a')
    await until(() => connection.sent.length > 3)
    assert.deepEqual([connection.sent, publisher.pending], ['abcd', 4])
    connection.end('the test is over')
  })

  it('ends every copy with its connection, and the replay of one whose channel is closed', async () => {
    const { connection, publisher } = publishing()
    const ends = []
    const replayed = error => ends.push(error?.code)
    let isOpen = true
    publisher.publish(copyOf('gone', { replayed, channel: 'another', isOpen: () => isOpen }))
    isOpen = false
    await until(() => ends.length)
    assert.deepEqual(ends, ['BH_ERR_CONNECTION'])
    publisher.publish(copyOf('unwritten', { replayed, content: null }))
    publisher.publish(copyOf('in flight', { replayed }))
    publisher.publish(copyOf('nacked'))
    await until(() => connection.published.length > 1)
    connection.listener.answered(2, false, false)
    connection.end('reset')
    assert.deepEqual(ends, ['BH_ERR_CONNECTION', 'BH_ERR_CONTENT', 'BH_ERR_CONNECTION'])
    assert.equal(publisher.pending, 0)
    await publisher.idle()
    publisher.publish(copyOf('late', { replayed }))
    assert.equal(ends.length, 4)
  })

  it('emits stale for a copy whose channel closed, unless the copy is confirmed', async () => {
    const { connection, publisher, emitted } = publishing()
    let isOpen = true
    for (const id of ['a', 'b']) publisher.publish(copyOf(id, { isOpen: () => isOpen }))
    await until(() => connection.sent === 'ab')
    isOpen = false
    connection.listener.answered(1, false, true)
    assert.deepEqual(emitted, ['retried'])
    connection.listener.answered(2, false, false)
    assert.deepEqual([emitted, emitted.last, publisher.pending], [['retried', 'stale'], { id: 'b' }, 0])
    connection.end('the test is over')
  })

  it('publishes nothing more of a replay that is not taken, and gives its message back', async () => {
    const { connection, publisher } = publishing()
    let end
    const copy = copyOf('nacked', { replayed: error => { end = error.code } })
    publisher.publish(copy)
    await until(() => connection.sent)
    connection.listener.answered(1, false, false)
    assert.deepEqual([end, copy.settled, publisher.pending], ['BH_ERR_PUBLISH', ['back'], 0])
  })
})
