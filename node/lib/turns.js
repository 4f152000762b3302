'use strict'
// Turns of the event loop: each kind of work gets a little of one, and goes on in the next.

const BUDGET_MS = 2

/** Does one piece of work after the other, each with its microtasks. */
class Slices {
  #due = []
  #end = 0

  /** Whether this turn has time for more. */
  get hasTime () {
    return performance.now() < this.#end
  }

  add (work) {
    if (this.#due.push(work) === 1) setImmediate(this.#go)
  }

  #go = () => {
    const due = this.#due
    this.#end = performance.now() + BUDGET_MS
    let count = 0
    const next = () => {
      try {
        due[count++]()
      } finally {
        if (count < due.length && this.hasTime) {
          queueMicrotask(next)
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
