'use strict'
// Hands the deliveries of a retrier to its handler, in turns of the event loop, and counts them.

const { performance } = require('node:perf_hooks') // the global one is looked up at each use

const { Call } = require('../calls')
const { finished } = require('../finished')
const { idOf } = require('../message')
const { Scheduler } = require('./scheduler')

const LEAST_HEARTBEAT = 1000 // ms

class Handling {
  count = 0 // deliveries in hand; held messages do not count
  #retrier
  #blocked // the last handler that blocked the event loop for long: { id, duration, until }
  #arrived = new Scheduler() // a client delivers all that it has read at once
  #ended = new Scheduler() // many handlers may wait for one thing, and end at once
  #idle = [] // resolve functions of drains that wait for handlers
  #draining = new Set() // calls of handlers that have begun a drain

  /**
   * retrier: has
   *
   *   settles(message)        whether it settled the message without the handler
   *   permits(message)        whether the handler may be called; if not, it settled the message
   *   begin(message, permit)  the handler gets the message; `permit` of a flow, or undefined
   *   call(message, handle)   calls the handler
   *   succeed(message), fail(message, thrown), refused(error, message)
   */
  constructor (retrier) {
    this.#retrier = retrier
  }

  /**
   * Reads a message, hands it to the handler, and settles it. Never rejects.
   *
   * flow: of its consumer, see Gate
   */
  handle (read, handle, flow) {
    this.count++
    return new Promise(resolve => {
      this.#arrived.add(() => this.#arrive(read, handle, flow, resolve))
    })
  }

  #arrive (read, handle, flow, resolve) {
    const end = () => {
      this.count--
      this.#ifIdle()
      resolve()
    }
    let message
    try {
      message = read()
      if (this.#retrier.settles(message)) {
        end()
        return
      }
    } catch (error) {
      this.#retrier.refused(error, message)
      end()
      return
    }
    if (flow) this.#hold(message, handle, flow, end, resolve)
    else this.#handleNow(message, handle, end)
  }

  /** Hands a message to the handler when the breaker permits it. A drain does not wait for it. */
  #hold (message, handle, flow, end, resolve) {
    this.count--
    const run = permit => {
      this.count++
      this.#handleNow(message, handle, () => {
        end()
        flow.ended()
      }, permit)
    }
    flow.hold({ message, run, end: resolve })
    this.#ifIdle()
  }

  #handleNow (message, handle, end, permit) {
    const retrier = this.#retrier
    try {
      if (!retrier.permits(message)) {
        end()
        return
      }
      retrier.begin(message, permit)
    } catch (error) {
      retrier.refused(error, message)
      end()
      return
    }
    let result
    let isAsync
    const call = new Call(this)
    const endCall = () => {
      call.end()
      this.#draining.delete(call)
      end()
    }
    const began = performance.now()
    try {
      result = call.run(() => retrier.call(message, handle))
      isAsync = typeof result?.then === 'function'
      if (!isAsync) finished(result)
    } catch (thrown) {
      this.#ran(message, began)
      retrier.fail(message, thrown)
      endCall()
      return
    }
    this.#ran(message, began)
    if (isAsync) {
      this.#settleLater(message, result).then(endCall)
    } else {
      retrier.succeed(message) // before the next message is read
      endCall()
    }
  }

  async #settleLater (message, result) {
    let settle = () => this.#retrier.succeed(message)
    try {
      finished(await result)
    } catch (thrown) {
      settle = () => this.#retrier.fail(message, thrown)
    }
    if (!this.#arrived.hasTime) await new Promise(resolve => this.#ended.add(resolve))
    settle()
  }

  /** Records that a handler blocked the event loop for long. */
  #ran (message, began) {
    const until = performance.now()
    const duration = until - began
    if (duration >= LEAST_HEARTBEAT) this.#blocked = { id: idOf(message), duration, until }
  }

  /**
   * Returns the handler that blocked the event loop for longer than the heartbeat, just before now;
   * undefined if there is none.
   */
  blockedFor (heartbeat) {
    const { id, duration, until } = this.#blocked ?? {}
    const isCause = heartbeat > 0 && duration >= heartbeat && performance.now() - until <= heartbeat
    return isCause ? { id, duration } : undefined
  }

  /** The number of deliveries that a drain waits for: not those whose handlers drain. */
  get undrained () {
    return this.count - this.#draining.size
  }

  /** Begins a drain. Returns a function that ends it. No drain waits for the handler that calls this. */
  drain () {
    const call = Call.current(this)
    if (!call) return () => {}
    call.drains++
    this.#draining.add(call)
    this.#ifIdle()
    return () => {
      if (--call.drains === 0) this.#draining.delete(call)
    }
  }

  /** Resolves when each handler that still runs has begun a drain. */
  async idle () {
    if (this.undrained) await new Promise(resolve => this.#idle.push(resolve))
  }

  #ifIdle () {
    if (this.undrained) return
    for (const resolve of this.#idle.splice(0)) resolve()
  }
}

module.exports = { Handling }
