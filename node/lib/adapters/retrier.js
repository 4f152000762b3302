'use strict'
// The part of a retrier that is the same over each client: it decides, settles, emits events,
// drains and replays.
//
// A client's own retrier has
//
//   _connection(given)            resolves to the connection to publish on (see publisher.js)
//   _consumer(handle, prefetch)   makes a consumer (see consumer.js)
//   _parked(got, connection)      makes a message of what a declaring channel got
//   _flush(isIdle)                resolves when all settlements have reached the broker; isIdle: no
//                                 handler runs
//
// Its messages have an original under the symbol ORIGINAL:
//
//   connection, channel, tag   where the delivery came by
//   isOpen                     whether the channel is open, so that the delivery can be settled
//   lostPrefetch               the prefetch of a closed channel, whose last acknowledgements the
//                              broker may not have; 0: unknown; CLOSED of earlier.js: it has all
//   call                       the number of the delivery's call while it runs, see earlier.js; 0
//                              or undefined: none
//   content                    the body as it arrived
//   hasId                      whether the message has an id
//   isCounted                  whether the message has the header that the poison guard reads
//   incoming                   the client's message
//   settle(action)             ack, reject (basic.nack, no requeue), return (basic.reject, requeue)
//                              or back (basic.nack, requeue)
//   properties(plan, history)  the properties of the plan's copy

const { performance } = require('node:perf_hooks') // the global one is looked up at each use

const { Decider } = require('../decider')
const { ConsumerCancelledError } = require('../errors')
const { Declaring, MODES } = require('../declaring')
const { limitOf, limited } = require('../limit')
const { Message, ORIGINAL, idOf, stopping } = require('../message')
const { Emitter } = require('../observe/emitter')
const { endOf, undrained } = require('../observe/event')
const { debug, warn } = require('../log')
const { TRACE } = require('../observe/observer')
const { finished } = require('../finished')
const { handler, instance, numberOf, only, pick, refuse, whole } = require('../checks')
const { OK, RELEASED, classOf, isAbort, policiesOf } = require('../outcomes')
const { ACTION_NUMBERS } = require('../plan')
const { Policy } = require('../policy')
const { milliseconds } = require('../times')
const { TOPOLOGY, topologyOf } = require('../topology')
const { Consumption } = require('./consumer')
const earlier = require('./earlier')
const { Gate } = require('./gate')
const { CALLS, Handling, SETTLED: IS_SETTLED, WAITS } = require('./handling')
const { BACK_OFF, Copy, LONGEST_TIMER, Publisher } = require('./publisher')
const { replay, replayOwnUnroutable } = require('./replay')
const { Watch } = require('./watch')

const DECIDER = ['never', 'only', 'policies', 'legacyCounter', 'waitQueues', 'clock', 'random']
const OPTIONS = [...TOPOLOGY, 'topology', 'mode', ...DECIDER, 'confirmTimeout', 'backOff', 'breaker', 'onEvent']
const BEGAN = Symbol('began') // of a message: when its handler began, if it is observed
const SETTLED = Symbol('settled') // of a client's message; a WeakSet of thousands takes 20 ms as it grows
const NO_FAILURE = { error: undefined, errorClass: '', errorText: '' }
const PREFETCH = 100
const MOST_PREFETCH = 65535
const LONGEST_CONFIRM_MS = 3_600_000
const DRAINS_LONG_MS = 20_000 // a worker's default for its drain

class BaseRetrier {
  #topology
  #decider
  #declaring
  #confirmTimeout
  #backOff
  #emitter
  #gate
  #publishers = new Map() // by connection
  #consumers = new Set()
  #stopping = stopping() // aborted for the handlers when the retrier drains
  #isWrapped = false // whether the application consumes by itself
  #watch

  #handling = new Handling({
    enter: (message, again) => this.#enter(message, again),
    permits: message => this.#isPermitted(message),
    begin: (message, permit) => this.#begin(message, permit),
    call: (message, handle) => this.#emitter.handle(message, handle),
    succeed: message => this.#succeed(message),
    fail: (message, thrown) => this._fail(message, thrown),
    refused: (error, message) => this._refused(error, message),
    giveBack: message => this.#giveBack(message),
    ended: message => this.#ended(message)
  })

  constructor (options) {
    const {
      mode = 'create', policies: given = [], confirmTimeout = '30s', backOff = BACK_OFF, breaker, onEvent
    } = only(options, OPTIONS, 'a Retrier')
    const policies = policiesOf(given)
    this.#topology = topologyOf(options, 'a Retrier', policies)
    numberOf(MODES, mode, 'mode')
    this.#declaring = new Declaring(this.#topology, mode)
    this.#decider = new Decider(this.#topology, { ...pick(options, DECIDER), policies })
    this.#confirmTimeout = milliseconds(confirmTimeout, 'confirmTimeout', { least: 1, most: LONGEST_CONFIRM_MS })
    this.#backOff = instance(backOff, Policy, 'backOff')
    this.#emitter = new Emitter(this.#topology.queue, onEvent, {
      copies: () => this.pending,
      consumers: () => ({ queue: this.#topology.queue, states: [...this.#consumers].map(({ health }) => health.state) })
    })
    this.#watch = new Watch({
      connection: () => this.#lookedOn,
      look: connection => this.#declaring.look(connection),
      returnsAfter: error => this.#declaring.returnsAfter(error),
      returnText: () => this.#declaring.returnText(),
      replay: connection => replayOwnUnroutable({ ...this.#replaying, connect: () => connection }),
      consuming: () => [...this.#consumers].filter(({ isConsuming }) => isConsuming).map(({ health }) => health),
      emit: (...event) => this.#emitter.emit(...event)
    }, this.#confirmTimeout)
    this.#gate = new Gate(breaker, this.#topology, this.#emitter, {
      defer: (message, delay) => this.#defer(message, delay), giveBack: message => this.#giveBack(message)
    })
  }

  static async declare (channel, options) {
    const retrier = new this(channel, options)
    await retrier.declare()
    return retrier
  }

  get topology () {
    return this.#topology
  }

  get policy () {
    return this.#topology.policy
  }

  get pending () {
    return [...this.#publishers.values()].reduce((count, publisher) => count + publisher.pending, 0)
  }

  // --- Declaring and consuming -------------------------------------------------------------------

  async declare (channel) {
    await this.#declaring.begin(await this._connection(channel))
    for (const publisher of this.#publishers.values()) publisher.declared()
  }

  async verify (channel) {
    await this.#declaring.verify(await this._connection(channel))
  }

  async consume (handle, options = {}) {
    const { prefetch = PREFETCH, timeout } = only(options, ['prefetch', 'timeout'], 'consume')
    handler(handle, 'consume')
    whole(prefetch, 'prefetch', 1, MOST_PREFETCH)
    const limitedHandle = limited(handle, limitOf(timeout))
    await this.declare()
    this._watch(await this._connection())
    const consumer = this._consumer(limitedHandle, prefetch)
    await consumer.open()
    for (const each of this.#consumers) {
      if (each.isCancelled) this.#consumers.delete(each)
    }
    this.#consumers.add(consumer)
    this.#watch.begin()
    consumer.closed.then(error => error || this.#consumers.delete(consumer)) // a lost one counts as not ready
    return new Consumption(this, consumer)
  }

  /**
   * Looks for the return exchange once a minute from now on: the application consumes by itself.
   */
  _keepLooking () {
    this.#isWrapped = true
    this.#watch.begin()
  }

  /** The connection to look on; undefined if none is open, or if nothing is consumed. */
  get #lookedOn () {
    const isConsuming = this.#isWrapped || [...this.#consumers].some(consumer => !consumer.isCancelled)
    return isConsuming ? [...this.#publishers.keys()].findLast(({ isOpen }) => isOpen) : undefined
  }

  /** Returns the flow of a consumer, see Gate. */
  _flow (consumer) {
    return this.#gate.flow(consumer)
  }

  get _backOff () {
    return this.#backOff
  }

  get _emitter () {
    return this.#emitter
  }

  /** Returns the error of a channel that the broker closed because it was to consume. */
  _consumerRefused ({ code, text }, cause) {
    return Object.assign(this._diagnosis('consumer', { code, text }), { cause })
  }

  /** See Declaring.diagnosis. */
  _diagnosis (refusal, given) {
    return this.#declaring.diagnosis(refusal, given)
  }

  // --- Handling ----------------------------------------------------------------------------------

  /** The signal for handlers of messages that the application consumes itself. */
  get _signal () {
    return this.#stopping.signal
  }

  /** Returns the history of a delivery. */
  _history (connection, delivery) {
    this.#decider.frameMax = connection.frameMax
    return this.#decider.read(delivery)
  }

  /** See Handling.handle. */
  _handle (read, handle, flow) {
    return this.#handling.handle(read, handle, flow)
  }

  /**
   * See Handling. Settles a message that no handler needs: an earlier call of it has ended, or it
   * is poison.
   */
  #enter (message, again) {
    const [kind, call, action] = this.#lookUp(message)
    if (kind === earlier.WAIT) {
      earlier.wait(call, again)
      return WAITS
    }
    if (kind === earlier.ACK) {
      this.#acknowledge(message, action)
      return IS_SETTLED
    }
    const poison = message[ORIGINAL].isCounted ? this.#decider.guard(message.history) : undefined
    if (poison) this.#execute(message, poison, { errorText: errorTextOf(poison) })
    return poison ? IS_SETTLED : CALLS
  }

  /** Looks up the earlier calls of a message, see earlier.js. */
  #lookUp (message) {
    const original = message[ORIGINAL]
    const { queue, redelivered } = message
    if (!original.hasId) return earlier.NEW
    let history
    try {
      history = this.#decider.arrived(message.history)
    } catch (error) { // it cannot be read
      if (redelivered) throw error
      return earlier.NEW
    }
    return earlier.arrive(original, history, queue, redelivered)
  }

  /** Acknowledges a message whose earlier delivery was settled by this action of the core. */
  #acknowledge (message, action) {
    if (action === ACTION_NUMBERS.ack) {
      this._begins(message)
      this.#succeed(message)
      return
    }
    const original = message[ORIGINAL]
    debug('an earlier delivery of the message %s was settled: this one is acknowledged', idOf(message))
    original.settle('ack')
    original.incoming[SETTLED] = true
  }

  /**
   * Ends the call of a message whose handler has ended, or got no call, unless its copy does so.
   */
  #ended (message) {
    const original = message[ORIGINAL]
    if (!original.incoming[SETTLED]) earlier.end(original, 'none')
  }

  /** Returns whether the handler may be called. If not, the message is settled. */
  #isPermitted (message) {
    let delay
    try {
      delay = this.#gate.delayOf(message)
    } catch (thrown) {
      this._begins(message)
      this._fail(message, thrown)
      return false
    }
    if (delay !== undefined) this.#defer(message, delay)
    return delay === undefined
  }

  #begin (message, permit) {
    this.#gate.begin(message, permit)
    this._begins(message)
  }

  /** Emits `delivered`. */
  _begins (message) {
    if (!this.#emitter.isObserved) return
    this.#emitter.emit('delivered', () => this.#pastOf(message))
    message[BEGAN] = performance.now()
  }

  /** Emits the end of a message that its handler had. */
  #ends (name, message, failure) {
    const began = message[BEGAN]
    this.#emitter.emit(name, () => {
      const past = this.#pastOf(message, failure)
      if (began !== undefined) past.duration = performance.now() - began
      return past
    })
  }

  #pastOf (message, { error, errorClass, errorText } = NO_FAILURE) {
    const { clock } = this.#decider
    const past = this.#decider.held(Message.read(message, 'history'))
    const redelivered = Message.read(message, 'redelivered')
    return { history: past, redelivered, now: clock(), error, errorClass, errorText, duration: undefined }
  }

  handle (message, handle) {
    if (!message?.[ORIGINAL]) refuse('what handle is given', message, 'a message that read gave')
    handler(handle, 'handle')
    if (this.#emitter.isObserved) message[BEGAN] = performance.now()
    const result = this.#emitter.handle(message, handle)
    return typeof result?.then === 'function' ? Promise.resolve(result).then(finished) : finished(result)
  }

  // --- Settling ----------------------------------------------------------------------------------

  settle (message, ...thrown) {
    if (!message?.[ORIGINAL]) refuse('what settle is given', message, 'a message that read gave')
    if (thrown.length) this._fail(message, thrown[0]) // also if a handler rejected with undefined
    else this.#succeed(message)
  }

  /** Acknowledges a message that was handled, whatever its history. */
  #succeed (message) {
    this.#gate.record(message, OK)
    const original = message[ORIGINAL]
    if (this.#canSettle(message)) {
      if (this.#emitter.isObserved) this.#ends('succeeded', message)
      original.settle('ack')
      original.incoming[SETTLED] = true
    }
    earlier.end(original, 'ack')
  }

  /** Settles a message whose handler threw. `thrown` may be any value. */
  _fail (message, thrown) {
    const decider = this.#decider
    const isReleased = isAbort(thrown, Message.read(message, 'signal'))
    const result = isReleased ? RELEASED : decider.result(thrown)
    this.#gate.record(message, result, thrown)
    if (!this.#canSettle(message)) return
    if (isReleased) {
      this.#release(message)
      return
    }
    try {
      const name = endOf(result, message, this.#topology)
      const failure = name === 'dropped' ? undefined : this.#failureOf(message, thrown, result)
      if (this.#emitter.isObserved) this.#ends(name, message, failure)
      decider.frameMax = message[ORIGINAL].connection.frameMax // messages of others came in the meantime
      const plan = decider.plan(Message.read(message, 'history'), result, message[TRACE]?.traceparent)
      this.#execute(message, plan, this.#kept(failure, plan))
    } catch (error) {
      this._refused(error, message)
    }
  }

  /** Gives a message back whose handler a stop aborted: this was no attempt. */
  #release (message) {
    this.#emitter.emit('stale', () => ({ id: idOf(message), status: ConsumerCancelledError.status }))
    this.#giveBack(message)
  }

  #giveBack (message) {
    const original = message[ORIGINAL]
    if (original.isOpen) { // otherwise the broker delivers it again
      this.#publisher(original.connection).giveBack(original)
      original.incoming[SETTLED] = true
    }
    earlier.end(original, 'none')
  }

  /** Lets a message wait without an attempt: no handler got it, as the breaker is open. */
  #defer (message, delay) {
    if (!this.#canSettle(message)) return
    const decider = this.#decider
    try {
      decider.frameMax = message[ORIGINAL].connection.frameMax
      const plan = decider.plan(message.history, { outcome: 'deferred', retryAfter: delay })
      this.#execute(message, plan, this.#emitter.waiting(message))
    } catch (error) {
      this._refused(error, message)
    }
  }

  /**
   * Returns what to keep of a failure until the copy is confirmed. An error is large, as it has a
   * stack.
   */
  #kept (failure, { action }) {
    if (action === 'park' || this.#emitter.hasListeners) return failure
    return failure && this.#emitter.isObserved ? { ...failure, error: undefined } : undefined
  }

  #failureOf (message, error, { error: errorText }) {
    return { error, errorClass: classOf(error), errorText, trace: message[TRACE] }
  }

  /**
   * Emits `refused` for a message that cannot be read or copied. Its original stays unacknowledged
   * for a while.
   */
  _refused (error, message) {
    this.#emitter.refused(idOf(message), error)
    if (!message) return
    this.#gate.record(message, RELEASED, error)
    const original = message[ORIGINAL]
    this.#publisher(original.connection).abandon(original)
    original.incoming[SETTLED] = true
    earlier.end(original, 'none')
  }

  /** Returns whether a message can still be settled. Emits `stale` if its channel is closed. */
  #canSettle (message) {
    const { incoming, isOpen } = message[ORIGINAL]
    if (incoming[SETTLED]) {
      debug('a message is settled already, and stays as it is')
    } else if (!isOpen) {
      this.#emitter.emit('stale', () => ({ id: idOf(message) }))
    }
    return isOpen && !incoming[SETTLED]
  }

  #execute (message, plan, failure) {
    const original = message[ORIGINAL]
    original.incoming[SETTLED] = true
    if (plan.action === 'drop') {
      original.settle('ack')
      earlier.end(original, 'drop')
    } else {
      this.#publisher(original.connection).publish(copyOf(message, plan, { failure }))
    }
  }

  /** Emits events of a connection from now on. */
  _watch (connection) {
    if (!connection.isOpen) return
    this.#publisher(connection)
    this.#watch.begin()
  }

  #publisher (connection) {
    let publisher = this.#publishers.get(connection)
    if (!publisher) {
      for (const old of this.#publishers.keys()) {
        if (!old.isOpen) this.#publishers.delete(old)
      }
      publisher = new Publisher(connection, {
        declaring: this.#declaring,
        confirmTimeout: this.#confirmTimeout,
        backOff: this.#backOff,
        random: this.#decider.random,
        emitter: this.#emitter,
        isConsuming: () => [...this.#consumers].some(consumer => !consumer.isCancelled),
        held: heartbeat => this.#handling.blockedFor(heartbeat)
      })
      this.#publishers.set(connection, publisher)
    }
    return publisher
  }

  // --- Draining ----------------------------------------------------------------------------------

  async drain (options = {}) {
    const { timeout } = only(options, ['timeout'], 'drain')
    const limit = timeout === undefined ? undefined : milliseconds(timeout, 'timeout')
    let timer
    const isLate = limit !== undefined && new Promise(resolve => {
      timer = setTimeout(resolve, Math.min(limit, LONGEST_TIMER), true)
    })
    const warning = setTimeout(() => this.#warnOfDrain(), DRAINS_LONG_MS).unref()
    const end = this.#handling.drain()
    try {
      const drained = this.#drained()
      if (!await Promise.race(isLate ? [drained, isLate] : [drained])) return
      throw undrained(this.#topology.queue, this.#handling.undrained + this.pending)
    } finally {
      end()
      clearTimeout(timer)
      clearTimeout(warning)
    }
  }

  /** Warns if a drain waits long for handlers: one of them may never end. */
  #warnOfDrain () {
    const { undrained: count } = this.#handling
    if (!count) return
    const handlers = count === 1 ? 'a handler still runs' : `${count} handlers still run`
    const waits = `drain() of queue "${this.#topology.queue}" has waited for ${DRAINS_LONG_MS / 1000} s`
    warn(`${waits}, and ${handlers}: give it a timeout, or the handler a time limit`, 'BACKHOP_DRAIN')
  }

  async [Symbol.asyncDispose ?? Symbol('asyncDispose')] () { // Node before 18.18 has no asyncDispose
    await this.drain()
  }

  async #drained () {
    this.#stopping.abort()
    this.#stopping = stopping() // for messages that arrive after the drain
    this.#gate.giveBack()
    await Promise.all([...this.#consumers].map(consumer => consumer.cancel()))
    while (this.#handling.undrained || this.pending) {
      await this.#handling.idle()
      for (const publisher of this.#publishers.values()) await publisher.idle()
    }
    this.#handling.giveBack()
    for (const publisher of this.#publishers.values()) await publisher.idle()
    await this._flush(this.#handling.count === 0)
    for (const publisher of this.#publishers.values()) publisher.close()
  }

  // --- Replaying ---------------------------------------------------------------------------------

  async replay (most = Number.MAX_SAFE_INTEGER) {
    whole(most, 'most')
    const { count, error } = await replay({ most, ...this.#replaying })
    this.#emitter.emit('replayed', () => ({ count, error, text: error?.message }))
    if (error) throw error
    return count
  }

  get #replaying () {
    return {
      topology: this.#topology,
      connect: () => this._connection(),
      read: (got, connection) => this._parked(got, connection),
      publish: (message, connection) => this.#replayOne(message, connection),
      diagnosis: (refusal, given) => this._diagnosis(refusal, given)
    }
  }

  /**
   * Resolves when the broker confirmed the copy in the work queue; rejects if the message stays
   * parked.
   */
  async #replayOne (message, connection) {
    const plan = this.#decider.replay(message.history)
    await new Promise((resolve, reject) => {
      const replayed = error => error ? reject(error) : resolve()
      this.#publisher(connection).publish(copyOf(message, plan, { replayed }))
    })
  }
}

/** Returns what the publisher needs to execute a plan. */
function copyOf (message, plan, rest) {
  const original = message[ORIGINAL]
  const { content } = original
  const history = Message.read(message, 'history')
  if (!plan.publishes) return new Copy({ plan, id: history._eventId, original, ...rest })
  return new Copy({ plan, id: plan.id, properties: original.properties(plan, history), content, original, ...rest })
}

/** Returns the error text that a copy carries. */
function errorTextOf ({ headers }) {
  return headers.find(([name]) => name === 'backhop-error')?.[1].value
}

module.exports = { BaseRetrier }
