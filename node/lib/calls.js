'use strict'
// Calls of handlers. A drain or a stop that a handler awaits must not wait for this handler.

const { AsyncLocalStorage } = require('node:async_hooks')

const CALLS = new AsyncLocalStorage()

class Call {
  #owner
  #isOver = false
  drains = 0 // drains that the handler has begun, and that have not ended

  /** owner: the worker, or the Handling of a retrier */
  constructor (owner) {
    this.#owner = owner
  }

  /** Calls the function of the handler. */
  run (call) {
    return CALLS.run(this, call)
  }

  /** Records that the handler has ended. Work that it left running may wait for a drain. */
  end () {
    this.#isOver = true
  }

  /** Returns the call of this owner whose handler calls now; undefined if there is none. */
  static current (owner) {
    const call = CALLS.getStore()
    return call && !call.#isOver && call.#owner === owner ? call : undefined
  }
}

module.exports = { Call }
