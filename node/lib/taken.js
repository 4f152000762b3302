'use strict'
// TakenMessage: a message of a Worker.

const { Delivery } = require('./delivery')
const { check } = require('./errors')
const { History } = require('./history')
const { Message } = require('./message')
const { NATIVE } = require('./native')

/** A message that a worker took. Headers are parsed on first access. */
class TakenMessage extends Message {
  #worker
  #body
  #history
  call // of a Breaker by key

  constructor (worker, taken, topology, signal) {
    super(undefined, undefined, { topology, signal })
    this.#worker = worker
    this.taken = taken
  }

  get body () {
    return (this.#body ??= this.taken.body())
  }

  get redelivered () {
    return Boolean(this.taken.redelivered())
  }

  get history () {
    return this.#read()
  }

  #read () {
    return (this.#history ??= new TakenHistory(this.#worker, this.taken))
  }

  /** The core's history; undefined if it cannot be read. */
  get past () {
    try {
      return this.#read()[NATIVE]
    } catch {
      return undefined
    }
  }
}

/** The history, as the worker reads it: with its earlier counters. */
class TakenHistory extends History {
  #worker
  #taken

  constructor (worker, taken) {
    super(undefined)
    this.#worker = worker
    this.#taken = taken
  }

  _delivered () {
    return new Delivery({}, native => check(this.#worker.read(this.#taken, native, null)))
  }

  _read (native) {
    check(this.#worker.read(this.#taken, this.delivery[NATIVE], native))
  }
}

module.exports = { TakenMessage }
