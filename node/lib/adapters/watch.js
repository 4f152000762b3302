'use strict'
// Watch: looks for the return exchange, which no retry comes back without. Then it replays this work queue's messages
// in the unroutable queue.

const { performance } = require('node:perf_hooks') // the global one is looked up at each use

const c = require('../core')
const { ConnectionFailedError } = require('../errors')

/** Looks once a minute while a retrier consumes, also if no message arrives. */
class Watch {
  #retrier
  #timer
  #rereadAt = 0 // by performance.now(): when to read the unroutable queue again

  /**
   * retrier: has
   *
   *   connection()              the open connection; undefined if there is none, or if nothing is consumed
   *   look(connection)          see Declaring; likewise returnsAfter(error) and returnText()
   *   replay(connection)        see replayOwnUnroutable
   *   emit(name, fieldsOf, to)  emits an event
   */
  constructor (retrier) {
    this.#retrier = retrier
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
    }, c.BH_LOOK_MS).unref()
  }

  /** Looks. Emits `unavailable` if the exchange is missing, also if it is declared again. */
  async #look () {
    const retrier = this.#retrier
    const connection = retrier.connection()
    if (!connection || connection.isBlocked) return // a broker with an alarm does not answer
    let missing
    try {
      await retrier.look(connection)
    } catch (error) {
      if (error instanceof ConnectionFailedError) return
      retrier.emit('unavailable', () => ({ error, text: error.message }), { healths: [] }) // the consumer goes on
      this.#rereadAt = 0 // some retries may have missed the exchange
      missing = error
    }
    if (!retrier.returnsAfter(missing) || performance.now() < this.#rereadAt) return
    const { count, foreign } = await retrier.replay(connection)
    this.#rereadAt = performance.now() + c.bh_replay_pause_ms(foreign)
    if (count) retrier.emit('replayed', () => ({ count, text: retrier.returnText() }))
  }
}

module.exports = { Watch }
