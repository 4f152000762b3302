'use strict'
// The work of one turn of the event loop, and the work of the next.

const assert = require('node:assert/strict')
const { AsyncLocalStorage } = require('node:async_hooks')
const { describe, it } = require('node:test')

const { inside } = require('./internals')

const { BUDGET_MS, Scheduler } = inside('adapters/scheduler')

const turn = () => new Promise(setImmediate)

/** Keeps the processor. */
function work (ms) {
  const end = performance.now() + ms
  while (performance.now() < end);
}

describe('scheduled work', () => {
  it('is done in order, with what each left to the microtasks', async () => {
    const done = []
    const scheduler = new Scheduler()
    for (const i of [1, 2, 3]) {
      scheduler.add(() => {
        done.push(i)
        queueMicrotask(() => done.push(`after ${i}`))
      })
    }
    assert.deepEqual(done, [])
    while (done.length < 6) await turn() // on a busy machine a turn has time for less
    assert.deepEqual(done, [1, 'after 1', 2, 'after 2', 3, 'after 3'])
  })

  it('is done each in the async context in which it was added', async () => {
    const storage = new AsyncLocalStorage()
    const scheduler = new Scheduler()
    const done = []
    for (const i of [1, 2, 3]) storage.run(i, () => scheduler.add(() => done.push(storage.getStore())))
    while (done.length < 3) await turn()
    assert.deepEqual(done, [1, 2, 3])
  })

  it('leaves time to others once a turn has had enough', async () => {
    const done = []
    const scheduler = new Scheduler()
    for (const i of [1, 2, 3]) {
      scheduler.add(() => {
        work(BUDGET_MS)
        done.push(i)
      })
    }
    await turn()
    assert.deepEqual(done, [1])
    assert.equal(scheduler.hasTime, false)
    scheduler.add(() => done.push(4))
    while (done.length < 4) await turn()
    assert.deepEqual(done, [1, 2, 3, 4])
  })
})
