'use strict'
// Publishes copies on a confirm channel of its own, any number at a time, and then settles their
// originals. The core's ledger decides each step; the publisher executes it on a connection, and
// reports the broker's answers to the ledger.
//
// A connection is the client's, from its opening until it is closed or lost:
//
//   isOpen, isBlocked, frameMax (bytes), heartbeat (ms), serverProperties
//   openChannel()            opens a channel to declare and to get with
//   openConfirms(listener)   opens a channel that publishes; it calls answered(tag, multiple,
//                            isAck), returned(exchange, routingKey, id, why) and closed({ code,
//                            text }), for one copy in the order returned, answered, closed
//   watch(watcher)           calls watcher.blocked(isBlocked), and watcher.lost(reason, isOrderly):
//                            orderly if the application closed the connection
//
// Both open functions reject with a ConnectionFailedError if the connection is lost.
//
// No callback here throws: an exception would break the client's connection.

const { performance } = require('node:perf_hooks') // the global one is looked up at each use

const c = require('../core')
const {
  ChannelClosedError, ConnectionFailedError, ContentError, PublishError, check, counted, errorOf, made
} = require('../errors')
const { replayError } = require('../observe/event')
const { NATIVE } = require('../native')
const { textOf } = require('../outcomes')
const { ACTION_NUMBERS } = require('../plan')
const { Policy } = require('../policy')
const { monotonicMs: now } = require('../times')
const earlier = require('./earlier')
const { BUDGET_MS } = require('./scheduler')

const LONGEST_TIMER = 2 ** 31 - 1 // ms; a longer timer ends at once
const BACK_OFF = Object.assign(new Policy(), { [NATIVE]: made(c.bh_back_off_new()) }) // the default
const RANDOM_BYTES = 8 // of a ledger

const {
  BH_STEP_REST: REST, BH_STEP_EMIT: TELL, BH_STEP_ACK: ACK, BH_STEP_NACK: NACK, BH_STEP_REJECT: REJECT,
  BH_STEP_GIVE_BACK: GIVE_BACK, BH_STEP_OPEN: OPEN, BH_STEP_DECLARE: DECLARE, BH_STEP_PUBLISH: PUBLISH
} = c
const [ENTRY, CHANNEL, TAG, EVENT, STATUS, DELAY, COUNT, DUE] = [0, 1, 2, 3, 4, 5, 6, 7] // of a step
const NAMES = Array.from({ length: c.BH_EVENT_LAST }, (_, kind) => c.bh_event_name(kind))
const SAFE = new Set(['retried', 'deferred', 'parked', 'replayed'])
const SETTLES = new Map([[ACK, 'ack'], [NACK, 'reject'], [REJECT, 'return'], [GIVE_BACK, 'back']])

/**
 * A plan to execute: the copy, if the plan publishes one, and the original to settle afterwards.
 *
 * original: see retrier.js
 * failure: why the message failed, for its events: { error, errorClass, errorText, trace }
 * replayed: of a replay; called once, with the error if the message stays parked. Nothing is tried
 *   again then.
 */
class Copy {
  constructor ({ plan, id = '', properties, content, original, failure, replayed }) {
    this.action = plan.action
    this.attempts = plan.attempts
    this.deferrals = plan.deferrals
    this.delay = plan.delay
    this.reason = plan.reason
    this.rung = plan.rung // ms; the rung to declare before the publish, 0: none
    this.exchange = plan.exchange
    this.routingKey = plan.routingKey
    this.mandatory = plan.mandatory
    this.id = id // its backhop-id: a return has it, the exchange and the routing key
    this.properties = properties
    this.content = content
    this.original = original
    this.failure = failure
    this.sent = 0 // performance.now() of the publish, if it is observed
    this.replayed = replayed
  }
}

class Publisher {
  #connection
  #declaring
  #emitter
  #isConsuming // whether the retrier has a consumer of its own
  #held // returns the handler that blocked the event loop for longer than the heartbeat: { id, duration }
  #ledger
  #step = new Float64Array(DUE + 1) // the ledger's last step
  #copies = new Map() // by entry
  #channels = new Map() // by original.channel: { number, original, originals }
  #numbers = new Map() // the same by the ledger's numbers
  #channel // the one that publishes
  #number // of this channel in the ledger
  #isClosing = false // the channel accepts no more copies
  #cause // the error of the last attempt to open a channel, or to declare the topology again
  #isExecuting = false
  #isDue = false // steps are executed in the next turn of the event loop
  #timer
  #at = Infinity // when the timer ends
  #end = 0 // of the time to publish in this turn; 0: nothing was published
  #isLate = false // this turn has no time for the copies that remain
  #why = '' // text of the last return, closed channel or refused rung
  #idle = []

  constructor (connection, {
    declaring, confirmTimeout, backOff = BACK_OFF, random, emitter, isConsuming = () => false, held = () => undefined
  }) {
    this.#connection = connection
    this.#declaring = declaring
    this.#emitter = emitter
    this.#isConsuming = isConsuming
    this.#held = held
    this.#ledger = made(c.bh_ledger_new(backOff[NATIVE], random(RANDOM_BYTES)))
    check(this.#ledger.set_confirm_timeout_ms(confirmTimeout))
    this.#ledger.set_restores(Number(declaring.isOwn))
    this.#ledger.block(Number(connection.isBlocked), now())
    connection.watch(this)
  }

  /** How many copies are not confirmed yet. */
  get pending () {
    return this.#connection.isOpen ? this.#ledger.copies() : 0
  }

  /** Resolves when no copy is pending. */
  async idle () {
    this.#executeSteps()
    if (this.pending) await new Promise(resolve => this.#idle.push(resolve))
  }

  /** Executes a plan: publishes the copy, if there is one, and then settles the original. */
  publish (copy) {
    if (!this.#connection.isOpen) { // the broker delivers the original again
      copy.replayed?.(replayError(ConnectionFailedError.status))
      earlier.end(copy.original, 'none')
      return
    }
    const { original, action, rung, id, exchange, routingKey } = copy
    const { number } = this.#keep(original)
    const entry = counted(this.#ledger.arrive_settled(
      number, original.tag, ACTION_NUMBERS[action], this.#neededRung(rung), id, exchange, routingKey
    ))
    this.#copies.set(entry, copy)
    this.#executeSoon()
  }

  /** Keeps an original unacknowledged for a while, as no copy of it can be made. */
  abandon (original) {
    if (!this.#connection.isOpen || !original.isOpen) return
    const { number } = this.#keep(original)
    this.#ledger.abandon(counted(this.#ledger.arrive(number, original.tag)), now())
    this.#setTimer(this.#ledger.due_ms())
  }

  /** Gives an original back to its queue. */
  giveBack (original) {
    if (!this.#connection.isOpen) return
    const { number } = this.#keep(original)
    this.#ledger.give_back(counted(this.#ledger.arrive(number, original.tag)))
    this.#executeSoon()
  }

  /** Records that the topology was declared. */
  declared () {
    this.#ledger.set_restores(Number(this.#declaring.isOwn))
    this.#ledger.rung(0, 0, now())
    this.#executeSteps()
  }

  /** Closes the channel that publishes, unless a copy needs it. A later copy opens another one. */
  close () {
    const channel = this.#channel
    if (!channel || this.pending) return
    this.#ledger.close_publisher(this.#number, c.BH_ENDING_ORDERLY, now())
    this.#channel = this.#number = undefined
    this.#isClosing = false
    channel.close()
  }

  // --- What a connection calls -------------------------------------------------------------------

  /** Ends all copies: the connection is lost, and the broker delivers their originals again. */
  lost (reason, isOrderly = false) {
    const [count, dropped] = [this.#ledger.copies(), [...this.#copies.values()]]
    clearTimeout(this.#timer)
    this.#channel = undefined
    for (const all of [this.#copies, this.#channels, this.#numbers]) all.clear()
    const held = isOrderly ? undefined : this.#held(this.#connection.heartbeat)
    if (!isOrderly && (count || held || this.#isConsuming())) {
      const error = new ConnectionFailedError(reason)
      this.#emitter.emit('disconnected', () => ({ cause: reason, error, count, ...held }))
    }
    for (const { original, replayed } of dropped) {
      replayed?.(replayError(ConnectionFailedError.status, reason))
      earlier.end(original, 'none')
    }
    this.#settled()
  }

  blocked (isBlocked) {
    this.#ledger.block(Number(isBlocked), now())
    this.#emitter.emit(isBlocked ? 'blocked' : 'unblocked', () => ({ count: this.#ledger.copies() }))
    this.#executeSteps()
  }

  #settled () {
    if (!this.#idle.length || this.pending) return
    for (const resolve of this.#idle.splice(0)) resolve()
  }

  // --- Deliveries in hand ------------------------------------------------------------------------

  /** Keeps an original until it is settled. Returns its channel. */
  #keep (original) {
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
    check(this.#ledger.settle(entry, ACTION_NUMBERS[action], this.#neededRung(rung), id, exchange, routingKey))
  }

  /** Returns the rung to declare before the publish, in ms; 0 for none. */
  #neededRung (rung) {
    return this.#declaring.makesRungs ? rung : 0
  }

  /**
   * Reports the closed channels, since the broker delivers their messages again. The ledger ends
   * each copy by an event: a copy in flight if the broker has confirmed it.
   */
  #loseClosed () {
    for (const { number, original } of this.#numbers.values()) {
      if (original.isOpen) continue
      this.#channels.delete(original.channel)
      this.#numbers.delete(number)
      this.#ledger.lose_channel(number)
    }
  }

  // --- Steps -------------------------------------------------------------------------------------

  /** Executes steps after this turn of the event loop, together with other failures in it. */
  #executeSoon () {
    if (this.#isDue) return
    this.#isDue = true
    setImmediate(() => {
      this.#isDue = false
      this.#executeSteps()
    })
  }

  #executeSteps = () => {
    if (this.#isExecuting || !this.#connection.isOpen) return
    this.#isExecuting = true
    this.#loseClosed()
    try {
      for (let step; (step = this.#next()) !== REST;) this.#execute(step)
    } finally {
      this.#isExecuting = false
    }
    this.#setTimer(this.#step[DUE])
    this.#settled()
  }

  #next () {
    const time = performance.now()
    return this.#ledger.advance(Math.floor(time), Number(this.#mayPublish(time)), this.#step)
  }

  #mayPublish (time) {
    return !this.#isClosing && this.#copies.size > 0 && this.#hasTime(time)
  }

  /**
   * Returns whether this turn of the event loop has time for one more publish. If not, the next
   * turn goes on.
   */
  #hasTime (time) {
    if (!this.#end) {
      this.#end = time + BUDGET_MS
      setImmediate(() => {
        this.#end = 0
        if (this.#isLate) this.#executeSteps()
      })
    }
    this.#isLate = time >= this.#end
    return !this.#isLate
  }

  /** Executes steps again at `due`, in ms of the monotonic clock; never if it is negative. */
  #setTimer (due) {
    if (due < 0 || due >= this.#at) return
    clearTimeout(this.#timer)
    this.#at = due
    this.#timer = setTimeout(() => {
      this.#at = Infinity
      this.#executeSteps()
    }, Math.min(Math.max(due - now(), 0) + 1, LONGEST_TIMER)).unref()
  }

  #execute (kind) {
    const step = this.#step
    switch (kind) {
      case TELL: this.#emit(step[ENTRY], step[EVENT]); break
      case PUBLISH: this.#send(step[ENTRY]); break
      case OPEN: this.#open(); break
      case DECLARE: this.#declare(step[DELAY]); break
      default: this.#settleOriginal(SETTLES.get(kind), this.#numbers.get(step[CHANNEL]), step[TAG])
    }
  }

  #settleOriginal (action, { originals }, tag) {
    const original = originals.get(tag)
    originals.delete(tag)
    original.settle(action)
  }

  #send (entry) {
    const copy = this.#copies.get(entry)
    if (!copy) { // its replay has ended
      this.#giveBack(entry)
      return
    }
    if (this.#emitter.isObserved) copy.sent = performance.now()
    try {
      if (this.#channel.publish(copy)) return
    } catch (error) { // the client cannot encode it, and has written nothing
      if (copy.replayed) {
        this.#endReplay(entry, copy, replayError(ContentError.status, textOf(error)))
      } else {
        this.#copies.delete(entry)
        this.#ledger.abandon(entry, now())
        earlier.end(copy.original, 'none')
        this.#emitter.refused(copy.id, error)
      }
      return
    }
    this.#isClosing = true // its event comes when it is closed
    this.#settle(entry, copy)
  }

  /** Ends a replay whose copy was not confirmed. Its message stays parked. */
  #endReplay (entry, { replayed }, error) {
    this.#copies.delete(entry)
    this.#giveBack(entry)
    replayed(error)
  }

  /** Ends the replays, or those whose copies were not published. */
  #endReplays (error, { areUnsent = false } = {}) {
    for (const [entry, copy] of this.#copies) {
      const isDue = this.#ledger.state(entry) === c.BH_STATE_DUE
      if (copy.replayed && (isDue || !areUnsent)) this.#endReplay(entry, copy, error)
    }
  }

  /**
   * Requeues an original, or abandons it if its copy is in flight: the broker requeues it when the
   * channel closes.
   */
  #giveBack (entry) {
    if (!this.#ledger.abandon(entry, now())) this.#ledger.give_back(entry)
  }

  /** Declares a rung, by its delay in ms; 0: the topology. */
  async #declare (rung) {
    let status = 0
    try {
      await (rung ? this.#declaring.makeRung(this.#connection, rung) : this.#declaring.restore(this.#connection))
    } catch (error) {
      status = error.status ?? PublishError.status
      if (rung) this.#why = error.message
      else this.#cause = error
    }
    this.#ledger.rung(rung, status, now())
    this.#executeSteps()
  }

  // --- Events ------------------------------------------------------------------------------------

  #emit (entry, event) {
    if (event === c.BH_EVENT_UNCONFIRMED) {
      this.#emitUnconfirmed(this.#step[COUNT])
      return
    }
    if (event === c.BH_EVENT_UNAVAILABLE) {
      this.#endReplays(replayError(PublishError.status, this.#cause.message), { areUnsent: true })
      this.#emitUnavailable({ error: this.#cause, delay: this.#step[DELAY], count: this.#step[COUNT] })
      return
    }
    const copy = this.#copies.get(entry)
    if (!copy) return // its replay has ended
    if (event === c.BH_EVENT_STALE) {
      this.#copies.delete(entry)
      if (copy.replayed) copy.replayed(new ConnectionFailedError('the channel of the parked message was closed'))
      else this.#emitter.emit('stale', () => ({ id: copy.id }))
      earlier.end(copy.original, 'none')
      return
    }
    const name = NAMES[event]
    if (SAFE.has(name)) {
      this.#copies.delete(entry)
      this.#emitSafe(name, copy)
      earlier.end(copy.original, copy.action)
    } else {
      if (name === 'refused') {
        this.#copies.delete(entry)
        earlier.end(copy.original, 'none')
      }
      this.#emitFailed(name, entry, copy, this.#step[STATUS], this.#step[DELAY])
    }
  }

  #emitSafe (name, copy) {
    if (copy.replayed) {
      copy.replayed()
      return
    }
    this.#emitter.emit(name, () => {
      const { id, attempts, deferrals, delay, reason, sent, failure } = copy
      const { error, errorClass, errorText, trace } = failure ?? {}
      const duration = sent ? performance.now() - sent : undefined
      return { id, attempts, deferrals, delay, reason, duration, error, errorClass, errorText, trace }
    })
  }

  #emitFailed (name, entry, copy, status, delay) {
    const { id, attempts, exchange, routingKey, replayed } = copy
    const text = this.#text(exchange, routingKey, this.#why, this.#declaring.suggestion)
    if (replayed) {
      this.#endReplay(entry, copy, name === 'refused' ? errorOf(status, text) : new PublishError(text))
      return
    }
    this.#emitter.emit(name, () => ({ id, attempts, delay, text, error: errorOf(status, text) }))
  }

  #emitUnconfirmed (count) {
    const error = new PublishError(this.#text('', '', '', ''))
    this.#emitter.emit('unconfirmed', () => ({ count, text: error.message, error }))
    this.#endReplays(error)
  }

  /** Emits that there is no channel to publish on. */
  #emitUnavailable ({ error, delay, count = this.#ledger.copies() }) {
    const fields = { cause: error.message, connection: 'publish', error, delay, count }
    this.#emitter.emit('unavailable', () => fields, { healths: [] }) // the consumer goes on
  }

  /** Returns the core's text about the last step. */
  #text (exchange, routingKey, reason, suggestion) {
    return this.#ledger.text(exchange, routingKey, reason, suggestion)
  }

  // --- The channel that publishes ----------------------------------------------------------------

  async #open () {
    let number
    const isThis = () => number !== undefined && number === this.#number
    try {
      const channel = await this.#connection.openConfirms({
        answered: (tag, multiple, isAck) => isThis() && this.#answered(tag, multiple, isAck),
        returned: (...returned) => isThis() && this.#returned(...returned),
        closed: reason => isThis() && this.#closed(reason)
      })
      if (!channel.isOpen) throw new ChannelClosedError('the channel was closed')
      this.#number = number = counted(this.#ledger.open_publisher())
      this.#channel = channel
    } catch (error) {
      this.#cause = error
      this.#ledger.publisher_failed(error.status ?? ChannelClosedError.status, now())
    }
    this.#executeSteps()
  }

  #answered (tag, multiple, isAck) {
    this.#ledger.confirm(this.#number, tag, Number(multiple), Number(isAck), now())
    this.#executeSteps()
  }

  #returned (exchange, routingKey, id, why) {
    this.#why = why
    this.#declaring.forget(this.#connection)
    c.bh_ledger_return(this.#ledger, this.#number, id, exchange, routingKey)
  }

  #closed ({ code, text }) {
    const ending = c.bh_ending_of(code)
    const count = this.#ledger.copies()
    this.#why = text
    if (this.#ledger.close_publisher(this.#number, ending, now())) {
      this.#emitUnavailable({ error: new ChannelClosedError(text), count })
    }
    if (ending === c.BH_ENDING_MISSING) this.#declaring.forget(this.#connection)
    this.#channel = this.#number = undefined
    this.#isClosing = false
    this.#executeSteps()
  }
}

module.exports = { BACK_OFF, Copy, LONGEST_TIMER, Publisher }
