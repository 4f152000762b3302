'use strict'
// Publishes copies on a confirm channel of its own, any number at a time, and then settles their originals: what to do,
// and when, is the ledger's to say; this carries it out on a connection, and tells the ledger what it hears there.
//
// Over each client it stands on a line, that is one connection of the application as long as it lasts:
//
//   isOpen, isBlocked, frameMax (bytes), serverProperties
//   openChannel()              a channel to declare and to get with; rejects with ConnectionFailedError
//   openConfirms(listener)     a channel that publishes; it calls answered(tag, multiple, isAck), returned(exchange,
//                              routingKey, id, why) and closed({ code, text }), in this order for one copy
//   watch(publisher)           calls lost(reason, isOrderly), orderly where the application closed it, and
//                              blocked(isBlocked)
//
// No callback here throws, as that would break the client's connection.

const { performance } = require('node:perf_hooks') // the global one is looked up anew each time

const c = require('./addon')
const {
  ChannelClosedError, ConnectionFailedError, ContentError, PublishError, check, counted, errorOf, made
} = require('./errors')
const { replayError } = require('./event')
const NATIVE = require('./native')
const { textOf } = require('./outcomes')
const { ACTION_NUMBERS } = require('./plan')
const { Policy } = require('./policy')
const { BUDGET_MS } = require('./turns')

const LONGEST_TIMER = 2 ** 31 - 1 // ms; a longer one ends at once
const BACK_OFF = new Policy({ initial: 100, max: 10_000, jitter: 'equal' })
const RANDOM_BYTES = 8 // of a ledger

const {
  BH_STEP_REST: REST, BH_STEP_TELL: TELL, BH_STEP_ACK: ACK, BH_STEP_NACK: NACK, BH_STEP_REJECT: REJECT,
  BH_STEP_GIVE_BACK: GIVE_BACK, BH_STEP_DECLARE: DECLARE, BH_STEP_PUBLISH: PUBLISH
} = c
const [ENTRY, CHANNEL, TAG, EVENT, STATUS, DELAY, COUNT, DUE] = [0, 1, 2, 3, 4, 5, 6, 7] // of what a step tells
const NAMES = Array.from({ length: c.BH_EVENT_LAST }, (_, kind) => c.bh_event_name(kind))
const SAFE = new Set(['retried', 'parked', 'replayed'])
const SETTLES = new Map([[ACK, 'ack'], [NACK, 'reject'], [REJECT, 'return'], [GIVE_BACK, 'back']])

/** Milliseconds of a clock that never goes back. */
const now = () => Math.floor(performance.now())

/**
 * What becomes of a message that failed: its copy, where one is published, before the original is settled.
 *
 * `original` has channel, tag, isHere and settle(action). `failure` is why: { error, errorClass, errorText, trace }.
 * `replayed` is of a replay: called with its end, and nothing is tried again.
 */
class Copy {
  constructor ({ plan, id = '', properties, content, original, failure, replayed }) {
    this.action = plan.action
    this.attempts = plan.attempts
    this.delay = plan.delay
    this.reason = plan.reason
    this.rung = plan.rung // to be there before it is published, in ms; 0: none
    this.exchange = plan.exchange
    this.routingKey = plan.routingKey
    this.mandatory = plan.mandatory
    this.id = id // its backhop-id: with exchange and routing key, what a return tells
    this.properties = properties
    this.content = content
    this.original = original
    this.failure = failure
    this.sent = 0 // when it was, where somebody listens
    this.replayed = replayed
  }
}

class Publisher {
  #line
  #declaring
  #backOff
  #teller
  #isConsuming // whether the retrier has a consumer of its own
  #ledger
  #told = new Float64Array(DUE + 1) // by the ledger, of the last step
  #copies = new Map() // by entry
  #channels = new Map() // by what the client has for the channel of a delivery: { number, original, originals }
  #numbers = new Map() // the same by their numbers
  #channel // that publishes
  #number // its, in the ledger
  #isClosing = false // it takes nothing more
  #isSettingUp = false
  #failures = 0 // to set up
  #wait = 0 // ms, the last one
  #isPumping = false
  #isDue = false // it pumps in the next turn
  #timer
  #at = Infinity // when it ends
  #end = 0 // of what this turn has for sending; 0: it sent nothing
  #isLate = false // it has more to send than this turn has time for
  #why = '' // of the last return, closed channel or rung that could not be declared
  #idle = []

  constructor (line, { declaring, confirmTimeout, backOff = BACK_OFF, random, teller, isConsuming = () => false }) {
    this.#line = line
    this.#declaring = declaring
    this.#backOff = backOff
    this.#teller = teller
    this.#isConsuming = isConsuming
    this.#ledger = made(c.bh_ledger_new(backOff[NATIVE], random(RANDOM_BYTES)))
    check(this.#ledger.set_confirm_timeout_ms(confirmTimeout))
    this.#ledger.block(Number(line.isBlocked), now())
    line.watch(this)
  }

  /** Copies that are not confirmed yet. */
  get pending () {
    return this.#line.isOpen ? this.#ledger.copies() : 0
  }

  /** Resolves when none is pending. */
  async idle () {
    this.#pump()
    if (this.pending) await new Promise(resolve => this.#idle.push(resolve))
  }

  /** Publishes it as soon as it can be, where it is to be published, and then settles its original. */
  publish (copy) {
    if (!this.#line.isOpen) { // and the broker delivers its original again
      copy.replayed?.(replayError(ConnectionFailedError.status))
      return
    }
    const { original, action, rung, id, exchange, routingKey } = copy
    const { number } = this.#took(original)
    const entry = counted(this.#ledger.arrive_settled(
      number, original.tag, ACTION_NUMBERS[action], this.#needed(rung), id, exchange, routingKey
    ))
    this.#copies.set(entry, copy)
    this.#pumpSoon()
  }

  /** No copy can be made of it: its original stays unacknowledged for a while. */
  leave (original) {
    if (!this.#line.isOpen || !original.isHere) return
    const { number } = this.#took(original)
    this.#ledger.leave(counted(this.#ledger.arrive(number, original.tag)), now())
    this.#watch(this.#ledger.due_ms())
  }

  /** The connection is gone, and the deliveries with it: the broker gives them again. */
  lost (reason, isOrderly = false) {
    const count = this.#ledger.copies()
    const dropped = [...this.#copies.values()]
    clearTimeout(this.#timer)
    this.#channel = undefined
    for (const all of [this.#copies, this.#channels, this.#numbers]) all.clear()
    if (!isOrderly && (count || this.#isConsuming())) {
      this.#teller.tell('disconnected', () => ({ cause: reason, error: new ConnectionFailedError(reason), count }))
    }
    for (const { replayed } of dropped) replayed?.(replayError(ConnectionFailedError.status, reason))
    this.#settled()
  }

  blocked (isBlocked) {
    this.#ledger.block(Number(isBlocked), now())
    this.#teller.tell(isBlocked ? 'blocked' : 'unblocked', () => ({ count: this.#ledger.copies() }))
    this.#pump()
  }

  #settled () {
    if (!this.#idle.length || this.pending) return
    for (const resolve of this.#idle.splice(0)) resolve()
  }

  // What is in hand

  /** The channel of a delivery, which it keeps until it is settled. */
  #took (original) {
    const channel = this.#channelOf(original)
    channel.originals.set(original.tag, original)
    return channel
  }

  #channelOf (original) {
    let channel = this.#channels.get(original.channel)
    if (!channel) {
      channel = { number: counted(this.#ledger.open_channel()), original, originals: new Map() }
      this.#channels.set(original.channel, channel)
      this.#numbers.set(channel.number, channel)
    }
    return channel
  }

  #settle (entry, { action, rung, id, exchange, routingKey }) {
    check(this.#ledger.settle(entry, ACTION_NUMBERS[action], this.#needed(rung), id, exchange, routingKey))
  }

  /** The rung that is to be there before the copy is sent. */
  #needed (rung) {
    return this.#declaring.makesRungs ? rung : 0
  }

  /** What came by a channel that is closed is the broker's again. */
  #forgetClosed () {
    for (const { number, original } of this.#numbers.values()) {
      if (original.isHere) continue
      const key = original.channel
      this.#channels.delete(key)
      this.#numbers.delete(number)
      this.#ledger.close_channel(number)
      for (const [entry, copy] of this.#copies) {
        if (copy.original.channel !== key) continue
        this.#copies.delete(entry)
        copy.replayed?.(new ConnectionFailedError('the channel of the parked message was closed'))
      }
    }
  }

  // What is to be done

  /** With all that fails in this turn of the event loop. */
  #pumpSoon () {
    if (this.#isDue) return
    this.#isDue = true
    setImmediate(() => {
      this.#isDue = false
      this.#pump()
    })
  }

  #pump = () => {
    if (this.#isPumping || !this.#line.isOpen) return
    this.#isPumping = true
    this.#forgetClosed()
    try {
      for (let step; (step = this.#next()) !== REST;) this.#carryOut(step)
    } finally {
      this.#isPumping = false
    }
    if (!this.#isReady) this.#setUp()
    this.#watch(this.#told[DUE])
    this.#settled()
  }

  #next () {
    const time = performance.now()
    return this.#ledger.advance(Math.floor(time), Number(this.#mayPublish(time)), this.#told)
  }

  #mayPublish (time) {
    return this.#isReady && !this.#isSettingUp && !this.#isClosing && this.#copies.size > 0 && this.#hasTime(time)
  }

  /** Whether the channel is there, and the topology as far as is known. */
  get #isReady () {
    return this.#channel !== undefined && this.#declaring.isThere
  }

  /** Whether this turn has time to send one more; else the next goes on. */
  #hasTime (time) {
    if (!this.#end) {
      this.#end = time + BUDGET_MS
      setImmediate(() => {
        this.#end = 0
        if (this.#isLate) this.#pump()
      })
    }
    this.#isLate = time >= this.#end
    return !this.#isLate
  }

  #watch (due) {
    if (due < 0 || due >= this.#at) return
    clearTimeout(this.#timer)
    this.#at = due
    this.#timer = setTimeout(() => {
      this.#at = Infinity
      this.#pump()
    }, Math.min(Math.max(due - now(), 0) + 1, LONGEST_TIMER)).unref()
  }

  #carryOut (step) {
    const told = this.#told
    switch (step) {
      case TELL: this.#tell(told[ENTRY], told[EVENT]); break
      case PUBLISH: this.#send(told[ENTRY]); break
      case DECLARE: this.#declareRung(told[DELAY]); break
      default: this.#settleOriginal(SETTLES.get(step), this.#numbers.get(told[CHANNEL]), told[TAG])
    }
  }

  #settleOriginal (action, { originals }, tag) {
    const original = originals.get(tag)
    originals.delete(tag)
    original.settle(action)
  }

  #send (entry) {
    const copy = this.#copies.get(entry)
    if (!copy) { // of a replay that ended
      this.#giveBack(entry)
      return
    }
    if (this.#teller.isHeard) copy.sent = performance.now()
    try {
      if (this.#channel.publish(copy)) return
    } catch (error) { // what cannot be encoded; nothing was written then
      if (copy.replayed) {
        this.#endReplay(entry, copy, replayError(ContentError.status, textOf(error)))
      } else {
        this.#copies.delete(entry)
        this.#ledger.leave(entry, now())
        this.#teller.refused(copy.id, error)
      }
      return
    }
    this.#isClosing = true // and it says so once it is closed
    this.#settle(entry, copy)
  }

  /** A replay ends at once where its copy is not taken, and the message is parked still. */
  #endReplay (entry, { replayed }, error) {
    this.#copies.delete(entry)
    this.#giveBack(entry)
    replayed(error)
  }

  #endReplays (error) {
    for (const [entry, copy] of this.#copies) {
      if (copy.replayed) this.#endReplay(entry, copy, error)
    }
  }

  /** What is in flight stays so: who gives it back then is the broker, as its channel is closed. */
  #giveBack (entry) {
    if (!this.#ledger.leave(entry, now())) this.#ledger.give_back(entry)
  }

  async #declareRung (rung) {
    try {
      await this.#declaring.makeRung(this.#line, rung)
      this.#ledger.rung(rung, 0, now())
    } catch (error) {
      this.#why = error.message
      this.#ledger.rung(rung, error.status ?? PublishError.status, now())
    }
    this.#pump()
  }

  // What is told

  #tell (entry, event) {
    if (event === c.BH_EVENT_UNCONFIRMED) {
      this.#tellUnconfirmed(this.#told[COUNT])
      return
    }
    const copy = this.#copies.get(entry)
    if (!copy) return // of a replay that ended
    const name = NAMES[event]
    if (SAFE.has(name)) {
      this.#copies.delete(entry)
      this.#tellSafe(name, copy)
    } else {
      if (name === 'refused') this.#copies.delete(entry)
      this.#tellFailed(name, entry, copy, this.#told[STATUS], this.#told[DELAY])
    }
  }

  #tellSafe (name, copy) {
    if (copy.replayed) {
      copy.replayed()
      return
    }
    this.#teller.tell(name, () => {
      const { id, attempts, delay, reason, sent, failure } = copy
      const { error, errorClass, errorText, trace } = failure ?? {}
      const duration = sent ? performance.now() - sent : undefined
      return { id, attempts, delay, reason, duration, error, errorClass, errorText, trace }
    })
  }

  #tellFailed (name, entry, copy, status, delay) {
    const { id, attempts, exchange, routingKey, replayed } = copy
    const words = this.#words(exchange, routingKey, this.#why, this.#declaring.forgotten)
    if (replayed) {
      this.#endReplay(entry, copy, errorOf(status, words))
      return
    }
    this.#teller.tell(name, () => ({ id, attempts, delay, text: words, error: errorOf(status, words) }))
  }

  #tellUnconfirmed (count) {
    const text = this.#words('', '', '', '')
    const error = new PublishError(text)
    this.#teller.tell('unconfirmed', () => ({ count, text, error }))
    this.#endReplays(error)
  }

  /** There is no channel to publish on. */
  #tellUnavailable ({ error, delay, count = this.#ledger.copies() }) {
    this.#teller.tell('unavailable', () => ({ cause: error.message, connection: 'publish', error, delay, count }))
  }

  /** The core's sentence about the last step. */
  #words (exchange, routingKey, reason, forgotten) {
    return this.#ledger.words(exchange, routingKey, reason, forgotten)
  }

  // The channel

  /** Makes what copies need to be sent, where there are some: the topology where it was lost, and a channel. */
  async #setUp () {
    if (this.#isSettingUp || !this.#ledger.copies()) return
    this.#isSettingUp = true
    try {
      if (!this.#declaring.isThere) await this.#declaring.restore(this.#line)
      if (!this.#channel) await this.#open()
      this.#failures = this.#wait = 0
    } catch (error) {
      if (!this.#line.isOpen) return
      this.#endReplays(replayError(PublishError.status, error.message))
      const wait = this.#wait = this.#backOff.delay(++this.#failures, { previous: this.#wait, random: Math.random() })
      this.#tellUnavailable({ error, delay: wait })
      await new Promise(resolve => setTimeout(resolve, Math.min(wait, LONGEST_TIMER)).unref())
    } finally {
      this.#isSettingUp = false
    }
    this.#pump()
  }

  async #open () {
    let number
    const isThis = () => number !== undefined && number === this.#number
    const channel = await this.#line.openConfirms({
      answered: (tag, multiple, isAck) => isThis() && this.#answered(tag, multiple, isAck),
      returned: (...returned) => isThis() && this.#returned(...returned),
      closed: reason => isThis() && this.#closed(reason)
    })
    if (!channel.isOpen) throw new ChannelClosedError('the channel was closed')
    this.#number = number = counted(this.#ledger.open_publisher())
    this.#channel = channel
  }

  #answered (tag, multiple, isAck) {
    this.#ledger.confirm(this.#number, tag, Number(multiple), Number(isAck), now())
    this.#pump()
  }

  #returned (exchange, routingKey, id, why) {
    this.#why = why
    this.#doubt()
    c.bh_ledger_return(this.#ledger, this.#number, id, exchange, routingKey)
  }

  #closed ({ code, text }) {
    const ending = c.bh_ending_of(code)
    const count = this.#ledger.copies()
    this.#why = text
    if (this.#ledger.close_publisher(this.#number, ending, now())) {
      this.#tellUnavailable({ error: new ChannelClosedError(text), count })
    }
    if (ending === c.BH_ENDING_MISSING) this.#doubt()
    this.#channel = this.#number = undefined
    this.#isClosing = false
    this.#pump()
  }

  /** Something of the topology may be gone. */
  #doubt () {
    this.#declaring.doubt(this.#line)
    this.#ledger.forget_rungs()
  }
}

module.exports = { BACK_OFF, Copy, LONGEST_TIMER, Publisher }
