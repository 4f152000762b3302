'use strict'
// Worker: consumes, asks for the plan and carries it out, on connections of its own that a background thread keeps.

const { AsyncResource } = require('node:async_hooks')
const { EventEmitter } = require('node:events')
const os = require('node:os')
const { performance } = require('node:perf_hooks')

const c = require('./addon')
const { TRACE } = require('./bridge')
const { MODES } = require('./declaring')
const { Delivery } = require('./delivery')
const {
  ArgumentError, ConnectionFailedError, NoLibrabbitmqError, StateError, WaitTimeoutError, check, errorOf, made
} = require('./errors')
const { EACH_MESSAGE, Teller, endOf } = require('./event')
const { History } = require('./history')
const { Message } = require('./message')
const NATIVE = require('./native')
const { flag, handler, instance, list, numberOf, only, refuse, text, texts, whole } = require('./options')
const { checkServed } = require('./decider')
const { Choice, OK, classOf, policiesOf } = require('./outcomes')
const { OUTCOMES } = require('./plan')
const { Policy } = require('./policy')
const { TOPOLOGY, topologyOf } = require('./retrier')
const { milliseconds } = require('./time')

const URIS = 'a string as "amqp://user:password@host:5672/vhost", or an array of such'
const LONGEST_MS = 3_600_000
const LOOK_AFTER_MS = 1000 // how often events are looked for while every handler has a message
const BUDGET_MS = 5 // for handing out messages, before the event loop goes on
const NO_LIBRABBITMQ =
  'this Backhop was built without librabbitmq, which its Worker needs (backhop/amqplib and backhop/amqp do not): ' +
  'install librabbitmq 0.11 or newer, OpenSSL 3 and pkg-config (Debian and Ubuntu: librabbitmq-dev libssl-dev ' +
  'pkg-config, Fedora: librabbitmq-devel openssl-devel pkgconf, Homebrew: rabbitmq-c openssl pkgconf), then: ' +
  'npm rebuild backhop'
const OPTIONS = [
  ...TOPOLOGY, 'topology', 'mode', 'never', 'only', 'policies', 'legacyCounter', 'waitQueues', 'confirmTimeout',
  'backOff', 'concurrency', 'prefetch', 'caFile', 'connectTimeout', 'drain', 'retryEvents', 'failFast',
  'onEvent'
]
const SIGNALS = ['SIGTERM', 'SIGINT']
const MOST_PREFETCH = 65535
const OWN = ['replayed', 'drained'] // events that the worker itself has to know of
const COPIED = ['retried', 'parked'] // a message whose copy is safe
const PUBLISHED_AGAIN = ['returned', 'nacked'] // one whose copy is not
const NO_FAILURE = {}

class Worker extends EventEmitter {
  #native
  #topology
  #concurrency
  #choice
  #drain
  #handle
  #watch
  #running = 0
  #isResting = false
  #timer
  #ended
  #end
  #stopping // tells the handlers of a run that it stops
  #replaying // the promise of the replay that is under way
  #retryEvents
  #tellsRetries // whether `retried` is told in this run
  #teller
  #isListened = false // to what becomes of each message, by name
  #mostFailures
  #failures = new Map() // { error, trace } of messages that failed, by number, until it is told what became of them

  constructor (uris, options = {}) {
    super()
    const {
      never, only: others, policies: pairs = [], mode = 'create', legacyCounter, waitQueues = [], confirmTimeout,
      backOff, concurrency = 50, prefetch = Math.min(MOST_PREFETCH, Math.max(100, 2 * concurrency)), caFile,
      connectTimeout, drain = 20_000, retryEvents = false, failFast = true, onEvent
    } = only(options, OPTIONS, 'a Worker')
    whole(concurrency, 'concurrency', 1)
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
    if (caFile !== undefined) this.#check(native.set_ca_file(text(caFile, 'caFile', 'the path of a PEM file')))
    this.#check(native.set_mode(numberOf(MODES, mode, 'mode')))
    this.#check(native.set_prefetch(prefetch))
    this.#mostFailures = prefetch + c.BH_WORKER_MOST_EVENTS
    this.#setTimeout('connectTimeout', 'set_connect_timeout_ms', connectTimeout)
    this.#setTimeout('confirmTimeout', 'set_confirm_timeout_ms', confirmTimeout)
    if (backOff !== undefined) this.#check(native.set_back_off(instance(backOff, Policy, 'backOff')[NATIVE]))
    if (legacyCounter !== undefined) {
      this.#check(native.set_legacy_counter(text(legacyCounter, 'legacyCounter', 'the name of a header')))
    }
    for (const waitQueue of texts(waitQueues, 'waitQueues')) this.#check(native.add_wait_queue(waitQueue))
    this.#retryEvents = flag(retryEvents, 'retryEvents')
    this.#teller = new Teller(this.#topology.queue, onEvent, {
      copies: () => native.copies(), countFor: metrics => this.#countFor(metrics)
    })
    this.on('newListener', name => { this.#isListened ||= EACH_MESSAGE.includes(name) })
    this.#check(native.set_fail_fast(Number(flag(failFast, 'failFast'))))
  }

  #setTimeout (name, setter, value) {
    if (value === undefined) return
    if (this.#native[setter](milliseconds(value, name, { least: 1, most: LONGEST_MS }))) {
      refuse(name, value, 'another duration')
    }
  }

  #check (status) {
    if (status) throw errorOf(status, this.#native.error())
  }

  /** Has the background thread count metrics, once for all who ask; gives what adds them to others. */
  #countFor (metrics) {
    const native = this.#native
    this.#check(native.set_metrics(metrics))
    return others => check(native.read_metrics(others))
  }

  get topology () {
    return this.#topology
  }

  /** Whether somebody listens to what becomes of each message. */
  get #isHeard () {
    return this.#isListened || this.#teller.isHeard
  }

  // --- Running -------------------------------------------------------------------------------------------------------

  async run (handle, options = {}) {
    handler(handle, 'run')
    const { signal, signals = [] } = only(options, ['signal', 'signals'], 'run')
    if (signal !== undefined && typeof signal?.addEventListener !== 'function') {
      refuse('signal', signal, 'an AbortSignal')
    }
    const taken = typeof signals === 'boolean' ? (signals ? SIGNALS : []) : texts(signals, 'signals').map(caught)
    if (this.#watch) throw new StateError('the worker runs already')
    this.#tellsRetries = this.#retryEvents || this.#isHeard
    this.#check(this.#native.set_event(c.BH_EVENT_RETRIED, Number(this.#tellsRetries))) // not while it runs
    this.#failures.clear()
    this.#check(this.#native.start())
    this.#stopping = new AbortController()
    this.#handle = AsyncResource.bind(message => this.#teller.handle(message, handle), 'BackhopWorker')
    this.#ended = new Promise(resolve => { this.#end = resolve })
    this.#watch = new c.Watch(this.#native.fd(), () => this.#look())
    const abort = () => { this.stop() }
    const release = onFirst(taken, abort)
    signal?.addEventListener('abort', abort)
    if (signal?.aborted) abort()
    const failure = await this.#ended
    release()
    signal?.removeEventListener('abort', abort)
    if (failure) throw failure
  }

  async stop (options = {}) {
    const { timeout = this.#drain } = only(options, ['timeout'], 'stop')
    check(this.#native.stop(drainOf(timeout, 'timeout')))
    this.#stopping?.abort()
    await this.#ended
  }

  async [Symbol.asyncDispose ?? Symbol('asyncDispose')] () { // before Node 18.18 there is none
    await this.stop()
  }

  async replay (most = Number.MAX_SAFE_INTEGER) {
    whole(most, 'most')
    if (!this.#watch) throw new StateError('the worker does not run: replay while it does')
    if (this.#replaying) throw new StateError('a replay is under way already: await it first')
    check(this.#native.replay(most), 'the worker stops: replay while it runs', StateError)
    return new Promise((resolve, reject) => { this.#replaying = { resolve, reject } })
  }

  #replayed ({ error, count }) {
    const replaying = this.#replaying
    this.#replaying = undefined
    if (error) replaying?.reject(error)
    else replaying?.resolve(count)
  }

  // --- Taking --------------------------------------------------------------------------------------------------------

  /** There is something to take. */
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

  /** Every handler has a message. */
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
      if (status) return
      const name = c.bh_event_name(native.what())
      const failure = this.#failureOf(name, native)
      this.#told(name, to => this.#teller.hand(native, failure, to), OWN.includes(name))
    }
  }

  /** What a message failed with that comes again or is parked now. */
  #failureOf (name, native) {
    if (name === 'disconnected' && native.string(c.BH_FIELD_CONNECTION) === 'consume') this.#failures.clear()
    const number = native.message()
    const failure = this.#failures.get(number)
    if (!failure || PUBLISHED_AGAIN.includes(name)) return NO_FAILURE
    this.#failures.delete(number)
    return COPIED.includes(name) ? failure : NO_FAILURE
  }

  /** Has an event told, to its listeners too. `isOwn`: the worker itself has to know of it. */
  #told (name, tell, isOwn = false) {
    const isListened = this.listenerCount(name) > 0
    const event = tell({ isLogged: !isListened, isWanted: isListened || isOwn })
    if (!event) return
    try {
      this.emit(name, event)
    } catch (error) {
      process.nextTick(() => { throw error }) // as any listener's; the worker goes on
    }
    if (name === 'replayed') this.#replayed(event)
    if (name === 'drained') this.#close(event.error)
  }

  /** `error`: why it gave up, or that messages were not settled in time, which is no failure. */
  #close (error) {
    if (this.#isResting) this.#goOn()
    this.#watch.close()
    this.#watch = undefined
    this.#replayed({ error: new ConnectionFailedError('the worker stopped before the replay ended') })
    this.#end(error instanceof WaitTimeoutError ? undefined : error)
  }

  // --- Handling ------------------------------------------------------------------------------------------------------

  #hand (message) {
    this.#running++
    let result
    let isAsync
    if (this.#isHeard) this.#begins(message)
    try {
      result = this.#handle(message)
      isAsync = typeof result?.then === 'function' // which may throw
    } catch (thrown) {
      this.#fail(message, thrown)
      return
    }
    if (!isAsync) this.#settle(message, OK)
    else Promise.resolve(result).then(() => this.#settle(message, OK), thrown => this.#fail(message, thrown))
  }

  #begins (message) {
    this.#tell('delivered', message)
    message.began = performance.now()
  }

  /** What became of a message, as far as the handler says. One that cannot be read is told without its past. */
  #tell (name, message, failure) {
    const { began, redelivered } = message
    const duration = began === undefined ? undefined : performance.now() - began
    this.#told(name, to => this.#teller.tell(name, () => {
      return { history: message.past, redelivered, now: Date.now(), duration, ...failure }
    }, to))
  }

  #fail (message, thrown) {
    const result = this.#choice.result(thrown)
    const name = endOf(result.outcome)
    if (name === 'failed') this.#failed(message, thrown, result)
    else if (this.#isHeard) this.#tell(name, message)
    this.#settle(message, result)
  }

  /** What becomes of it is told with its error; where it is settled already, nothing is. */
  #failed (message, error, result) {
    const errorClass = classOf(error)
    this.#native.set_error_class(message.taken, errorClass)
    const trace = message[TRACE]
    if (this.#isHeard) this.#tell('failed', message, { error, errorClass, errorText: result.error })
    if (trace?.traceparent) this.#native.set_traceparent(message.taken, trace.traceparent)
    if (this.#tellsRetries || this.#mayPark(message, result)) this.#keep(message.taken.number(), { error, trace })
  }

  #mayPark ({ taken }, { outcome, retryAfter, policy = this.#topology.policy }) {
    return this.#native.may_park(taken, policy[NATIVE], OUTCOMES[outcome], retryAfter)
  }

  /** Keeps a failure for the event of its message; of too many the oldest go, whose events nobody took. */
  #keep (number, failure) {
    this.#failures.set(number, failure)
    if (this.#failures.size <= this.#mostFailures) return
    const [oldest] = this.#failures.keys()
    this.#failures.delete(oldest)
  }

  #settle (message, result) {
    const { outcome, error, retryAfter, policy = this.#topology.policy } = result
    this.#running--
    if (this.#isHeard && result === OK) this.#tell('succeeded', message)
    const status = this.#native.settle_by(message.taken, policy[NATIVE], OUTCOMES[outcome], error, retryAfter)
    if (status) this.#stale(message, status)
    if (this.#isResting) this.#goOn()
  }

  #stale (message, status) {
    this.#failures.delete(message.taken.number())
    this.#told('stale', to => this.#teller.tell('stale', () => {
      return { id: String(message.id), status, cause: status === StateError.status ? '' : errorOf(status).message }
    }, to))
  }
}

/** A message that a worker took: what is not asked for is not read. */
class TakenMessage extends Message {
  #worker
  #body
  #history

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
    return (this.#history ??= new TakenHistory(this.#worker, this.taken))
  }

  /** The core's; undefined where it cannot be read. */
  get past () {
    try {
      return this.history[NATIVE]
    } catch {
      return undefined
    }
  }
}

/** As its worker counts. */
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

/**
 * Listens to signals until the first one comes: a second one ends the process, as whoever is impatient means it to.
 * Other listeners hear them as well. Returns what ends it.
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

/** The name of a signal that a process can listen to. */
function caught (name) {
  const isOne = Object.hasOwn(os.constants.signals, name) && name !== 'SIGKILL' && name !== 'SIGSTOP'
  return isOne ? name : refuse('one of signals', name, 'the name of one that a process can listen to, as "SIGTERM"')
}

/** How long a drain may take. */
function drainOf (limit, name) {
  return milliseconds(limit, name, { most: LONGEST_MS })
}

module.exports = { Worker }
