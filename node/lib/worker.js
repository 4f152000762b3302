'use strict'
// Worker: consumes, asks for the plan and carries it out, on connections of its own that a background thread keeps.

const { EventEmitter } = require('node:events')
const { performance } = require('node:perf_hooks')
const { inspect } = require('node:util')

const c = require('./addon')
const { Delivery } = require('./delivery')
const { ArgumentError, NoLibrabbitmqError, StateError, WaitTimeoutError, check, errorOf, made } = require('./errors')
const { Event } = require('./event')
const { History } = require('./history')
const log = require('./log')
const { Message } = require('./message')
const NATIVE = require('./native')
const { numberOf, only } = require('./options')
const { OK, resultOf } = require('./outcomes')
const { OUTCOMES } = require('./plan')
const { milliseconds } = require('./time')
const { Topology } = require('./topology')

const MODES = { create: c.BH_MODE_CREATE, verify: c.BH_MODE_VERIFY, none: c.BH_MODE_NONE }
const LONGEST_DRAIN_MS = 3_600_000
const LOOK_AFTER_MS = 1000 // how often events are looked for while every handler has a message
const BUDGET_MS = 5 // for handing out messages, before the event loop goes on
const NO_LIBRABBITMQ =
  'this Backhop was built without librabbitmq, which its Worker needs (backhop/amqplib and backhop/amqp do not): ' +
  'install librabbitmq 0.11 or newer, OpenSSL 3 and pkg-config (Debian and Ubuntu: librabbitmq-dev libssl-dev ' +
  'pkg-config, Fedora: librabbitmq-devel openssl-devel pkgconf, Homebrew: rabbitmq-c openssl pkgconf), then: ' +
  'npm rebuild backhop'
const OPTIONS = [
  'queue', 'policy', 'topology', 'concurrency', 'prefetch', 'never', 'mode', 'caFile', 'connectTimeout',
  'confirmTimeout', 'backOff', 'drain', 'retryEvents', 'legacyCounter', 'waitQueues'
]

class Worker extends EventEmitter {
  #native
  #topology
  #concurrency
  #never
  #drain
  #handle
  #watch
  #running = 0
  #isResting = false
  #timer
  #ended
  #end

  constructor (uris, options = {}) {
    super()
    const {
      queue, policy, topology, concurrency = 50, prefetch = Math.max(100, 2 * concurrency), never = [],
      mode = 'create', caFile, connectTimeout, confirmTimeout, backOff, drain = 20_000, retryEvents = false,
      legacyCounter, waitQueues = []
    } = only(options, OPTIONS, 'a Worker')
    if ((queue === undefined) === (topology === undefined)) {
      throw new TypeError('give a queue and its policy, or a topology')
    }
    if (topology && policy) throw new TypeError('a topology has its policy: give no other')
    if (!Number.isInteger(concurrency) || concurrency < 1) {
      throw new ArgumentError(`concurrency is ${inspect(concurrency)}: give a whole number, 1 or more`)
    }
    this.#topology = topology ?? new Topology({ queue, policy })
    this.#concurrency = concurrency
    this.#never = [...never]
    this.#drain = drainOf(drain)
    const native = this.#native = made(
      c.bh_worker_new(this.#topology.policy[NATIVE], this.#topology[NATIVE]), NO_LIBRABBITMQ, NoLibrabbitmqError
    )
    for (const uri of [uris].flat()) this.#check(native.add_uri(uri))
    if (caFile !== undefined) this.#check(native.set_ca_file(String(caFile)))
    this.#check(native.set_mode(numberOf(MODES, mode, 'mode')))
    this.#check(native.set_prefetch(prefetch))
    if (connectTimeout !== undefined) this.#check(native.set_connect_timeout_ms(milliseconds(connectTimeout)))
    if (confirmTimeout !== undefined) this.#check(native.set_confirm_timeout_ms(milliseconds(confirmTimeout)))
    if (backOff) this.#check(native.set_back_off(backOff[NATIVE]))
    if (legacyCounter) this.#check(native.set_legacy_counter(legacyCounter))
    for (const waitQueue of waitQueues) this.#check(native.add_wait_queue(waitQueue))
    this.#check(native.set_retry_events(Number(retryEvents)))
  }

  #check (status) {
    if (status) throw errorOf(status, this.#native.error())
  }

  get topology () {
    return this.#topology
  }

  // --- Running -------------------------------------------------------------------------------------------------------

  async run (handle, options = {}) {
    if (typeof handle !== 'function') throw new TypeError(`run takes a function, and was given ${inspect(handle)}`)
    const { signal } = only(options, ['signal'], 'run')
    if (signal !== undefined && typeof signal?.addEventListener !== 'function') {
      throw new TypeError(`signal is ${inspect(signal)}: give an AbortSignal`)
    }
    this.#check(this.#native.start())
    this.#handle = handle
    this.#ended = new Promise(resolve => { this.#end = resolve })
    this.#watch = new c.Watch(this.#native.fd(), () => this.#look())
    const abort = () => { this.stop() }
    signal?.addEventListener('abort', abort)
    if (signal?.aborted) abort()
    try {
      await this.#ended
    } finally {
      signal?.removeEventListener('abort', abort)
    }
  }

  async stop (options = {}) {
    const { timeout = this.#drain } = only(options, ['timeout'], 'stop')
    check(this.#native.stop(drainOf(timeout)))
    await this.#ended
  }

  replay (most) {
    if (!Number.isSafeInteger(most)) throw new TypeError(`replay takes how many messages at most, not ${inspect(most)}`)
    check(this.#native.replay(most), 'the worker does not run, or a replay is under way already', StateError)
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
    if (!status) return new TakenMessage(this.#native, taken)
    if (status !== WaitTimeoutError.status && status !== StateError.status) throw errorOf(status)
  }

  #takeEvents () {
    for (;;) {
      const [status, native] = this.#native.take_event()
      if (status) return
      this.#tell(new Event(native))
    }
  }

  #tell (event) {
    log.debug('%s', event)
    if (event.isWarning && !this.listenerCount(event.name)) log.warn(`${this.#topology.queue}: ${event}`, event.name)
    try {
      this.emit(event.name, event)
    } catch (error) {
      process.nextTick(() => { throw error }) // as any listener's; the worker goes on
    }
    if (event.name === 'drained') this.#close()
  }

  #close () {
    if (this.#isResting) this.#goOn()
    this.#watch.close()
    this.#watch = undefined
    this.#end()
  }

  // --- Handling ------------------------------------------------------------------------------------------------------

  #hand (message) {
    this.#running++
    let result
    let isAsync
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

  #fail (message, thrown) {
    const result = resultOf(thrown, this.#never)
    if (log.debug.enabled) log.debug('%s %s: %O', message, result.outcome, thrown)
    this.#settle(message, result)
  }

  #settle (message, { outcome, error, retryAfter }) {
    this.#running--
    const status = this.#native.settle(message.taken, OUTCOMES[outcome], error, retryAfter)
    if (status) log.warn(`${message} comes again: ${errorOf(status).message}`, 'stale')
    if (this.#isResting) this.#goOn()
  }
}

/** A message that a worker took: what is not asked for is not read. */
class TakenMessage extends Message {
  #worker
  #content
  #history

  constructor (worker, taken) {
    super()
    this.#worker = worker
    this.taken = taken
  }

  get content () {
    return (this.#content ??= this.taken.body())
  }

  get redelivered () {
    return Boolean(this.taken.redelivered())
  }

  get history () {
    return (this.#history ??= this.#read())
  }

  #read () {
    const delivery = new Delivery({}, native => check(this.#worker.read(this.taken, native, null)))
    return new History(delivery, {}, native => check(this.#worker.read(this.taken, delivery[NATIVE], native)))
  }
}

/** How long a drain may take. */
function drainOf (duration) {
  const limit = milliseconds(duration)
  if (limit < 0 || limit > LONGEST_DRAIN_MS) {
    throw new ArgumentError(`a drain's timeout is ${inspect(duration)}: give an hour at most, and not less than 0`)
  }
  return limit
}

module.exports = { Worker }
