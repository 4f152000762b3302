'use strict'
// Flow: holds the messages of a consumer while its breaker grants no permit. The core decides each
// step, and the flow executes it.

const { AsyncResource } = require('node:async_hooks')

const { now } = require('../breaker')
const c = require('../core')
const { made } = require('../errors')
const { NATIVE } = require('../native')
const { ORIGINAL } = require('../message')
const { BUDGET_MS } = require('./scheduler')

const [KIND, EVENT, DELAY, DUE] = [0, 1, 2, 3] // of a step
const GENERATION = 0 // of a permit; 0: not granted
const {
  BH_FLOW_CALL: CALL, BH_FLOW_DEFER: DEFER, BH_FLOW_CANCEL: CANCEL, BH_FLOW_CONSUME: CONSUME, BH_FLOW_EMIT: EMIT
} = c

class Flow {
  #native
  #breaker
  #consumer
  #held = [] // the oldest first
  #timer
  #due = Infinity // when the timer ends
  #latest // the original of the message that arrived last
  #isOwn
  #isLooking = false
  #isStopped = false

  /**
   * consumer: executes steps. It has emit(kind, describe), defer(message, delay),
   * giveBack(message), pause() and resume()
   * isOwn: the consumer is the application's
   */
  constructor (breaker, topology, consumer, isOwn) {
    this.#isOwn = isOwn
    this.#native = made(c.bh_flow_new(breaker[NATIVE], topology[NATIVE]))
    this.#breaker = breaker
    this.#consumer = consumer
  }

  /** True from pause() to resume(). */
  get isPaused () {
    return Boolean(this.#native.is_cancelled())
  }

  /**
   * Holds a message until the breaker grants a permit.
   *
   * held: `{ message, run, end }`. run(call) calls the handler; end() is called if no handler gets
   * it
   */
  hold (held) {
    if (this.#isStopped) {
      this.#consumer.giveBack(held.message)
      held.end()
      return
    }
    this.#latest = held.message[ORIGINAL]
    const call = this.#permit()
    if (call) {
      held.run(call)
      return
    }
    held.isHeld = true
    this.#held.push(held)
    this.look()
    if (held.isHeld) held.run = AsyncResource.bind(held.run) // its async context, of AsyncLocalStorage
  }

  /**
   * Returns the call of a message that arrived, if its handler may run before the flow's next step.
   */
  #permit () {
    if (this.#held.length || this.#isLooking || this.#due === Infinity) return undefined
    const time = now()
    const permit = this.#native.permit(time)
    return permit[GENERATION] ? this.#breaker._granted(permit, time) : undefined
  }

  /** Executes the steps that are due after the end of a handler. */
  ended () {
    if (this.#due === Infinity || this.#native.is_due(this.#held.length, now())) this.look()
  }

  /** Executes the steps that are due. */
  look = () => {
    if (this.#isLooking || this.#isStopped) return
    this.#isLooking = true
    try {
      this.#execute()
    } finally {
      this.#isLooking = false
    }
  }

  #execute () {
    const began = now()
    for (let time = began; time - began < BUDGET_MS && !this.#isStopped; time = now()) {
      this.#forgetClosed()
      const step = this.#native.next(this.#held.length, time)
      if (!this.#executeStep(step, time)) {
        this.#setTimer(step[DUE], time)
        return
      }
    }
    setImmediate(this.look) // other work of the event loop comes first
  }

  /**
   * Looks again at a time, unless no message can come: the channel of the application's consumer is
   * closed.
   */
  #setTimer (due, time) {
    if (this.#due <= due || (this.#isOwn && !this.#held.length && !this.#latest?.isOpen)) return
    clearTimeout(this.#timer)
    this.#due = due
    this.#timer = setTimeout(() => {
      this.#due = Infinity
      this.look()
    }, Math.max(1, due - time)).unref()
  }

  /** Returns false if there is nothing to do before the step's due time. */
  #executeStep (step, time) {
    const consumer = this.#consumer
    switch (step[KIND]) {
      case CALL: return this.#call(time)
      case DEFER: this.#defer(step[DELAY]); break
      case CANCEL: consumer.pause(); break
      case CONSUME: consumer.resume(); break
      case EMIT: consumer.emit(step[EVENT], event => this.#native.describe(event)); break
      default: return false
    }
    return true
  }

  /**
   * Calls the handler of the oldest message. Returns true, also if another consumer got the permit.
   */
  #call (time) {
    const [{ message }] = this.#held
    const call = this.#breaker._begin(message, time)
    if (call.delay === undefined) this.#take().run(call)
    return true
  }

  #defer (delay) {
    const { message, end } = this.#take()
    this.#consumer.defer(message, delay)
    end()
  }

  #take () {
    const held = this.#held.shift()
    held.isHeld = false
    return held
  }

  /** Forgets the oldest messages whose channel is closed: the broker delivers them again. */
  #forgetClosed () {
    while (this.#held.length && !this.#held[0].message[ORIGINAL].isOpen) this.#take().end()
  }

  /** Gives the held messages back to their queue. */
  giveBack () {
    for (const { message, end } of this.#held.splice(0)) {
      this.#consumer.giveBack(message)
      end()
    }
  }

  /** Executes no more steps. Messages that are held stay so until giveBack. */
  stop () {
    this.#isStopped = true
    clearTimeout(this.#timer)
  }
}

module.exports = { Flow }
