'use strict'
// Divides work over turns of the event loop: each kind of work has a time budget per turn, and goes
// on in the next.

const { AsyncResource } = require('node:async_hooks')
const { performance } = require('node:perf_hooks') // the global one is looked up at each use

const BUDGET_MS = 2
const READY = Promise.resolve() // not queueMicrotask, which makes an AsyncResource of its own

/** A piece of work. It keeps the async context of its `add`: AsyncLocalStorage, traces. */
class Job extends AsyncResource {
  constructor (work) {
    super('BackhopMessage', { requireManualDestroy: true })
    this.work = work
  }

  run () {
    this.runInAsyncScope(this.work)
    this.emitDestroy()
  }
}

/** Runs jobs in order; after each one its microtasks. */
class Scheduler {
  #due = []
  #end = 0

  /** True if this turn of the event loop has time for more. */
  get hasTime () {
    return performance.now() < this.#end
  }

  add (work) {
    if (this.#due.push(new Job(work)) === 1) setImmediate(this.#run)
  }

  #run = () => {
    const due = this.#due
    this.#end = performance.now() + BUDGET_MS
    let count = 0
    const next = () => {
      try {
        due[count++].run()
      } finally {
        if (count < due.length && this.hasTime) {
          READY.then(next)
        } else {
          due.splice(0, count)
          if (due.length) setImmediate(this.#run)
        }
      }
    }
    next()
  }
}

module.exports = { BUDGET_MS, Scheduler }
