'use strict'
// Hands the deliveries of a retrier to its handler, in turns of the event loop, and counts them.

const { performance } = require('node:perf_hooks') // the global one is looked up at each use

const { Call } = require('../calls')
const { finished } = require('../finished')
const { Message, ORIGINAL, idOf } = require('../message')
const { Scheduler } = require('./scheduler')

const LEAST_HEARTBEAT = 1000 // ms
const [CALLS, WAITS, SETTLED] = ['calls', 'waits', 'settled'] // what to do with a message that arrived

class Handling {
  count = 0 // deliveries in hand; held messages do not count
  #retrier
  #blocked // the last handler that blocked the event loop for long: { id, duration, until }
  #arrived = new Scheduler() // a client delivers all that it has read at once
  #ended = new Scheduler() // many handlers may wait for one thing, and end at once
  #idle = [] // resolve functions of drains that wait for handlers
  #draining = new Set() // calls of handlers that have begun a drain
  #waiting = new Set() // messages that wait for an earlier call: functions that give them back

  /**
   * retrier: has
   *
   *   enter(message, again)   returns CALLS; SETTLED if it settled the message without the handler;
   *                           or WAITS, and calls again() when an earlier call of the message has
   *                           ended
   *   permits(message)        whether the handler may be called; if not, it settled the message
   *   begin(message, permit)  the handler gets the message; `permit` of a flow, or undefined
   *   call(message, handle)   calls the handler
   *   succeed(message), fail(message, thrown), refused(error, message), giveBack(message)
   *   ended(message)          after these, or if no handler got the message
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
    let message
    const end = () => {
      this.count--
      if (message) this.#retrier.ended(message)
      this.#ifIdle()
      resolve()
    }
    try {
      message = read()
    } catch (error) {
      this.#retrier.refused(error)
      end()
      return
    }
    this.#enter(message, handle, flow, end, resolve)
  }

  #enter (message, handle, flow, end, resolve, hasWaited = false) {
    let step
    const again = () => {
      if (!this.#waiting.delete(giveBack)) return
      this.count++
      this.#arrived.add(() => {
        if (message[ORIGINAL].isOpen) this.#enter(message, handle, flow, end, resolve, true)
        else end() // the broker delivers it again
      })
    }
    const giveBack = () => {
      this.#retrier.giveBack(message)
      resolve()
    }
    try {
      step = this.#retrier.enter(message, again)
    } catch (error) {
      this.#retrier.refused(error, message)
      step = SETTLED
    }
    if (step === SETTLED) {
      end()
    } else if (step === WAITS) {
      this.count--
      this.#waiting.add(giveBack)
      this.#ifIdle()
    } else if (hasWaited && Message.read(message, 'signal').aborted) { // its consumer has stopped in the meantime
      this.#retrier.giveBack(message)
      end()
    } else if (flow) {
      this.#hold(message, handle, flow, end, resolve)
    } else {
      this.#handleNow(message, handle, end)
    }
  }

  /** Gives the messages back that wait for an earlier call. */
  giveBack () {
    for (const giveBack of this.#waiting) giveBack()
    this.#waiting.clear()
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
    const drop = () => {
      this.#retrier.ended(message)
      resolve()
    }
    flow.hold({ message, run, end: drop })
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

  /**
   * Begins a drain. Returns a function that ends it. No drain waits for the handler that calls
   * this.
   */
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

module.exports = { CALLS, Handling, SETTLED, WAITS }
