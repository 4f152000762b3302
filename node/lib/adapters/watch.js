'use strict'
// Watch: looks for the return exchange, which no retry comes back without. Then it replays this
// work queue's messages in the unroutable queue. It also reports a broker that does not answer a
// look.

const { performance } = require('node:perf_hooks') // the global one is looked up at each use

const c = require('../core')
const { ConnectionFailedError, WaitTimeoutError, made } = require('../errors')
const { monotonicMs: now } = require('../times')

/** Looks once a minute while a retrier consumes, also if no message arrives. */
class Watch {
  #retrier
  #timer
  #silence
  #connection // of the last look
  #check // the timer of the next check of the silence
  #isReplaying = false
  #rereadAt = 0 // by performance.now(): when to read the unroutable queue again

  /**
   * retrier: has
   *
   *   connection()              the open connection; undefined if there is none, or if nothing is
   *                             consumed
   *   look(connection)          see Declaring; likewise returnsAfter(error) and returnText()
   *   replay(connection)        see replayOwnUnroutable
   *   consuming()               the healths of the consumers that were not lost
   *   emit(name, fieldsOf, to)  emits an event
   *
   * confirmTimeout: how long an answer may take, in ms
   */
  constructor (retrier, confirmTimeout) {
    this.#retrier = retrier
    this.#silence = made(c.bh_silence_new(confirmTimeout))
  }

  /** Begins to look, unless it does so. Call it again after each new connection. */
  begin () {
    if (this.#timer || !this.#retrier.connection()) return
    this.#timer = setTimeout(async () => {
      try {
        await this.#look()
      } finally {
        this.#timer = undefined
        this.begin()
      }
    }, this.#silence.pause_ms()).unref()
  }

  #checkLater () {
    const due = this.#silence.due_ms()
    if (due < 0 || this.#check) return
    this.#check = setTimeout(() => {
      this.#check = undefined
      if (!this.#connection.isOpen) return
      this.#emit(this.#silence.check(Number(this.#connection.isBlocked), now()))
      this.#checkLater()
    }, Math.max(due - now(), 0)).unref()
  }

  /** Emits that the connection is silent, or that the broker answers again. */
  #emit (kind) {
    if (kind === c.BH_EVENT_LAST) return
    const retrier = this.#retrier
    const text = String(this.#silence.text())
    const isSilent = kind === c.BH_EVENT_UNAVAILABLE
    const error = isSilent ? new WaitTimeoutError(text) : undefined
    const to = isSilent ? undefined : { healths: retrier.consuming() }
    retrier.emit(c.bh_event_name(kind), () => ({ connection: 'consume', text, error }), to)
  }

  /** Looks. Emits `unavailable` if the exchange is missing, also if it is declared again. */
  async #look () {
    const retrier = this.#retrier
    const connection = retrier.connection()
    if (!connection || connection.isBlocked) return // a broker with an alarm does not answer
    if (connection !== this.#connection) this.#silence.lost()
    this.#connection = connection
    this.#silence.begin(now())
    this.#checkLater()
    let missing
    try {
      await retrier.look(connection)
      this.#emit(this.#silence.end(0))
    } catch (error) {
      if (connection.isOpen) this.#emit(this.#silence.end(error.status ?? 0))
      else this.#silence.lost()
      if (error instanceof ConnectionFailedError) return
      retrier.emit('unavailable', () => ({ error, text: error.message }), { healths: [] }) // the consumer goes on
      this.#rereadAt = 0 // some retries may have missed the exchange
      missing = error
    }
    const isDue = performance.now() >= this.#rereadAt && !this.#isReplaying
    if (isDue && retrier.returnsAfter(missing)) this.#replay(connection)
  }

  /** Replays. The next look does not wait for the end: the broker may become silent. */
  async #replay (connection) {
    const retrier = this.#retrier
    this.#isReplaying = true
    try {
      const { count, foreign } = await retrier.replay(connection)
      this.#rereadAt = performance.now() + c.bh_replay_pause_ms(foreign)
      if (count) retrier.emit('replayed', () => ({ count, text: retrier.returnText() }))
    } finally {
      this.#isReplaying = false
    }
  }
}

module.exports = { Watch }
