'use strict'
// What the retriers over each client share: what they decide, what they tell, how they wait.

const { performance } = require('node:perf_hooks') // the global one is looked up anew each time

const { TRACE } = require('./bridge')
const { Decider } = require('./decider')
const { Declaring, MODES } = require('./declaring')
const {
  AccessError, ArgumentError, ChannelClosedError, ConsumerCancelledError, ContentError, FrameError, MissingError,
  errorOf
} = require('./errors')
const { Teller, endOf, undrained } = require('./event')
const { debug } = require('./log')
const { idOf } = require('./message')
const NATIVE = require('./native')
const { handler, instance, numberOf, only, refuse, whole } = require('./options')
const { classOf, policiesOf, textOf } = require('./outcomes')
const { Policy } = require('./policy')
const { BACK_OFF, Copy, LONGEST_TIMER, Publisher } = require('./publisher')
const { milliseconds } = require('./time')
const { Topology } = require('./topology')
const { Slices } = require('./turns')

const TOPOLOGY = [
  'queue', 'policy', 'strategy', 'queueType', 'namespace', 'series', 'stripes', 'workQueue', 'workQueueArguments'
]
const DECIDER = ['never', 'only', 'policies', 'legacyCounter', 'waitQueues', 'clock', 'random']
const OPTIONS = [...TOPOLOGY, 'topology', 'mode', ...DECIDER, 'confirmTimeout', 'backOff', 'onEvent']
const ORIGINAL = Symbol('original') // of a message: how its client settles it, and makes its copy
const BEGAN = Symbol('began') // of a message: when its handler did, where somebody listens
const NO_FAILURE = { error: undefined, errorClass: '', errorText: '' }
const SETTLED = Symbol('settled') // of a client's message; a WeakSet of thousands takes 20 ms as it grows
const PREFETCH = 100
const MOST_PREFETCH = 65535
const LONGEST_CONFIRM_MS = 3_600_000
const MOST_LOOKED = 10_000 // messages of a queue that others share: each of theirs is held until the end
const REFUSALS = [FrameError, ContentError, ChannelClosedError]
const LASTED_MS = 10_000 // a consumer that held so long is subscribed again at once

class BaseRetrier {
  #topology
  #decider
  #declaring
  #confirmTimeout
  #backOff
  #teller
  #publishers = new Map() // by line
  #consumers = new Set()
  #stopping = new AbortController() // tells the handlers that it drains
  #handling = 0
  #arrived = new Slices() // a client gives all that it has read at once
  #ended = new Slices() // what many handlers wait for may come at once
  #idle = []

  constructor (options) {
    const {
      mode = 'create', policies: given = [], confirmTimeout = '30s', backOff = BACK_OFF, onEvent
    } = only(options, OPTIONS, 'a Retrier')
    const policies = policiesOf(given)
    this.#topology = topologyOf(options, 'a Retrier', policies)
    numberOf(MODES, mode, 'mode')
    this.#declaring = new Declaring(this.#topology, mode)
    this.#decider = new Decider(this.#topology, { ...pick(options, DECIDER), policies })
    this.#confirmTimeout = milliseconds(confirmTimeout, 'confirmTimeout', { least: 1, most: LONGEST_CONFIRM_MS })
    this.#backOff = instance(backOff, Policy, 'backOff')
    this.#teller = new Teller(this.#topology.queue, onEvent, { copies: () => this.pending })
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

  // Declaring

  async declare (channel) {
    await this.#declaring.begin(await this._line(channel))
  }

  async verify (channel) {
    await this.#declaring.verify(await this._line(channel))
  }

  // Consuming

  async consume (handle, options = {}) {
    const { prefetch = PREFETCH } = only(options, ['prefetch'], 'consume')
    handler(handle, 'consume')
    whole(prefetch, 'prefetch', 1, MOST_PREFETCH)
    await this.declare()
    this._attend(await this._line())
    const consumer = this._consumer(handle, prefetch)
    await consumer.open()
    this.#consumers.add(consumer)
    consumer.closed.then(() => this.#consumers.delete(consumer))
    return new Consumption(this, consumer)
  }

  get _backOff () {
    return this.#backOff
  }

  get _teller () {
    return this.#teller
  }

  // Handling

  get _signal () {
    return this.#stopping.signal
  }

  /** What the client's delivery tells, for `read`. */
  _read (line, delivery) {
    this.#decider.frameMax = line.frameMax
    return this.#decider.read(delivery)
  }

  /** Reads a message, hands it to the handler, and settles it; never rejects. */
  _handle (read, handle) {
    this.#handling++
    return new Promise(resolve => {
      this.#arrived.add(() => this.#handOne(read, handle, resolve))
    })
  }

  #handOne (read, handle, resolve) {
    const over = () => {
      this.#handling--
      this.#settled()
      resolve()
    }
    let message
    try {
      message = read()
      const poison = message[ORIGINAL].isCounted ? this.#decider.guard(message.history) : undefined
      if (poison) {
        this.#carryOut(message, poison, { errorText: errorIn(poison) })
        over()
        return
      }
      this._begins(message)
    } catch (error) {
      this._refused(error, message)
      over()
      return
    }
    let result
    let isLater
    try {
      result = this.#teller.handle(message, handle)
      isLater = typeof result?.then === 'function'
    } catch (thrown) {
      this._fail(message, thrown)
      over()
      return
    }
    if (isLater) {
      this.#settleLater(message, result).then(over)
    } else {
      this.#succeed(message)
      over()
    }
  }

  /** A handler that ends at once is settled before the next message is read. */
  async #settleLater (message, result) {
    let settle = () => this.#succeed(message)
    try {
      await result
    } catch (thrown) {
      settle = () => this._fail(message, thrown)
    }
    if (!this.#arrived.hasTime) await new Promise(resolve => this.#ended.add(resolve))
    settle()
  }

  /** Tells that a message is handled now. */
  _begins (message) {
    if (!this.#teller.isHeard) return
    this.#teller.tell('delivered', () => this.#pastOf(message))
    message[BEGAN] = performance.now()
  }

  /** Of a message that its handler had. */
  #ends (name, message, failure) {
    const began = message[BEGAN]
    this.#teller.tell(name, () => {
      const past = this.#pastOf(message, failure)
      if (began !== undefined) past.duration = performance.now() - began
      return past
    })
  }

  #pastOf ({ history, redelivered }, { error, errorClass, errorText } = NO_FAILURE) {
    const { clock } = this.#decider
    const past = this.#decider.held(history)
    return { history: past, redelivered, now: clock(), error, errorClass, errorText, duration: undefined }
  }

  handle (message, handle) {
    if (!message?.[ORIGINAL]) refuse('what handle is given', message, 'a message that read gave')
    handler(handle, 'handle')
    if (this.#teller.isHeard) message[BEGAN] = performance.now()
    return this.#teller.handle(message, handle)
  }

  settle (message, error) {
    if (!message?.[ORIGINAL]) refuse('what settle is given', message, 'a message that read gave')
    if (error !== undefined && error !== null) this._fail(message, error)
    else this.#succeed(message)
  }

  /** What went well is acknowledged, whatever its history. */
  #succeed (message) {
    if (!this.#isOpen(message)) return
    if (this.#teller.isHeard) this.#ends('succeeded', message)
    const original = message[ORIGINAL]
    original.settle('ack')
    original.incoming[SETTLED] = true
  }

  /** As `settle` for a handler that threw, whatever it was. */
  _fail (message, thrown) {
    if (!this.#isOpen(message)) return
    const decider = this.#decider
    try {
      const result = decider.result(thrown)
      const name = endOf(result.outcome)
      const failure = name === 'failed' ? this.#failureOf(message, thrown, result) : undefined
      if (this.#teller.isHeard) this.#ends(name, message, failure)
      decider.frameMax = message[ORIGINAL].line.frameMax // another connection may have been served meanwhile
      const plan = decider.plan(message.history, result, message[TRACE]?.traceparent)
      this.#carryOut(message, plan, this.#kept(failure, plan))
    } catch (error) {
      this._refused(error, message)
    }
  }

  /** Of a failure, until the copy is confirmed: an error is large, with its stack, where nobody is given it. */
  #kept (failure, { action }) {
    if (action === 'park' || this.#teller.isListened) return failure
    return failure && this.#teller.isHeard ? { ...failure, error: undefined } : undefined
  }

  /** What is told of a failure. */
  #failureOf (message, error, { error: errorText }) {
    return { error, errorClass: classOf(error), errorText, trace: message[TRACE] }
  }

  /** It can be neither read nor copied; what can be named is left for a while, and then given back. */
  _refused (error, message) {
    this.#teller.refused(idOf(message), error)
    if (!message) return
    const original = message[ORIGINAL]
    this.#publisher(original.line).leave(original)
    original.incoming[SETTLED] = true
  }

  #isOpen (message) {
    const { incoming, isHere } = message[ORIGINAL]
    if (incoming[SETTLED]) {
      debug('a message is settled already, and stays as it is')
    } else if (!isHere) {
      this.#teller.tell('stale', () => ({ id: idOf(message) }))
    }
    return isHere && !incoming[SETTLED]
  }

  #carryOut (message, plan, failure) {
    const original = message[ORIGINAL]
    if (plan.action === 'drop') original.settle('ack')
    else this.#publisher(original.line).publish(this.#copy(message, plan, failure))
    original.incoming[SETTLED] = true
  }

  #copy (message, plan, failure, replayed) {
    const original = message[ORIGINAL]
    const { history, body: content } = message
    if (!plan.publishes) return new Copy({ plan, id: history.id, original, failure, replayed })
    const properties = original.properties(plan, history)
    return new Copy({ plan, id: plan.id, properties, content, original, failure, replayed })
  }

  /** Why the broker closed a channel that was to consume: by its reply code and text. */
  _consumerRefused ({ code, text }, cause) {
    return Object.assign(this._diagnosis('refuse_consumer', code, text), { cause })
  }

  /** What is wrong with how a client consumes, as of Declaring. */
  _diagnosis (asks, ...args) {
    return this.#declaring.diagnosis(asks, ...args)
  }

  /** Tells what becomes of the connection from now on. */
  _attend (line) {
    if (line.isOpen) this.#publisher(line)
  }

  #publisher (line) {
    let publisher = this.#publishers.get(line)
    if (!publisher) {
      for (const old of this.#publishers.keys()) {
        if (!old.isOpen) this.#publishers.delete(old)
      }
      publisher = new Publisher(line, {
        declaring: this.#declaring,
        confirmTimeout: this.#confirmTimeout,
        backOff: this.#backOff,
        random: this.#decider.random,
        teller: this.#teller,
        isConsuming: () => [...this.#consumers].some(consumer => !consumer.isCancelled)
      })
      this.#publishers.set(line, publisher)
    }
    return publisher
  }

  // Waiting

  get pending () {
    return [...this.#publishers.values()].reduce((count, publisher) => count + publisher.pending, 0)
  }

  async drain (options = {}) {
    const { timeout } = only(options, ['timeout'], 'drain')
    const limit = timeout === undefined ? undefined : milliseconds(timeout, 'timeout')
    let timer
    const isLate = limit !== undefined && new Promise(resolve => {
      timer = setTimeout(resolve, Math.min(limit, LONGEST_TIMER), true)
    })
    const drained = this.#drained()
    try {
      if (!await Promise.race(isLate ? [drained, isLate] : [drained])) return
    } finally {
      clearTimeout(timer)
    }
    throw undrained(this.#topology.queue, this.#handling + this.pending)
  }

  async [Symbol.asyncDispose ?? Symbol('asyncDispose')] () { // before Node 18.18 there is none
    await this.drain()
  }

  async #drained () {
    this.#stopping.abort()
    this.#stopping = new AbortController() // for what is consumed after it
    await Promise.all([...this.#consumers].map(consumer => consumer.cancel()))
    while (this.#handling || this.pending) {
      if (this.#handling) await new Promise(resolve => this.#idle.push(resolve))
      for (const publisher of this.#publishers.values()) await publisher.idle()
    }
    await this._flush()
  }

  #settled () {
    if (this.#handling) return
    for (const resolve of this.#idle.splice(0)) resolve()
  }

  // Replaying

  async replay (most = Number.MAX_SAFE_INTEGER) {
    whole(most, 'most')
    const done = { most, count: 0, error: undefined }
    try {
      const line = await this._line()
      await this.#replayFrom(line, this.#topology.parkedQueue, done)
      await this.#replayUnroutable(line, done)
    } catch (error) {
      done.error = error
    }
    const { count, error } = done
    this.#teller.tell('replayed', () => ({ count, error, text: error?.message }))
    if (error) throw error
    return count
  }

  /** That queue is everybody's: who may not read it, or has not declared it, replays what is parked all the same. */
  async #replayUnroutable (line, done) {
    const queue = this.#topology[NATIVE].unroutable_queue()
    if (!queue) return
    try {
      await this.#replayFrom(line, queue, done, message => this.#isOwn(message))
    } catch (error) {
      if (!(error instanceof MissingError || error instanceof AccessError)) throw error
    }
  }

  /**
   * What comes into the queue meanwhile is not for this one: else a message that always fails would go round for ever.
   * What is not sent is unacknowledged until the channel closes, and then is where it was.
   */
  async #replayFrom (line, queue, done, isOwn = undefined) {
    if (done.count >= done.most) return
    const channel = await line.openChannel()
    try {
      let limit = Infinity
      for (let seen = 0; done.count < done.most && seen < limit; seen++) {
        const got = await channel.get(queue)
        if (!got) return
        if (got.refusal) throw this._diagnosis('refuse_replay', queue, got.refusal.code, got.refusal.text)
        // A passive declare of a busy quorum queue tells 0.
        if (seen === 0) limit = isOwn ? Math.min(got.left + 1, MOST_LOOKED) : got.left + 1
        const message = this._parked(got, line)
        if (!isOwn || isOwn(message)) await this.#replayOne(line, message, done)
      }
    } finally {
      await channel.close()
    }
  }

  /** Sends it back; where it is refused for what it is, those behind it go. */
  async #replayOne (line, message, done) {
    try {
      const plan = this.#decider.replay(message.history)
      await new Promise((resolve, reject) => {
        const replayed = error => error ? reject(error) : resolve()
        this.#publisher(line).publish(this.#copy(message, plan, undefined, replayed))
      })
      done.count++
    } catch (error) {
      if (!REFUSALS.some(each => error instanceof each)) throw error
      done.error ??= error
    }
  }

  /** One that cannot be read is nobody's. */
  #isOwn (message) {
    try {
      return Boolean(this.#topology[NATIVE].owns(message.delivery[NATIVE]))
    } catch {
      return false
    }
  }
}

/** What `consume` began: an application's handle on it. */
class Consumption {
  #retrier
  #consumer

  constructor (retrier, consumer) {
    this.#retrier = retrier
    this.#consumer = consumer
  }

  /** Resolves once it consumes no more: to the error that ended it, or to nothing where it was cancelled. */
  get closed () {
    return this.#consumer.closed
  }

  async cancel () {
    await this.#consumer.cancel()
  }

  async [Symbol.asyncDispose ?? Symbol('asyncDispose')] () {
    await this.cancel()
    await this.#retrier.drain()
  }
}

/**
 * A subscription that is made again where it ends, until it is cancelled or its connection is lost. A client's own has
 *
 *   _subscribe()      resolves once it consumes, and calls _ended where the broker ends it later
 *   _unsubscribe()    resolves once nothing more is delivered
 *   isLost            why it will never be again: an Error; undefined while it can be
 */
class BaseConsumer {
  closed
  #close
  #retrier
  #stopping = new AbortController()
  #failures = 0
  #wait = 0
  #since = 0
  #timer
  #cancelled

  constructor (retrier) {
    this.#retrier = retrier
    this.closed = new Promise(resolve => { this.#close = resolve })
  }

  get signal () {
    return this.#stopping.signal
  }

  get isCancelled () {
    return this.#stopping.signal.aborted
  }

  async open () {
    await this._subscribe()
    this.#since = performance.now()
  }

  /**
   * `why`: the broker's or the client's words, none where it was cancelled; `error`: why it could not be made again,
   * none where the one that there was has ended.
   */
  _ended (why = '', error) {
    if (this.isCancelled || this.#timer) return
    if (this.isLost) {
      this.#stopping.abort()
      this.#close(this.isLost)
      return
    }
    if (performance.now() - this.#since > LASTED_MS) this.#failures = this.#wait = 0
    const delay = this.#retrier._backOff.delay(++this.#failures, { previous: this.#wait, random: Math.random() })
    this.#wait = delay
    const ended = why ? new ChannelClosedError(why) : errorOf(ConsumerCancelledError.status)
    this.#retrier._teller.tell(error ? 'unavailable' : 'cancelled', () => ({
      cause: why, connection: 'consume', error: error ?? ended, delay
    }))
    this.#timer = setTimeout(() => this.#again(), Math.min(this.#wait, LONGEST_TIMER))
  }

  async #again () {
    try {
      await this.#retrier.declare()
      if (this.isCancelled) return
      await this._subscribe()
      this.#since = performance.now()
      this.#timer = undefined
      if (this.isCancelled) await this._unsubscribe()
    } catch (error) {
      this.#timer = undefined
      this._ended(textOf(error), error)
    }
  }

  cancel () {
    return (this.#cancelled ??= this.#cancel())
  }

  async #cancel () {
    const isLost = this.isCancelled
    this.#stopping.abort()
    clearTimeout(this.#timer)
    if (!isLost && !this.#timer) await this._unsubscribe()
    this.#close()
  }
}

function pick (options, names) {
  return Object.fromEntries(names.filter(name => options[name] !== undefined).map(name => [name, options[name]]))
}

/** The topology that is given, or that of a queue, a policy, and the policies of errors. */
function topologyOf (options, what, policies) {
  const given = Object.keys(pick(options, TOPOLOGY))
  if (options.topology === undefined) {
    if (options.queue !== undefined) {
      return new Topology({ ...pick(options, TOPOLOGY), policies: policies.map(([, policy]) => policy) })
    }
    throw new ArgumentError(`${what} has neither queue nor topology: give the name of the work queue, or a Topology`)
  }
  if (given.length) throw new ArgumentError(`${what} has its ${given[0]} from the topology: give either`)
  return instance(options.topology, Topology, 'topology')
}

/** What a copy tells of the failure. */
function errorIn ({ headers }) {
  return headers.find(([name]) => name === 'backhop-error')?.[1].value
}

module.exports = { BaseConsumer, BaseRetrier, ORIGINAL, TOPOLOGY, topologyOf }
