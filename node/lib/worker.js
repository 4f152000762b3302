'use strict'
// Worker: consumes a queue and executes plans, on connections of its own. The core's background
// thread keeps them.

const { AsyncResource } = require('node:async_hooks')
const { EventEmitter } = require('node:events')
const os = require('node:os')
const { performance } = require('node:perf_hooks')

const { Breaker } = require('./breaker')
const { Call } = require('./calls')
const c = require('./core')
const { TRACE } = require('./observe/observer')
const { MODES } = require('./declaring')
const {
  ArgumentError, ConnectionFailedError, NoLibrabbitmqError, StateError, WaitTimeoutError, check, errorOf, made
} = require('./errors')
const { EACH_MESSAGE, Emitter } = require('./observe/emitter')
const { endOf } = require('./observe/event')
const { Health } = require('./health')
const { setHistory } = require('./history')
const { limitOf, limited } = require('./limit')
const { Message, idOf, stopping } = require('./message')
const { NATIVE } = require('./native')
const { finished } = require('./finished')
const { flag, handler, instance, list, numberOf, only, refuse, text, texts, whole } = require('./checks')
const { checkServed } = require('./decider')
const { Choice, OK, RELEASED, classOf, isAbort, policiesOf } = require('./outcomes')
const { OUTCOMES, SETTLEMENTS } = require('./plan')
const { Policy } = require('./policy')
const { TakenMessage } = require('./taken')
const { milliseconds } = require('./times')
const { TOPOLOGY, topologyOf } = require('./topology')

const URIS = 'a string as "amqp://user:password@host:5672/vhost", or an array of such'
const LONGEST_MS = 3_600_000
const LOOK_AFTER_MS = 1000 // interval of taking events while every handler has a message
const BUDGET_MS = 5 // of handing out messages per turn of the event loop
const NO_LIBRABBITMQ =
  'this Backhop was built without librabbitmq, which its Worker needs (backhop/amqplib and backhop/amqp do not): ' +
  'install librabbitmq 0.11 or newer, OpenSSL 3 and pkg-config (Debian and Ubuntu: librabbitmq-dev libssl-dev ' +
  'pkg-config, Fedora: librabbitmq-devel openssl-devel pkgconf, Homebrew: rabbitmq-c openssl pkgconf), then: ' +
  'npm rebuild backhop'
const OPTIONS = [
  ...TOPOLOGY, 'topology', 'mode', 'never', 'only', 'policies', 'legacyCounter', 'waitQueues', 'confirmTimeout',
  'backOff', 'concurrency', 'prefetch', 'timeout', 'caFile', 'cert', 'key', 'connectTimeout', 'drain', 'retryEvents',
  'failFast', 'breaker', 'onEvent'
]
const SIGNALS = ['SIGTERM', 'SIGINT']
const MOST_PREFETCH = 65535
const OWN = ['replayed', 'drained'] // events that the worker itself needs
const COPIED = ['retried', 'deferred', 'parked'] // events of a confirmed copy
const PUBLISHED_AGAIN = ['returned', 'nacked'] // events of a copy that is not confirmed
const NO_FAILURE = {}
const BREAKERS = new FinalizationRegistry(() => {}) // keeps a worker's breaker until the worker is freed

class Worker extends EventEmitter {
  #native
  #settings // of the core's worker, but the last one: whether it emits retries
  #topology
  #concurrency
  #choice
  #drain
  #timeout // the time limit of handlers, in ms; undefined: none
  #handle
  #watch
  #running = 0
  #isResting = false
  #timer
  #ended
  #end
  #stopping // aborted for the handlers when the run stops
  #replaying // resolve and reject of the running replay
  #retryEvents
  #emitsRetries // whether `retried` is emitted in this run
  #emitter
  #health
  #isListened = false // whether there is a listener to events of each message
  #breaker
  #mostFailures
  #failures = new Map() // { error, trace } by number of a failed message, for its next event

  constructor (uris, options = {}) {
    super()
    checkRuntime()
    const { concurrency = 50 } = only(options, OPTIONS, 'a Worker')
    whole(concurrency, 'concurrency', 1)
    const {
      never, only: others, policies: pairs = [], mode = 'create', legacyCounter, waitQueues = [],
      confirmTimeout = 30_000,
      backOff, prefetch = Math.min(MOST_PREFETCH, Math.max(100, 2 * concurrency)), timeout,
      caFile, cert, key, connectTimeout = 10_000, drain = 20_000, retryEvents = false, failFast = true, breaker,
      onEvent
    } = options
    whole(prefetch, 'prefetch', 0, MOST_PREFETCH)
    const addresses = typeof uris === 'string' ? [uris] : list(uris, 'the first argument of a Worker', URIS)
    if (!addresses.length) refuse('the first argument of a Worker', uris, URIS)
    for (const uri of addresses) {
      if (typeof uri !== 'string') throw new ArgumentError(`a URI is no string, but ${typeof uri}: give ${URIS}`)
    }
    const policies = policiesOf(pairs)
    this.#topology = topologyOf(options, 'a Worker', policies)
    this.#concurrency = concurrency
    this.#choice = new Choice({ never, only: others, policies })
    checkServed(this.#topology, policies)
    this.#drain = drainOf(drain, 'drain')
    const native = this.#native = made(
      c.bh_worker_new(this.#topology.policy[NATIVE], this.#topology[NATIVE]), NO_LIBRABBITMQ, NoLibrabbitmqError
    )
    for (const uri of addresses) this.#check(native.add_uri(uri))
    if (breaker !== undefined) this.#keepBreaker(instance(breaker, Breaker, 'breaker'))
    if (legacyCounter !== undefined) text(legacyCounter, 'legacyCounter', 'the name of a header')
    const history = made(c.bh_history_new())
    setHistory(history, { legacyCounter, waitQueues: texts(waitQueues, 'waitQueues') })
    this.#mostFailures = prefetch + c.BH_WORKER_MOST_EVENTS
    this.#timeout = limitOf(timeout)
    this.#settings = [
      numberOf(MODES, mode, 'mode'), prefetch,
      milliseconds(connectTimeout, 'connectTimeout', { least: 1, most: LONGEST_MS }),
      milliseconds(confirmTimeout, 'confirmTimeout', { least: 1, most: LONGEST_MS }),
      this.#timeout ?? 0, backOff === undefined ? null : instance(backOff, Policy, 'backOff')[NATIVE], history,
      pathOf(caFile, 'caFile'), pathOf(cert, 'cert'), pathOf(key, 'key'),
      this.#breaker && !this.#breaker.hasKey ? this.#breaker[NATIVE] : null, Number(flag(failFast, 'failFast'))
    ]
    this.#check(native.set(...this.#settings, 0))
    this.#retryEvents = flag(retryEvents, 'retryEvents')
    this.#health = new Health(true, health => native.state(health))
    this.#emitter = new Emitter(this.#topology.queue, onEvent, {
      copies: () => native.copies(),
      consumers: () => ({ queue: this.#topology.queue, states: [this.state] }),
      countFor: metrics => this.#countFor(metrics)
    })
    this.on('newListener', name => { this.#isListened ||= EACH_MESSAGE.includes(name) })
  }

  #keepBreaker (breaker) {
    breaker._checkServed(this.#topology)
    this.#breaker = breaker
    if (!breaker.hasKey) BREAKERS.register(this.#native, breaker)
  }

  #check (status) {
    if (status) throw errorOf(status, this.#native.error())
  }

  /**
   * Sets metrics that the background thread counts, once for all observers. Returns a function that
   * adds its counts to other metrics.
   */
  #countFor (metrics) {
    const native = this.#native
    this.#check(native.set_metrics(metrics))
    return others => check(native.read_metrics(others))
  }

  get topology () {
    return this.#topology
  }

  get state () {
    return this.#health.state
  }

  get stateReason () {
    return this.#health.reason
  }

  ready (options) {
    return this.#health.ready(options)
  }

  /** True if events of each message are needed. */
  get #isObserved () {
    return this.#isListened || this.#emitter.isObserved
  }

  // --- Running -----------------------------------------------------------------------------------

  async run (handle, options = {}) {
    handler(handle, 'run')
    const { signal, signals = [] } = only(options, ['signal', 'signals'], 'run')
    if (signal !== undefined && typeof signal?.addEventListener !== 'function') {
      refuse('signal', signal, 'an AbortSignal')
    }
    const taken = typeof signals === 'boolean' ? (signals ? SIGNALS : []) : texts(signals, 'signals').map(caught)
    if (this.#watch) throw new StateError('the worker runs already')
    this.#emitsRetries = this.#retryEvents || this.#isObserved
    this.#check(this.#native.set(...this.#settings, Number(this.#emitsRetries)))
    this.#failures.clear()
    this.#check(this.#native.start())
    this.#stopping = stopping()
    // Each handler has a resource of its own in the context of the run. The next handler does not
    // see the values that it sets by AsyncLocalStorage.enterWith.
    const limitedHandle = limited(handle, this.#timeout)
    this.#handle = AsyncResource.bind((message, call) => {
      const resource = new AsyncResource('BackhopMessage', { requireManualDestroy: true })
      try {
        return resource.runInAsyncScope(() => call.run(() => this.#emitter.handle(message, limitedHandle)))
      } finally {
        resource.emitDestroy()
      }
    }, 'BackhopWorker')
    this.#ended = new Promise(resolve => { this.#end = resolve })
    this.#watch = new c.Watch(this.#native.fd(), () => this.#look())
    const abort = () => { this.stop().catch(() => {}) } // `drained` is a warning
    const release = onFirst(taken, abort)
    signal?.addEventListener('abort', abort)
    if (signal?.aborted) abort()
    const failure = await this.#ended
    release()
    signal?.removeEventListener('abort', abort)
    if (failure && !isLate(failure)) throw failure
  }

  async stop (options = {}) {
    const { timeout = this.#drain } = only(options, ['timeout'], 'stop')
    check(this.#native.stop(drainOf(timeout, 'timeout')))
    this.#stopping?.abort()
    if (Call.current(this)) return // the run ends after this handler
    const failure = await this.#ended
    if (isLate(failure)) throw failure
  }

  async [Symbol.asyncDispose ?? Symbol('asyncDispose')] () { // Node before 18.18 has no asyncDispose
    await this.stop()
  }

  setCredentials (user, password) {
    if (typeof password !== 'string') throw new ArgumentError('password is no text: give a string') // not shown
    const status = this.#native.set_credentials(text(user, 'user', 'a name'), password)
    check(status, 'give a user, and no zero byte in user or password')
  }

  async replay (most = Number.MAX_SAFE_INTEGER) {
    whole(most, 'most')
    if (!this.#watch) throw new StateError('the worker does not run: replay while it does')
    if (this.#replaying) throw new StateError('a replay runs already: await it first')
    check(this.#native.replay(most), 'the worker stops: replay while it runs', StateError)
    return new Promise((resolve, reject) => { this.#replaying = { resolve, reject } })
  }

  #replayed ({ error, count }) {
    const replaying = this.#replaying
    this.#replaying = undefined
    if (error) replaying?.reject(error)
    else replaying?.resolve(count)
  }

  // --- Taking ------------------------------------------------------------------------------------

  /** Takes events and messages: the core's file descriptor is readable. */
  #look () {
    this.#takeEvents()
    if (!this.#watch) return
    if (this.#running >= this.#concurrency) {
      this.#rest()
      return
    }
    const end = performance.now() + BUDGET_MS
    do {
      const taken = this.#take()
      if (!taken) return
      this.#hand(taken)
    } while (this.#running < this.#concurrency && performance.now() < end)
  }

  /** Pauses taking messages: every handler has one. */
  #rest () {
    this.#isResting = true
    this.#watch.stop()
    this.#timer = setInterval(() => this.#takeEvents(), LOOK_AFTER_MS)
  }

  #goOn () {
    this.#isResting = false
    clearInterval(this.#timer)
    this.#watch?.start()
  }

  #take () {
    const [status, taken] = this.#native.take()
    if (!status) return new TakenMessage(this.#native, taken, this.#topology, this.#stopping.signal)
    if (status !== WaitTimeoutError.status && status !== StateError.status) throw errorOf(status)
  }

  #takeEvents () {
    for (;;) {
      const [status, native] = this.#native.take_event()
      if (status) break
      const name = c.bh_event_name(native.what())
      const failure = this.#failureOf(name, native)
      this.#emit(name, demand => this.#emitter.deliver(native, failure, demand), OWN.includes(name))
    }
    this.#health.look()
  }

  /** Returns `{ error, trace }` of the last failure of an event's message, or NO_FAILURE. */
  #failureOf (name, native) {
    if (name === 'disconnected' && native.string(c.BH_FIELD_CONNECTION) === 'consume') this.#failures.clear()
    const number = native.message()
    const failure = this.#failures.get(number)
    if (!failure || PUBLISHED_AGAIN.includes(name)) return NO_FAILURE
    this.#failures.delete(number)
    return COPIED.includes(name) ? failure : NO_FAILURE
  }

  /**
   * Emits an event to observers and to the worker's own listeners. isOwn: the worker itself needs
   * it.
   */
  #emit (name, emit, isOwn = false) {
    const isListened = this.listenerCount(name) > 0
    const event = emit({ isLogged: !isListened, isWanted: isListened || isOwn })
    if (!event) return
    try {
      this.emit(name, event)
    } catch (error) {
      process.nextTick(() => { throw error }) // as for any EventEmitter; the worker goes on
    }
    if (name === 'replayed') this.#replayed(event)
    if (name === 'drained') this.#close(event.error)
  }

  /** Ends the run. error: why the worker gave up; a WaitTimeoutError if its drain was too short. */
  #close (error) {
    if (this.#isResting) this.#goOn()
    this.#watch.close()
    this.#native.close_fd()
    this.#watch = undefined
    this.#replayed({ error: new ConnectionFailedError('the worker stopped before the replay ended') })
    this.#ended = undefined
    this.#health.stop(error)
    this.#end(error)
  }

  // --- Handling ----------------------------------------------------------------------------------

  #hand (message) {
    this.#running++
    let result
    let isAsync
    if (this.#breaker?.hasKey && !this.#isPermitted(message)) return
    if (this.#isObserved) this.#begins(message)
    const call = new Call(this)
    const fail = thrown => {
      call.end()
      this.#fail(message, thrown)
    }
    const succeed = value => {
      call.end()
      this.#returned(message, value)
    }
    try {
      result = this.#handle(message, call)
      isAsync = typeof result?.then === 'function' // which may throw
    } catch (thrown) {
      fail(thrown)
      return
    }
    if (!isAsync) succeed(result)
    else Promise.resolve(result).then(succeed, fail)
  }

  #returned (message, value) {
    try {
      finished(value)
    } catch (thrown) {
      this.#fail(message, thrown)
      return
    }
    this.#settle(message, OK)
  }

  /**
   * Requests the permit of the message's key. Returns false if the message is settled without it.
   */
  #isPermitted (message) {
    try {
      message.call = this.#breaker._begin(message)
    } catch (thrown) {
      if (this.#isObserved) this.#begins(message)
      this.#fail(message, thrown)
      return false
    }
    const { delay } = message.call
    if (delay === undefined) return true
    const waits = this.#emitsRetries && this.#emitter.waiting(message)
    if (waits) this.#keep(message.taken.number(), waits)
    this.#settle(message, { outcome: 'deferred', error: '', retryAfter: delay })
    return false
  }

  #begins (message) {
    this.#emitHandled('delivered', message)
    message.began = performance.now()
  }

  /** Emits the end of a handler. If the message cannot be read, the event has no history. */
  #emitHandled (name, message, failure) {
    const { began } = message
    const redelivered = Message.read(message, 'redelivered')
    const duration = began === undefined ? undefined : performance.now() - began
    this.#emit(name, demand => this.#emitter.emit(name, () => {
      return { history: Message.read(message, 'past'), redelivered, now: Date.now(), duration, ...failure }
    }, demand))
  }

  #fail (message, thrown) {
    if (isAbort(thrown, Message.read(message, 'signal'))) {
      this.#settle(message, RELEASED)
      return
    }
    const result = this.#choice.result(thrown)
    const isDownstreams = this.#breaker?._isDownstreams(thrown)
    const name = endOf(result, message, this.#topology)
    if (name === 'dropped') {
      if (this.#isObserved) this.#emitHandled(name, message)
      this.#settle(message, result)
      return
    }
    this.#failed(name, message, thrown, result)
    this.#settle(message, result, {
      errorClass: classOf(thrown), traceparent: message[TRACE]?.traceparent, isDownstreams
    })
  }

  /** Emits `failed` or `throttled`, and keeps the error for the event of the copy. */
  #failed (name, message, error, result) {
    const errorClass = classOf(error)
    const trace = message[TRACE]
    if (this.#isObserved) this.#emitHandled(name, message, { error, errorClass, errorText: result.error })
    if (this.#emitsRetries || this.#mayPark(message, result)) this.#keep(message.taken.number(), { error, trace })
  }

  #mayPark ({ taken }, { outcome, retryAfter, policy = this.#topology.policy }) {
    return this.#native.may_park(taken, OUTCOMES[outcome], retryAfter, policy[NATIVE])
  }

  /**
   * Keeps a failure for the event of its message. If there are too many, drops the oldest: its
   * event was missed.
   */
  #keep (number, failure) {
    this.#failures.set(number, failure)
    if (this.#failures.size <= this.#mostFailures) return
    const [oldest] = this.#failures.keys()
    this.#failures.delete(oldest)
  }

  #settle (message, result, { errorClass = '', traceparent = '', isDownstreams = true } = {}) {
    const { outcome, error, retryAfter, policy = this.#topology.policy, wholeQueue = false } = result
    message.call?.end(result, { errorClass, isDownstreams })
    this.#running--
    if (this.#isObserved && result === OK) this.#emitHandled('succeeded', message)
    const status = this.#native.settle(
      message.taken, SETTLEMENTS[outcome], error, errorClass, retryAfter, policy[NATIVE], traceparent,
      Number(!isDownstreams), Number(wholeQueue))
    if (status) this.#stale(message, status)
    if (this.#isResting) this.#goOn()
  }

  #stale (message, status) {
    this.#failures.delete(message.taken.number())
    this.#emit('stale', demand => this.#emitter.emit('stale', () => {
      return { id: idOf(message), status, cause: status === StateError.status ? '' : errorOf(status).message }
    }, demand))
  }
}

/**
 * Listens to signals until the first one comes. A second one has its default effect, so it ends the
 * process. Returns a function that stops listening.
 */
function onFirst (signals, listener) {
  const release = () => {
    for (const each of signals) process.removeListener(each, once)
  }
  const once = () => {
    release()
    listener()
  }
  for (const each of signals) process.on(each, once)
  return release
}

/** Throws a StateError on Bun and Deno: a Worker waits by libuv's poll, which they lack. */
function checkRuntime () {
  const other = ['Bun', 'Deno'].find(name => name in globalThis)
  if (!other) return
  throw new StateError(
    `a Worker cannot run on ${other}, which has no libuv: run this program with Node, or consume by backhop/amqplib`
  )
}

/**
 * Returns the name of a signal that a process can listen to. Throws an ArgumentError for others.
 */
function caught (name) {
  const isOne = Object.hasOwn(os.constants.signals, name) && name !== 'SIGKILL' && name !== 'SIGSTOP'
  return isOne ? name : refuse('one of signals', name, 'the name of one that a process can listen to, as "SIGTERM"')
}

/** Returns whether handlers were still running at the end of a drain. */
function isLate (failure) {
  return failure instanceof WaitTimeoutError
}

/** Returns the path of a PEM file; '' if it is not given. */
function pathOf (path, name) {
  return path === undefined ? '' : text(path, name, 'the path of a PEM file')
}

/** Returns the time limit of a drain, in ms. */
function drainOf (limit, name) {
  return milliseconds(limit, name, { most: LONGEST_MS })
}

module.exports = { Worker }
