'use strict'
// The consumers behind `retrier.consume`.

const { randomBytes } = require('node:crypto')

const c = require('../core')
const { ChannelClosedError, ConsumerCancelledError, errorOf, made } = require('../errors')
const { Health } = require('../health')
const { stopping } = require('../message')
const { NATIVE } = require('../native')
const { textOf } = require('../outcomes')
const { monotonicMs: now } = require('../times')
const { LONGEST_TIMER } = require('./publisher')

const {
  BH_LOSS_CONSUMER: LOSS_CONSUMER, BH_LOSS_CHANNEL: LOSS_CHANNEL, BH_LOSS_CONNECTION: LOSS_CONNECTION,
  BH_SUBSCRIPTION_REST: REST, BH_SUBSCRIPTION_EMIT: EMIT, BH_SUBSCRIPTION_DECLARE: DECLARE,
  BH_SUBSCRIPTION_CONSUME: CONSUME
} = c
const [KIND, EVENT, STATUS, DELAY, DUE] = [0, 1, 2, 3, 4] // of a step
const RANDOM_BYTES = 8

/** The result of `consume`. */
class Consumption {
  #retrier
  #consumer

  constructor (retrier, consumer) {
    this.#retrier = retrier
    this.#consumer = consumer
  }

  get closed () {
    return this.#consumer.closed
  }

  get state () {
    return this.#consumer.health.state
  }

  get stateReason () {
    return this.#consumer.health.reason
  }

  ready (options) {
    return this.#consumer.health.ready(options)
  }

  async cancel () {
    await this.#consumer.cancel()
  }

  async [Symbol.asyncDispose ?? Symbol('asyncDispose')] () {
    await this.cancel()
    await this.#retrier.drain()
  }
}

/**
 * Subscribes, and subscribes again when its subscription ends, until it is cancelled or its
 * connection is lost. The core decides each step. A client's own has
 *
 *   _subscribe()      resolves when it consumes; calls _lost if the subscription ends later
 *   _unsubscribe()    resolves when nothing more is delivered
 *   lostError         why it can never subscribe again; undefined while it can
 *
 * It calls _settled for each message that it acknowledges or rejects.
 */
class BaseConsumer {
  closed
  #close
  #retrier
  #stopping = stopping()
  #subscription
  #isExecuting = false
  #isAttempting = false
  #isNew = true // the retrier has declared the topology just before
  #isFresh = true // the back-off began again, and nothing was lost since
  #why = '' // the last text of the broker or the client
  #error // of the last attempt
  #timer
  #cancelled
  #release = () => {} // ends the wait for the broker's answer
  health = new Health(false)
  flow // undefined if the retrier has no breaker

  constructor (retrier) {
    const { healths } = retrier._emitter
    this.#retrier = retrier
    this.#subscription = made(c.bh_subscription_new(retrier._backOff[NATIVE], randomBytes(RANDOM_BYTES)))
    this.flow = retrier._flow(this)
    this.closed = new Promise(resolve => {
      this.#close = error => {
        this.#subscription.stop()
        clearTimeout(this.#timer)
        this.flow?.stop()
        this.flow?.giveBack()
        healths.delete(this.health)
        this.health.drain(error)
        resolve(error)
      }
    })
    healths.add(this.health)
  }

  get signal () {
    return this.#stopping.signal
  }

  get isCancelled () {
    return this.#stopping.signal.aborted
  }

  /** True if its consumer was not lost. */
  get isConsuming () {
    return Boolean(this.#subscription.is_consuming())
  }

  async open () {
    try {
      await this.#execute()
      if (this.isCancelled) throw this.#error // its connection was lost
    } catch (error) {
      this.#stopping.abort()
      this.#close(error)
      throw error
    }
  }

  // Steps of the subscription

  #next () {
    return this.#subscription.next(Number(!this.isCancelled && !this.flow?.isPaused), now())
  }

  /** Executes the steps that are due. Throws the error of the first attempt. */
  async #execute () {
    if (this.#isExecuting || this.#isAttempting) return
    this.#isExecuting = true
    try {
      for (;;) {
        const step = this.#next()
        switch (step[KIND]) {
          case EMIT: this.#emitStep(step); break
          case DECLARE: await this.#attempt(() => this.#declare()); break
          case CONSUME: await this.#attempt(() => this.#consume()); break
          case REST: this.#setTimer(step[DUE]); return
          default: throw this.#error
        }
      }
    } finally {
      this.#isExecuting = false
    }
  }

  async #attempt (run) {
    this.#isAttempting = true
    try {
      await run()
    } catch (error) {
      this.#error = error
      this.#why = textOf(error)
      this.#isFresh = false
      this.#subscription.failed(error?.status ?? ChannelClosedError.status, now())
    } finally {
      this.#isAttempting = false
    }
  }

  async #declare () {
    if (!this.#isNew) await this.#retrier.declare()
    this.#isNew = false
    this.#subscription.declared()
  }

  /** Consumes, unless it was cancelled or its breaker has opened in the meantime. */
  async #consume () {
    await this._subscribe()
    this.#subscription.subscribed()
    if (this.isCancelled || this.flow?.isPaused) this._unsubscribe()
  }

  /** Executes steps again at `due`, in ms of the monotonic clock; never if it is negative. */
  #setTimer (due) {
    clearTimeout(this.#timer)
    if (due < 0) return
    this.#timer = setTimeout(() => this.#execute(), Math.min(Math.max(due - now(), 0), LONGEST_TIMER))
  }

  #emitStep (step) {
    const [status, delay] = [step[STATUS], step[DELAY]]
    if (step[EVENT] === c.BH_EVENT_CONNECTED) {
      if (!this.flow?.isPaused) this.#emitConnected()
      return
    }
    const cause = this.#why
    let error = this.#error
    if (step[EVENT] === c.BH_EVENT_CANCELLED) {
      error = status === ConsumerCancelledError.status ? errorOf(status) : new ChannelClosedError(cause)
    }
    this.#emit(c.bh_event_name(step[EVENT]), () => ({ cause, connection: 'consume', error, delay }))
  }

  /** Emits that the broker has confirmed the consumer. */
  #emitConnected () {
    this.#emit('connected', () => ({ connection: 'consume' }))
    this.flow?.look()
  }

  #emit (name, fieldsOf) {
    this.#retrier._emitter.emit(name, fieldsOf, { healths: [this.health] })
  }

  // Reports to the subscription

  /**
   * Records that the consumer, its channel or its connection is lost. why: the text of the broker
   * or the client
   */
  _lost (loss, why = '') {
    if (this.isCancelled) return
    const { lostError } = this
    if (lostError) {
      this.#stopping.abort()
      this.#close(lostError)
      return
    }
    this.#why = why
    this.#isFresh = false
    this.#subscription.lost(loss, now())
    this.#execute()
  }

  /** Records that the client has lost its connection, and has consumed again by itself. */
  _cameBack () {
    this.#isFresh = false
    this.#subscription.lost(LOSS_CONNECTION, now())
    this.#subscription.subscribed()
    this.#execute()
  }

  /** Records that a message was acknowledged or rejected. */
  _settled = () => {
    if (this.#isFresh) return
    this.#isFresh = true
    this.#subscription.settled()
  }

  // Steps of a flow

  pause () {
    if (!this.isCancelled && !this.#isAttempting) this._unsubscribe()
  }

  /**
   * Consumes again after a pause, unless it was lost in the meantime: then the subscription
   * decides.
   */
  async resume () {
    if (this.#isAttempting) return
    const isPaused = () => this.isCancelled || this.flow.isPaused
    let isAgain = false
    while (!isAgain && !isPaused() && this.#subscription.is_consuming()) {
      await this.#attempt(async () => {
        await this.#retrier.declare()
        if (isPaused()) return
        await this.#consume()
        isAgain = true
      })
    }
    if (isAgain && !isPaused()) this.#emitConnected()
    await this.#execute()
  }

  cancel () {
    return (this.#cancelled ??= this.#cancel())
  }

  /**
   * Waits for the broker's answer to a cancel. A broker with an alarm does not read a connection
   * that published, so it answers only after the alarm: nothing waits for it then.
   */
  async _unlessBlocked (answer, isBlocked) {
    if (isBlocked) return
    await Promise.race([answer, new Promise(resolve => { this.#release = resolve })])
  }

  /** Records that the broker has blocked the connection. */
  _release () {
    this.#release()
  }

  async #cancel () {
    if (this.isCancelled) return // it is lost
    this.#stopping.abort()
    this.flow?.stop()
    this.#subscription.stop()
    clearTimeout(this.#timer)
    if (!this.#isAttempting) await this._unsubscribe()
    this.#close()
  }
}

module.exports = { BaseConsumer, Consumption, LOSS_CHANNEL, LOSS_CONNECTION, LOSS_CONSUMER }
