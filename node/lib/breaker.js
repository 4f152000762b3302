'use strict'
// Breaker: spares a downstream that is down. The core decides; breaker.d.ts is the manual.

const c = require('./core')
const { ArgumentError, StateError, StrategyError, check, made } = require('./errors')
const { NATIVE } = require('./native')
const { callable, flag, instance, numbers, only, refuse, shown, whole } = require('./checks')
const { Faults } = require('./outcomes')
const { SETTLEMENTS, randomBytes } = require('./plan')
const { Policy } = require('./policy')
const { duration, milliseconds } = require('./times')

const NS = 1e6 // in a millisecond
const RANDOM_BYTES = 8
const NEVER = -1
const STATES = Object.keys(numbers('BH_BREAKER_')) // by the core's numbers
const BLIND_MS = 60_000 // how long a refused call waits if the breaker is open without an end
const NAME = 'a name of 1 to 64 bytes, as the downstream\'s'

const asDuration = (value, name) => milliseconds(value, name, { least: -Infinity })
const asWhole = (value, name) => whole(value, name, -Infinity)
// In the core's order. Each option has the core's name and a conversion to its number.
const SETTINGS = {
  window: ['window_ms', asDuration],
  leastCalls: ['least_calls', asWhole],
  failurePercent: ['failure_percent', asWhole],
  rowFailures: ['row_failures', asWhole],
  slow: ['slow_ms', asDuration],
  slowPercent: ['slow_percent', asWhole],
  probeSuccesses: ['probe_successes', asWhole],
  probeTimeout: ['probe_timeout_ms', asDuration],
  rampCalls: ['ramp_calls', asWhole],
  throttledOpens: ['throttled_opens', (value, name) => Number(flag(value, name))]
}
const OPTIONS = ['errors', 'key', ...Object.keys(SETTINGS), 'pauses']
const RANGE = /^(\w+) is out of range: give a whole number from (\d+) to (\d+)$/

/** Returns milliseconds of CLOCK_MONOTONIC, which the core's workers use too. */
function now () {
  const [seconds, ns] = process.hrtime()
  return seconds * 1000 + Math.floor(ns / NS)
}

/** A permit to make a call, and the time when it was granted. */
class Call {
  #record
  #read
  #began
  /** How long the message has to wait, in ms, if the permit is not granted; else undefined. */
  delay

  /** record, read: call the core's functions, with the key if there is one */
  constructor ([generation, number, until], began, record, read) {
    this.#began = began
    this.#read = read
    this.#record = (...rest) => record(generation, number, ...rest)
    if (!generation) this.delay = until === NEVER ? BLIND_MS : Math.max(0, until - began)
  }

  /** Records the end of the call. time: in ms of the breaker's clock. */
  end ({ outcome, retryAfter = 0, wholeQueue = false }, { errorClass = '', isDownstreams = true } = {}, time = now()) {
    if (this.delay !== undefined) return
    const kind = c.bh_call_kind_of(SETTLEMENTS[outcome], Number(isDownstreams))
    this.#record(kind, Math.max(0, time - this.#began), retryAfter, Number(wholeQueue), errorClass, time)
  }

  /** The state of the breaker, for rehearsals. */
  get state () {
    return STATES[this.#read(this.#began)[0]]
  }
}

class Breaker {
  #name
  #key
  #faults

  constructor (name, options = {}) {
    if (typeof name !== 'string' || !name) refuse('the name of a Breaker', name, NAME)
    const { errors, key, pauses } = only(options, OPTIONS, 'a Breaker')
    this.#name = name
    this.#faults = new Faults(errors)
    this.#key = key === undefined ? undefined : callable(key, 'key', ' that gives the key of a message')
    const policy = pauses === undefined ? null : instance(pauses, Policy, 'pauses')[NATIVE]
    const settings = settingsOf(name, options)
    this[NATIVE] = made(c.bh_breaker_new(name, ...settings, Number(this.hasKey), policy, randomBytes(RANDOM_BYTES)))
  }

  get name () {
    return this.#name
  }

  get hasKey () {
    return this.#key !== undefined
  }

  get state () {
    return STATES[this.#view('state')[0]]
  }

  get reason () {
    return String(this.#view('reason').at(-1))
  }

  stateOf (key) {
    return STATES[this.#viewOf(key, 'stateOf')[0]]
  }

  reasonOf (key) {
    return String(this.#viewOf(key, 'reasonOf').at(-1))
  }

  open (options = {}) {
    const { duration, key } = only(options, ['duration', 'key'], 'open')
    const time = now()
    const until = duration === undefined ? NEVER : time + milliseconds(duration, 'duration')
    check(this[NATIVE].open(this.#given(key, 'open'), until, time))
  }

  close (options = {}) {
    const { key } = only(options, ['key'], 'close')
    this[NATIVE].close(this.#given(key, 'close'), now())
  }

  disable () {
    if (this.hasKey) throw new StateError(`the breaker "${this.#name}" has a key, and cannot be disabled as a whole`)
    check(this[NATIVE].disable('', now()))
  }

  #view (what) {
    if (!this.hasKey) return this[NATIVE].read('', now())
    throw new StateError(`the breaker "${this.#name}" has a ${what} for each key: call ${what}Of(key)`)
  }

  #viewOf (key, what) {
    return this[NATIVE].read(this.#given(key, what), now())
  }

  /** Returns the key as the core takes it: '' for a breaker without a key. */
  #given (key, what) {
    if (!this.hasKey && key === undefined) return ''
    if (!this.hasKey) throw new StateError(`the breaker "${this.#name}" has no key: call ${what} without one`)
    if (key === undefined) throw new StateError(`the breaker "${this.#name}" has a key: call ${what} with one`)
    return keyOf(key, `the key of ${what}`)
  }

  // --- For consumers -----------------------------------------------------------------------------

  /** Throws a StrategyError if messages of this topology cannot wait for a key. */
  _checkServed (topology) {
    if (!this.hasKey || topology._defers) return
    throw new StrategyError(
      `the breaker "${this.#name}" has a key, and with the strategy ${topology.strategy} no message can wait without ` +
      'an attempt: use the strategy ladder, or a Breaker without a key'
    )
  }

  /**
   * Requests the permit to handle a message. Throws the error of the key's function.
   *
   * time: in ms of the breaker's clock
   */
  _begin (message, time = now()) {
    const native = this[NATIVE]
    const key = this.hasKey
      ? keyOf(this.#key(message), `what the function key of the breaker "${this.#name}" returned`)
      : ''
    return this.#call(native.permit(key, time), time, key)
  }

  /** Returns the call of a permit that the core granted to a flow. */
  _granted (permit, time) {
    return this.#call(permit, time, '')
  }

  #call (permit, time, key) {
    const native = this[NATIVE]
    return new Call(permit, time, (...call) => native.record(key, ...call), time => native.read(key, time))
  }

  /** Returns whether a failure is the downstream's, not the message's own. */
  _isDownstreams (thrown) {
    return this.#faults.isDownstreams(thrown)
  }
}

/** Returns a key as the core takes it. */
function keyOf (key, what) {
  if (typeof key === 'string' || key instanceof Uint8Array) return key
  return typeof key === 'number' || typeof key === 'bigint' ? String(key) : refuse(what, key, 'a string')
}

/** Returns the numbers of the core's settings, in its order. Throws an ArgumentError. */
function settingsOf (name, options) {
  const defaults = c.bh_breaker_defaults()
  const settings = Object.entries(SETTINGS).map(([option, [, convert]], i) => {
    return options[option] === undefined ? defaults[i] : convert(options[option], option)
  })
  const error = String(c.bh_breaker_settings_error(name, ...settings))
  if (error) refuseSetting(name, options, error)
  return settings
}

/** Throws the core's error with the names and units of this package. */
function refuseSetting (name, options, error) {
  const [, field, least, most] = RANGE.exec(error) ?? []
  const option = Object.keys(SETTINGS).find(each => SETTINGS[each][0] === field)
  if (!option) refuse('the name of a Breaker', name, NAME)
  const range = SETTINGS[option][1] === asDuration
    ? `a duration from ${least} ms to ${duration(Number(most))}`
    : `a whole number from ${least} to ${most}`
  throw new ArgumentError(`${option} is ${shown(options[option])}: give ${range}`)
}

module.exports = { Breaker, now }
