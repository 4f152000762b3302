'use strict'
// Settles deliveries: one Settler per channel that delivers.

const { errorMonitor } = require('node:events')

const { CLOSED } = require('../earlier')
const { isOpen } = require('./client')

// Methods of a channel and their further arguments: (allUpTo, requeue) of nack, (requeue) of
// reject.
const METHODS = { reject: ['nack', false, false], return: ['reject', true], back: ['nack', false, true] }
const settlers = new WeakMap() // by channel

function settlerOf (channel) {
  let settler = settlers.get(channel)
  if (!settler) {
    settler = new Settler(channel)
    settlers.set(channel, settler)
  }
  return settler
}

/** Returns whether a channel has a Settler already. */
function hasSettler (channel) {
  return settlers.has(channel)
}

/** Writes the acknowledgements of a channel that were not written yet. */
function flush (channel) {
  settlers.get(channel)?.flush()
}

/**
 * Settles deliveries of a channel. It writes the acknowledgements of one turn of the event loop
 * together: one with the flag multiple covers those before the first open delivery. If others
 * settle deliveries of this channel too, it writes each one alone.
 */
class Settler {
  #channel
  #last = 0 // delivery tag; they count from 1
  #open = new Set() // delivery tags, ascending
  prefetch = 0 // of the channel's consumer; 0: unknown
  settled // called at each ack or reject that is written
  #hasFailed = false // whether the broker closed the channel
  #isShared = false
  #acknowledged = []
  #then
  #isDue = false

  constructor (channel) {
    this.#channel = channel
    channel.once(errorMonitor, () => { this.#hasFailed = true })
  }

  get isOpen () {
    return isOpen(this.#channel)
  }

  /** Returns the prefetch; CLOSED if the channel was closed in order. */
  lostPrefetch ({ isOpen, isBlocked, reason }) {
    const isOrderly = !this.#hasFailed && (isOpen || !(reason || isBlocked))
    return isOrderly ? CLOSED : this.prefetch
  }

  /** Records a delivery. Call it for each, in the order of their tags. */
  deliver (tag) {
    if (tag !== ++this.#last) this.share()
    else if (!this.#isShared) this.#open.add(tag)
  }

  /** Records that others settle deliveries of this channel too. */
  share () {
    this.#isShared = true
    this.#open.clear()
  }

  /** Calls `then` when each delivery so far is settled, and its settlement is written. */
  whenSettled (then) {
    this.#then = then
    if (!this.#open.size) this.#settled()
  }

  #settled () {
    const then = this.#then
    if (!then || this.#open.size) return
    this.#then = undefined
    this.flush()
    then()
  }

  /**
   * Settles a delivery. `action`: ack, reject (basic.nack, no requeue), return (basic.reject,
   * requeue) or back.
   */
  settle (incoming, action) {
    this.#open.delete(incoming.fields.deliveryTag)
    if (this.settled && action !== 'back' && this.isOpen) this.settled()
    if (action === 'ack') {
      this.#acknowledged.push(incoming)
      if (!this.#isDue) setImmediate(() => this.flush())
      this.#isDue = true
    } else {
      const [method, ...options] = METHODS[action]
      this.#write(method, incoming, ...options)
    }
    if (this.#then) this.#settled()
  }

  /** Writes the acknowledgements. */
  flush () {
    this.#isDue = false
    const acknowledged = this.#acknowledged
    if (!acknowledged.length) return
    this.#acknowledged = []
    const tagOf = incoming => incoming.fields.deliveryTag
    const [firstOpen = Infinity] = this.#open
    const isBefore = incoming => !this.#isShared && tagOf(incoming) < firstOpen
    const together = acknowledged.filter(isBefore)
    if (together.length) {
      this.#write('ack', together.reduce((last, each) => tagOf(each) > tagOf(last) ? each : last), true)
    }
    if (together.length === acknowledged.length) return
    for (const incoming of acknowledged) {
      if (!isBefore(incoming)) this.#write('ack', incoming)
    }
  }

  #write (method, incoming, ...options) {
    try {
      this.#channel[method](incoming, ...options)
    } catch {
      // The channel is closed: the broker delivers the message again.
    }
  }
}

module.exports = { flush, hasSettler, settlerOf }
