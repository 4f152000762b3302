'use strict'
// Publishes copies on a confirm channel of its own, any number at a time, and then acknowledges their originals.
//
// Over each client it stands on a line, that is one connection of the application as long as it lasts:
//
//   isOpen, isBlocked, frameMax (bytes), serverProperties
//   openChannel()              a channel to declare and to get with; rejects with ConnectionFailedError
//   openConfirms(listener)     a channel that publishes; it calls answered(tag, multiple, isAck), returned(exchange,
//                              routingKey, id) and closed(reason), in this order for one copy
//   watch(publisher)           calls lost(reason) and unblocked()
//
// No callback here throws, as that would break the client's connection.

const { ChannelClosedError, ConnectionFailedError, PublishError } = require('./errors')
const { creating, takeAll } = require('./declaring')
const { warn } = require('./log')
const { textOf } = require('./outcomes')
const { Policy } = require('./policy')
const { duration } = require('./time')
const { BUDGET_MS } = require('./turns')

const LONGEST_TIMER = 2 ** 31 - 1 // ms; a longer one ends at once
const BACK_OFF = new Policy({ initial: 100, max: 10_000, jitter: 'equal' })

/**
 * A copy to publish, and to confirm before its original is acknowledged.
 *
 * `original` has isHere and settle(action). `replayed` is of a replay: called with its end, and nothing is tried again.
 */
class Copy {
  failures = 0
  wait = 0 // ms, the last one
  isReturned = false
  isSuspect = false
  sentAt = 0

  constructor ({ plan, id, properties, content, original, replayed }) {
    this.delay = plan.delay
    this.onDemand = plan.onDemand
    this.exchange = plan.exchange
    this.routingKey = plan.routingKey
    this.mandatory = plan.mandatory
    this.id = id // its backhop-id: with exchange and routing key, what a return tells
    this.properties = properties
    this.content = content
    this.original = original
    this.replayed = replayed
  }
}

class Publisher {
  #line
  #topology
  #declared
  #confirmTimeout
  #backOff
  #channel
  #isOpening = false
  #isDeclaring = false
  #due = []
  #sent = new Map() // by delivery tag, ascending
  #waiting = new Map() // copies in their back-off, and their timers
  #tag = 0
  #timer
  #end = 0 // of what this turn has for sending; 0: it sent nothing
  #idle = []

  constructor (line, topology, declared, confirmTimeout, backOff = BACK_OFF) {
    this.#line = line
    this.#topology = topology
    this.#declared = declared
    this.#confirmTimeout = confirmTimeout
    this.#backOff = backOff
    line.watch(this)
  }

  /** Copies that are not confirmed yet. */
  get pending () {
    return this.#due.length + this.#sent.size + this.#waiting.size
  }

  /** Resolves when none is pending. */
  async idle () {
    if (this.pending) await new Promise(resolve => this.#idle.push(resolve))
  }

  /** Publishes it as soon as it can be, and then acknowledges its original. */
  publish (copy) {
    if (!this.#line.isOpen) { // and the broker delivers its original again
      copy.replayed?.(new ConnectionFailedError('the connection was lost'))
      return
    }
    this.#due.push(copy)
    this.#pump()
  }

  /** The connection is gone, and the deliveries with it: the broker gives them again. */
  lost (reason) {
    const dropped = [...this.#sent.values(), ...this.#due, ...this.#waiting.keys()]
    for (const timer of this.#waiting.values()) clearTimeout(timer)
    clearTimeout(this.#timer)
    this.#timer = this.#channel = undefined
    this.#due = []
    this.#sent.clear()
    this.#waiting.clear()
    if (dropped.length) {
      warn(`${dropped.length} copies were not confirmed: the connection is lost (${reason}), and the broker delivers ` +
        'their originals again', 'BACKHOP_LOST')
    }
    for (const copy of dropped) copy.replayed?.(new ConnectionFailedError(`the connection was lost: ${reason}`))
    this.#settled()
  }

  /** The broker read nothing meanwhile, so confirms have all their time again. */
  unblocked () {
    const now = performance.now()
    for (const copy of this.#sent.values()) copy.sentAt = now
  }

  #settled () {
    if (this.pending) return
    for (const resolve of this.#idle.splice(0)) resolve()
  }

  // The channel

  async #open () {
    let channel
    const isThis = () => channel !== undefined && channel === this.#channel
    this.#isOpening = true
    try {
      channel = await this.#line.openConfirms({
        answered: (tag, multiple, isAck) => isThis() && this.#answered(tag, multiple, isAck),
        returned: (exchange, routingKey, id) => isThis() && this.#returned(exchange, routingKey, id),
        closed: reason => isThis() && this.#closed(reason)
      })
      if (!channel.isOpen) throw new ChannelClosedError('the channel was closed')
      this.#channel = channel
      this.#tag = 0
    } catch (error) {
      if (this.#line.isOpen) { // no channel number is free, for now
        for (const copy of this.#due.splice(0)) this.#postpone(copy, `cannot be published: ${error.message}`)
      }
    }
    this.#isOpening = false
    if (this.#channel) this.#pump()
  }

  /** Forgets the channel; returns the copies of which nothing is known. */
  #leaveChannel () {
    const sent = [...this.#sent.values()]
    this.#sent.clear()
    this.#channel = undefined
    for (const copy of sent) copy.isReturned = false
    return sent
  }

  #closed (reason) {
    const sent = this.#leaveChannel()
    this.#declared.doubt()
    if (sent.length === 1) {
      this.#postpone(sent[0], `closed the channel (${reason})${this.#declared.hint(reason)}`)
    } else if (sent.length) { // which one it was shows where each goes alone
      for (const copy of sent) copy.isSuspect = true
      this.#due = [...sent, ...this.#due]
      const hint = this.#declared.hint(reason)
      warn(
        `the channel was closed (${reason}): ${sent.length} copies are published again, one by one${hint}`,
        'BACKHOP_UNPUBLISHED'
      )
    }
    this.#pump()
  }

  // Sending

  #pump () {
    while (this.#due.length && !this.#isDeclaring && !this.#isOpening && this.#line.isOpen) {
      if (!this.#channel) {
        this.#open()
        return
      }
      const copy = this.#due[0]
      if (!copy.original.isHere) {
        this.#due.shift()
        copy.replayed?.(new ConnectionFailedError('the channel of the parked message was closed'))
        this.#settled()
        continue
      }
      if (this.#sent.size && (copy.isSuspect || this.#oldest().isSuspect)) return
      const needed = this.#declared.needed(copy)
      if (needed.length) {
        this.#declare(copy, needed)
        return
      }
      if (!this.#hasTime()) return
      if (!this.#send(copy)) return
      this.#due.shift()
      this.#settled()
    }
  }

  /** Whether this turn has time to send one more; else the next goes on. */
  #hasTime () {
    const now = performance.now()
    if (!this.#end) {
      this.#end = now + BUDGET_MS
      setImmediate(() => {
        this.#end = 0
        this.#pump()
      })
    }
    return now < this.#end
  }

  #oldest () {
    return this.#sent.values().next().value
  }

  async #declare (copy, declarations) {
    this.#isDeclaring = true
    try {
      await takeAll(this.#line, creating(this.#topology, declarations))
      this.#declared.made(copy)
    } catch (error) {
      if (this.#due[0] === copy) {
        this.#due.shift()
        this.#postpone(copy, `cannot be published: ${error.message}`)
      }
    }
    this.#isDeclaring = false
    this.#pump()
  }

  /** False: not now, as the channel is just being closed. */
  #send (copy) {
    try {
      if (!this.#channel.publish(copy)) return false
    } catch (error) { // what cannot be encoded; nothing was written then
      if (copy.replayed) copy.replayed(new PublishError(`the copy cannot be written: ${error.message}`))
      else tellRefused(copy, error)
      return true
    }
    this.#sent.set(++this.#tag, copy)
    copy.sentAt = performance.now()
    this.#watch()
    return true
  }

  #postpone (copy, why) {
    copy.isReturned = copy.isSuspect = false
    if (copy.replayed) {
      copy.replayed(new PublishError(`the copy ${why}`))
      this.#settled()
      return
    }
    copy.failures++
    const wait = copy.wait = this.#backOff.delay(copy.failures, { previous: copy.wait, random: Math.random() })
    this.#waiting.set(copy, setTimeout(() => {
      this.#waiting.delete(copy)
      this.publish(copy)
    }, Math.min(wait, LONGEST_TIMER)).unref())
    tellUnpublished(copy, why, wait)
  }

  #watch () {
    const interval = Math.min(this.#confirmTimeout / 2, LONGEST_TIMER)
    this.#timer ??= setTimeout(() => this.#look(), interval).unref()
  }

  /** Gives the channel up where confirms do not come. */
  #look () {
    this.#timer = undefined
    if (!this.#sent.size) return
    if (this.#line.isBlocked || performance.now() - this.#oldest().sentAt < this.#confirmTimeout) {
      this.#watch()
      return
    }
    const channel = this.#channel
    for (const copy of this.#leaveChannel()) {
      this.#postpone(copy, `was not confirmed within ${duration(this.#confirmTimeout)}`)
    }
    channel.close()
    this.#pump()
  }

  // The broker's answer

  #answered (tag, multiple, isAck) {
    if (multiple) {
      for (const [each, copy] of this.#sent) {
        if (each > tag) break
        this.#sent.delete(each)
        this.#answeredOne(copy, isAck)
      }
    } else {
      const copy = this.#sent.get(tag)
      if (this.#sent.delete(tag)) this.#answeredOne(copy, isAck)
    }
    this.#settled()
    this.#pump()
  }

  #answeredOne (copy, isAck) {
    if (copy.isReturned) {
      this.#postpone(copy, 'was returned by the broker: no queue takes it')
    } else if (!isAck) {
      this.#postpone(copy, 'was nacked by the broker: a queue is full (reject-publish) or not available')
    } else {
      copy.original.settle('ack')
      copy.replayed?.()
    }
  }

  /** A return names no delivery tag: every copy that it could be is sent again, a duplicate at worst. */
  #returned (exchange, routingKey, id) {
    this.#declared.doubt()
    const sent = [...this.#sent.values()]
    const alike = sent.filter(copy => copy.exchange === exchange && copy.routingKey === routingKey && copy.id === id)
    for (const copy of alike.length ? alike : sent) copy.isReturned = true // one that is like none is some copy's, too
  }
}

/** The id of a message's history, or of a copy, for people; empty where it cannot be read. */
function shownId (named) {
  try {
    return JSON.stringify(String(named.id))
  } catch {
    return '""'
  }
}

/** Tells that a copy did not get to a queue. */
function tellUnpublished (copy, why, wait) {
  warn(`the copy of message ${shownId(copy)} ${why}: its original stays unacknowledged, and it ` +
    `is published again in ${duration(wait)}`, 'BACKHOP_UNPUBLISHED')
}

/** Tells that no copy can be made, so that the original stays with the broker. */
function tellRefused (named, error) {
  warn(`message ${shownId(named)} can be neither read nor copied: it stays unacknowledged, ` +
    `and the broker delivers it again once the channel is closed: ${textOf(error)}`, 'BACKHOP_REFUSED')
}

module.exports = { BACK_OFF, Copy, LONGEST_TIMER, Publisher, tellRefused }
