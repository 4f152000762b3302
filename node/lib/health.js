'use strict'
// Health: the state of a worker or of a consumer. The core decides it from the events.

const { only } = require('./checks')
const c = require('./core')
const { StateError, WaitTimeoutError, check, made } = require('./errors')
const { NATIVE } = require('./native')
const { milliseconds } = require('./times')

const LONGEST_MS = 2 ** 31 - 1 // of a timer
const { BH_HEALTH_READY: READY, BH_HEALTH_STOPPED: STOPPED, BH_FIELD_TEXT: TEXT } = c

class Health {
  #isWorker
  #read
  #waiting = new Set() // { resolve, reject }
  #drained = made(c.bh_event_new(c.BH_EVENT_DRAINED))

  /**
   * isWorker: whether the texts of errors name a worker; else they name a consumer
   * read: reads the state into the core's health; without it, the state follows `observe`
   */
  constructor (isWorker, read = () => {}) {
    this.#isWorker = Number(isWorker)
    this.#read = read
    this[NATIVE] = made(c.bh_health_new())
  }

  get #now () {
    this.#read(this[NATIVE])
    return this[NATIVE].state()
  }

  get state () {
    return c.bh_health_name(this.#now)
  }

  get reason () {
    this.#read(this[NATIVE])
    return String(this[NATIVE].reason())
  }

  /** Applies an event of the core. */
  observe (native) {
    this[NATIVE].observe(native)
    this.look()
  }

  /** Resolves who waits, if it is ready. */
  look () {
    if (!this.#waiting.size || this.#now !== READY) return
    for (const { resolve } of this.#waiting) resolve()
    this.#waiting.clear()
  }

  /** Rejects who waits: it has stopped. error: why; undefined after `stop` or `cancel`. */
  stop (error) {
    for (const { reject } of this.#waiting) reject(error ?? this.#stopped())
    this.#waiting.clear()
  }

  /** Stops, and sets the state of a consumer. */
  drain (error) {
    check(this.#drained.begin(c.BH_EVENT_DRAINED))
    if (error) check(this.#drained.set_string(TEXT, error.message))
    this[NATIVE].observe(this.#drained)
    this.stop(error)
  }

  #stopped () {
    return new StateError(this.#waitError(-1))
  }

  /** Returns the text of the error of a wait. limit: in ms; -1: it has stopped */
  #waitError (limit) {
    this.#read(this[NATIVE])
    return String(this[NATIVE].wait_error(this.#isWorker, limit))
  }

  async ready (options = {}) {
    const { timeout } = only(options, ['timeout'], 'ready')
    const limit = timeout === undefined ? undefined : milliseconds(timeout, 'timeout')
    const now = this.#now
    if (now === READY) return
    if (now === STOPPED) throw this.#stopped()
    let timer
    const isReady = new Promise((resolve, reject) => {
      const waits = { resolve, reject }
      this.#waiting.add(waits)
      if (limit === undefined) return
      timer = setTimeout(() => {
        this.#waiting.delete(waits)
        reject(new WaitTimeoutError(this.#waitError(limit)))
      }, Math.min(limit, LONGEST_MS))
    })
    await isReady.finally(() => clearTimeout(timer))
  }
}

module.exports = { Health }
