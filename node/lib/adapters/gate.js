'use strict'
// The breaker of a retrier: permits for its handler, and the ends of its calls.

const { Breaker } = require('../breaker')
const { instance } = require('../checks')
const { OK, classOf } = require('../outcomes')
const { Flow } = require('./flow')

const CALL = Symbol('call') // of a message: { permit }, until its call is recorded; a handler may freeze the message

class Gate {
  #breaker
  #makeFlow
  #flows = new Set() // of the application's own consumers

  /**
   * breaker: undefined for none
   * retrier: has defer(message, delay) and giveBack(message)
   */
  constructor (breaker, topology, emitter, retrier) {
    if (breaker === undefined) return
    this.#breaker = instance(breaker, Breaker, 'breaker')
    breaker._checkServed(topology)
    this.#makeFlow = consumer => new Flow(breaker, topology, {
      emit: (kind, describe) => emitter.emitDescribed(kind, describe, consumer ? [consumer.health] : []),
      pause: () => consumer?.pause(),
      resume: () => consumer?.resume(),
      ...retrier
    }, !consumer)
  }

  /**
   * Returns the flow of a consumer. Returns undefined without a breaker, and for a breaker by key.
   *
   * consumer: has `health`, pause() and resume(); undefined: the application's own
   */
  flow (consumer) {
    if (!this.#breaker || this.#breaker.hasKey) return undefined
    const flow = this.#makeFlow(consumer)
    if (!consumer) this.#flows.add(flow)
    return flow
  }

  /** Gives the held messages of the application's own consumers back to their queue. */
  giveBack () {
    for (const flow of this.#flows) flow.giveBack()
  }

  /** Adds the permit of a flow to a message. */
  begin (message, permit) {
    if (permit) message[CALL] = { permit }
  }

  /**
   * Requests the permit of a message's key, if the breaker has keys. Returns how long the message
   * has to wait, in ms; undefined if its handler may be called. Throws the error of the key's
   * function.
   */
  delayOf (message) {
    if (!this.#breaker?.hasKey) return undefined
    const call = this.#breaker._begin(message)
    if (call.delay === undefined) message[CALL] = { permit: call }
    return call.delay
  }

  /** Records the end of a call of the handler. thrown: the value that it threw, if it failed. */
  record (message, result, thrown) {
    const call = message[CALL]
    if (!call?.permit) return
    const { permit } = call
    call.permit = undefined
    if (result === OK) permit.end(result)
    else permit.end(result, { errorClass: classOf(thrown), isDownstreams: this.#breaker._isDownstreams(thrown) })
  }
}

module.exports = { Gate }
