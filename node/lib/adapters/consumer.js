'use strict'
// The consumers behind `retrier.consume`.

const { performance } = require('node:perf_hooks') // the global one is looked up at each use

const { ChannelClosedError, ConsumerCancelledError, errorOf } = require('../errors')
const { Health } = require('../health')
const { stopping } = require('../message')
const { textOf } = require('../outcomes')
const { LONGEST_TIMER } = require('./publisher')

const LASTED_MS = 10_000 // after a consumer that lasted so long the back-off begins anew

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
 * Subscribes again when its subscription ends, until it is cancelled or its connection is lost. A
 * client's own has
 *
 *   _subscribe()      resolves when it consumes; calls _ended if the subscription ends later
 *   _unsubscribe()    resolves when nothing more is delivered
 *   lostError         why it can never subscribe again; undefined while it can
 */
class BaseConsumer {
  closed
  #close
  #retrier
  #stopping = stopping()
  #failures = 0
  #delay = 0 // ms, the last one
  #since = 0
  #timer
  #cancelled
  #release = () => {} // ends the wait for the broker's answer
  health = new Health(false)
  flow // undefined if the retrier has no breaker

  constructor (retrier) {
    const { healths } = retrier._emitter
    this.#retrier = retrier
    this.flow = retrier._flow(this)
    this.closed = new Promise(resolve => {
      this.#close = error => {
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

  async open () {
    try {
      await this._subscribe()
    } catch (error) {
      this.#stopping.abort()
      this.#close(error)
      throw error
    }
    this._began()
  }

  /** Emits that the broker has confirmed the consumer. */
  _began () {
    this.#since = performance.now()
    this.#emit('connected', () => ({ connection: 'consume' }))
    this.flow?.look()
  }

  #emit (name, fieldsOf) {
    this.#retrier._emitter.emit(name, fieldsOf, { healths: [this.health] })
  }

  /**
   * Subscribes again after a delay.
   *
   * why: the text of the broker or the client; "" if the broker cancelled the consumer
   * error: why the last try to subscribe failed; undefined if a subscription has ended
   */
  _ended (why = '', error) {
    if (this.isCancelled || this.#timer) return
    const { lostError } = this
    if (lostError) {
      this.#stopping.abort()
      this.#close(lostError)
      return
    }
    if (performance.now() - this.#since > LASTED_MS) this.#failures = this.#delay = 0
    const delay = this.#retrier._backOff.delay(++this.#failures, { previous: this.#delay, random: Math.random() })
    this.#delay = delay
    const ended = why ? new ChannelClosedError(why) : errorOf(ConsumerCancelledError.status)
    this.#emit(error ? 'unavailable' : 'cancelled', () => ({
      cause: why, connection: 'consume', error: error ?? ended, delay
    }))
    this.#timer = setTimeout(() => this.#resubscribe(), Math.min(delay, LONGEST_TIMER))
  }

  async #resubscribe () {
    try {
      await this.#retrier.declare()
      if (this.isCancelled) return
      if (!this.flow?.isPaused) {
        await this._subscribe()
        this.#timer = undefined
        if (this.isCancelled || this.flow?.isPaused) await this._unsubscribe()
        else this._began()
      }
      this.#timer = undefined
    } catch (error) {
      this.#timer = undefined
      this._ended(textOf(error), error)
    }
  }

  // Steps of a flow

  pause () {
    if (!this.isCancelled && !this.#timer) this._unsubscribe()
  }

  /** Subscribes again, unless a try to subscribe is due already. */
  resume () {
    if (!this.isCancelled && !this.#timer) this.#timer = setTimeout(() => this.#resubscribe(), 0)
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
    clearTimeout(this.#timer)
    if (!this.#timer) await this._unsubscribe()
    this.#close()
  }
}

module.exports = { BaseConsumer, Consumption }
