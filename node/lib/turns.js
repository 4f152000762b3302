'use strict'
// Turns of the event loop: each kind of work gets a little of one, and goes on in the next.

const { AsyncResource } = require('node:async_hooks')
const { performance } = require('node:perf_hooks') // the global one is looked up anew each time

const BUDGET_MS = 2
const READY = Promise.resolve() // queueMicrotask makes an AsyncResource of its own

/** A piece of work, which is done in the async context in which it was added: its AsyncLocalStorage, its trace. */
class Piece extends AsyncResource {
  constructor (work) {
    super('BackhopMessage', { requireManualDestroy: true })
    this.work = work
  }

  run () {
    this.runInAsyncScope(this.work)
    this.emitDestroy()
  }
}

/** Does one piece of work after the other, each with its microtasks. */
class Slices {
  #due = []
  #end = 0

  /** Whether this turn has time for more. */
  get hasTime () {
    return performance.now() < this.#end
  }

  add (work) {
    if (this.#due.push(new Piece(work)) === 1) setImmediate(this.#go)
  }

  #go = () => {
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
          if (due.length) setImmediate(this.#go)
        }
      }
    }
    next()
  }
}

module.exports = { BUDGET_MS, Slices }
