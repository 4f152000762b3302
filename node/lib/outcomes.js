'use strict'
// Outcomes: the values that a handler throws, as an outcome and as text.

const { inspect, types } = require('node:util')

const c = require('./core')
const { ArgumentError, BackhopError } = require('./errors')
const { warn } = require('./log')
const { flag, instance, list, refuse, shown } = require('./checks')
const { Policy } = require('./policy')
const { isDuration, milliseconds } = require('./times')

const MEANS = Symbol.for('backhop.outcome') // another copy of this package, or another realm, has other classes
const DECIDES = Symbol.for('backhop.decides')
const LONGEST_TEXT = 2000 // characters; the core cuts it to 1 KiB
const MOST_CAUSES = 8
const MOST_MEMBERS = 5
const LONGEST_MEMBER = LONGEST_TEXT / MOST_MEMBERS
const DELAY = 'milliseconds, a string as "30s", a Date, or what the header Retry-After holds: seconds, or a date'

/** Base class of RetryAfter, Throttled, Park and Drop. reason: a text, or an error. */
class Outcome extends Error {
  constructor (reason = '', options = undefined) {
    if (isError(reason)) super(shownBy(headOf, reason), { cause: reason })
    else super(shownBy(String, reason), options)
  }

  get name () {
    return this.constructor.name
  }
}

class RetryAfter extends Outcome {
  constructor (delay, reason, options) {
    super(reason, options)
    try {
      this.delay = delayOf(delay)
    } catch (error) { // the handler gave a wrong delay: keep its reason
      error.cause = this.cause ?? (this.message ? new Error(this.message) : undefined)
      throw error
    }
  }

  get [MEANS] () {
    return 'failed'
  }

  /** The error that decides: the cause, if no delay was given. */
  get [DECIDES] () {
    const cause = read(this, 'cause')
    return read(this, 'delay') === undefined && isError(cause) ? cause : this
  }
}

class Throttled extends RetryAfter {
  constructor (delay, reason, options) {
    const { wholeQueue = false, ...others } = options ?? {}
    super(delay, reason, others)
    this.wholeQueue = flag(wholeQueue, 'wholeQueue')
  }

  get [MEANS] () {
    return 'throttled'
  }

  get [DECIDES] () {
    return this
  }
}

class Park extends Outcome {
  get [MEANS] () {
    return 'permanent'
  }
}

class Drop extends Outcome {
  get [MEANS] () {
    return 'dropped'
  }
}

/** The error of a handler at its time limit. It is retried, whatever `never` and `only` say. */
class Overrun extends Error {
  get name () {
    return 'TimeoutError'
  }

  get [MEANS] () {
    return 'failed'
  }
}

/**
 * Returns a delay in milliseconds. Also accepts the values of HTTP's header Retry-After, which the
 * core reads: digits are seconds.
 *
 * Returns undefined if there is no delay: the header is missing, malformed, 0 or a date that is
 * over. The header is untrusted, so it must not change what becomes of the message.
 */
function delayOf (delay) {
  if (delay === null || delay === undefined || Number.isNaN(delay)) return undefined
  const now = Date.now()
  if (delay instanceof Date) return Number.isNaN(delay.getTime()) ? undefined : Math.max(0, delay - now)
  if (typeof delay === 'string' && !isDuration(delay)) return Number(c.bh_retry_after_ms(delay, now)) || undefined
  return milliseconds(delay, 'the delay of RetryAfter', { give: DELAY })
}

// --- What it means -------------------------------------------------------------------------------

const RELEASED = Object.freeze({ outcome: 'released', error: '', retryAfter: 0 })
const ABORTS = ['AbortError', 'CanceledError'] // the latter is axios's
const NO_ERROR = 'the handler rejected without an error'
const UNPRINTABLE = 'the thrown value cannot be printed'
const OK = Object.freeze({ outcome: 'ok', error: '', retryAfter: 0 })
const CHOOSES = 'a class of errors, a function that is given the error, or an array of these'
const PAIRS = 'an array of [class of errors, or function that is given the error; Policy], or a Map'
const NATIVE = new Set([
  'Error', 'AggregateError', 'EvalError', 'RangeError', 'ReferenceError', 'SyntaxError', 'TypeError', 'URIError'
])

/**
 * Maps the values that a handler throws to results.
 *
 * never: errors that park a message at once
 * only: errors that are retried; all others park
 * policies: pairs of errors and their Policy, as policiesOf returns them; the first match is used
 */
class Choice {
  #never
  #only
  #policies

  constructor ({ never = [], only, policies = [] } = {}) {
    this.#never = choosing(never, 'never')
    this.#only = only === undefined ? undefined : choosing(only, 'only')
    this.#policies = policies.map(([key, policy]) => ({ is: choosing([key], 'policies')[0], policy }))
  }

  /** Returns `{ outcome, error, retryAfter, wholeQueue, policy }` of a thrown value. */
  result (thrown) {
    const error = textOf(thrown)
    try {
      const decides = thrown?.[DECIDES] ?? thrown
      const means = decides?.[MEANS]
      if (means === 'permanent' || means === 'dropped') return { outcome: means, error, retryAfter: 0 }
      const { outcome, retryAfter, wholeQueue } = means === 'failed' || means === 'throttled'
        ? waitOf(decides)
        : this.#chosen(decides)
      return this.#withPolicy({ outcome, error, retryAfter, ...wholeQueue && { wholeQueue } }, decides)
    } catch { // a proxy that throws is no reason to lose a message
      return { outcome: 'failed', error, retryAfter: 0 }
    }
  }

  /** Adds the policy of the error. Without one, the retrier's is used. */
  #withPolicy (result, thrown) {
    const policy = this.#policies.length ? this.#policies.find(({ is }) => is(thrown))?.policy : undefined
    return policy ? { ...result, policy } : result
  }

  #chosen (thrown) {
    for (const answer of this.#never) {
      const is = answer(thrown)
      if (is === true) return { outcome: 'permanent', retryAfter: 0 }
      if (is) return waitOf(is)
    }
    if (!this.#only) return { outcome: 'failed', retryAfter: 0 }
    for (const answer of this.#only) {
      const is = answer(thrown)
      if (is) return waitOf(is)
    }
    return { outcome: 'permanent', retryAfter: 0 }
  }
}

/**
 * Separates failures of the downstream from failures of single messages, for a Breaker.
 *
 * errors: the downstream's; undefined: all
 */
class Faults {
  #downstreams

  constructor (errors) {
    this.#downstreams = errors === undefined ? undefined : choosing(errors, 'errors')
  }

  /** The time limit of handlers, and RetryAfter without an error, are always the downstream's. */
  isDownstreams (thrown) {
    if (!this.#downstreams) return true
    try {
      const error = thrown?.[MEANS] && isError(thrown.cause) ? thrown.cause : thrown
      return error?.[MEANS] !== undefined || this.#downstreams.some(answer => Boolean(answer(error)))
    } catch { // a proxy that throws
      return true
    }
  }
}

/**
 * Returns the outcome for a value that lets a message wait: true, a delay, RetryAfter or Throttled.
 */
function waitOf (answer) {
  const outcome = answer?.[MEANS]
  if (outcome) return { outcome, retryAfter: delayIn(answer), wholeQueue: read(answer, 'wholeQueue') === true }
  return { outcome: 'failed', retryAfter: answer === true ? 0 : answer }
}

/**
 * Returns the delay of an outcome in ms. The field is the application's: if its class replaced or
 * removed it, or if it is no delay, returns 0.
 */
function delayIn (outcome) {
  const delay = read(outcome, 'delay')
  return Number.isFinite(delay) ? Math.min(Math.max(0, Math.ceil(delay)), Number.MAX_SAFE_INTEGER) : 0
}

/** Returns a member of a thrown value; undefined if it cannot be read. */
function read (thrown, name) {
  try {
    return thrown[name]
  } catch {
    return undefined
  }
}

/**
 * Returns whether a handler threw because its stop aborted `signal`: the signal's reason, or an
 * error that says so.
 */
function isAbort (thrown, signal) {
  if (!signal.aborted || signal.reason instanceof Overrun) return false
  try {
    const decides = thrown?.[DECIDES] ?? thrown
    return decides === signal.reason || (isError(decides) && ABORTS.includes(decides.name))
  } catch {
    return false
  }
}

/** Returns pairs of errors and their Policy. Throws an ArgumentError for anything else. */
function policiesOf (given) {
  return list(given, 'policies', PAIRS).map(pair => {
    if (!Array.isArray(pair) || pair.length !== 2) refuse('one of policies', pair, PAIRS)
    return [pair[0], instance(pair[1], Policy, 'the second of a pair of policies')]
  })
}

/** Returns functions that return true, false, a delay in milliseconds, or a Throttled. */
function choosing (given, name) {
  const all = typeof given === 'function' ? [given] : list(given, name, CHOOSES)
  return all.map(each => {
    if (typeof each !== 'function') throw new ArgumentError(`${name} holds ${shown(each)}: give ${CHOOSES}`)
    if (types.isAsyncFunction(each)) {
      throw new ArgumentError(`${name} holds ${shown(each)}, which is async: give one that answers at once`)
    }
    return isClass(each) ? thrown => isOf(thrown, each) : thrown => answerOf(each, thrown, name)
  })
}

/** Returns whether a function is a class of errors. If not, it is a predicate. */
function isClass (made) {
  if (/^class\b/.test(Function.prototype.toString.call(made))) return true
  for (let of = made.prototype; of; of = Object.getPrototypeOf(of)) {
    if (Object.hasOwn(of, 'constructor') && NATIVE.has(of.constructor?.name)) return true
  }
  return false
}

/**
 * Like instanceof. JavaScript's own errors also match across realms: under Jest, Node's errors are
 * of another realm.
 */
function isOf (thrown, Class) {
  if (thrown instanceof Class) return true
  if (!NATIVE.has(Class.name) || !isNative(Class) || !types.isNativeError(thrown)) return false
  for (let of = Object.getPrototypeOf(thrown); of; of = Object.getPrototypeOf(of)) {
    if (Object.hasOwn(of, 'constructor') && of.constructor.name === Class.name && isNative(of.constructor)) return true
  }
  return false
}

function isNative (Class) {
  return Function.prototype.toString.call(Class).includes('[native code]')
}

/**
 * Calls a predicate. If it throws or returns another value, warns, and the error is retried; for
 * `errors`, it is the downstream's.
 */
function answerOf (predicate, thrown, name) {
  const undecided = name !== 'never'
  try {
    const answer = predicate(thrown)
    if (answer === undefined || answer === null || typeof answer === 'boolean') return Boolean(answer)
    if (answer[MEANS] === 'throttled') return answer
    const give = 'true, false, a delay, or a Throttled'
    return milliseconds(answer, `what a function of ${name} answers`, { least: 1, give })
  } catch (error) {
    warn(`a function of ${name} failed to decide on a retry: ${textOf(error)}: it is tried again, as the ` +
      `policy says; it was called with ${textOf(thrown)}`, 'BACKHOP_CHOICE')
    return undecided
  }
}

// --- What it says --------------------------------------------------------------------------------

function isError (thrown) {
  try {
    return types.isNativeError(thrown) || thrown instanceof Error
  } catch { // a proxy
    return false
  }
}

/**
 * Returns a thrown value as text: class, message, code, members and causes, without repetitions.
 */
function textOf (thrown) {
  try {
    return saidBy(thrown, MOST_CAUSES, []).slice(0, LONGEST_TEXT)
  } catch {
    return UNPRINTABLE
  }
}

/** within: the errors that this one is a cause or a member of. A cycle ends there. */
function saidBy (thrown, depth, within) {
  if (!thrown) return NO_ERROR
  if (!isError(thrown)) return typeof thrown === 'string' ? thrown : inspect(thrown, { depth: 1 })
  const path = [...within, thrown]
  const { cause } = thrown
  const hasCause = cause !== undefined && cause !== null && depth > 0 && !path.includes(cause)
  if (thrown[MEANS]) {
    const own = String(thrown.message)
    if (!hasCause) return own
    const why = saidBy(cause, depth - 1, path)
    return own && !why.startsWith(own) ? `${own}; caused by ${why}` : why
  }
  const said = headOf(thrown) + membersOf(thrown, depth, path)
  return hasCause ? `${said}; caused by ${saidBy(cause, depth - 1, path)}` : said
}

/**
 * Returns the class of a thrown value. For an outcome that was made of an error, returns the class
 * of this error.
 */
function classOf (thrown) {
  try {
    const { cause } = Object(thrown)
    if (thrown?.[MEANS] && isError(cause)) return classOf(cause)
    if (!isError(thrown)) return thrown === null ? 'null' : typeof thrown
    return String(thrown.name === 'Error' ? thrown.constructor?.name ?? 'Error' : thrown.name)
  } catch {
    return 'unknown'
  }
}

/** Returns whether a handler threw Drop, which is no failure. */
function isDrop (thrown) {
  try {
    return thrown?.[MEANS] === 'dropped'
  } catch {
    return false
  }
}

/** Returns the text that `show` gives a value. If it throws, the outcome is made all the same. */
function shownBy (show, value) {
  try {
    return show(value)
  } catch {
    return UNPRINTABLE
  }
}

/** Returns class, message and code of an error. */
function headOf (error) {
  const name = String(error.name === 'Error' ? error.constructor?.name ?? 'Error' : error.name)
  const message = String(error.message ?? '').slice(0, LONGEST_TEXT)
  const code = isCode(error) ? String(error.code) : ''
  if (!message) return code ? `${name}: ${code}` : name
  return code && !message.includes(code) ? `${name}: ${message} [${code}]` : `${name}: ${message}`
}

/** Returns whether the code says more than the name of the error. */
function isCode (error) {
  const { code, constructor } = error
  if (error instanceof BackhopError || constructor?.name === 'DOMException') return false
  return typeof code === 'string' || typeof code === 'number'
}

function membersOf ({ errors }, depth, path) {
  if (!Array.isArray(errors) || !errors.length || depth <= 0) return ''
  const others = errors.filter(each => !path.includes(each))
  const texts = others.slice(0, MOST_MEMBERS).map(each => {
    return saidBy(each, Math.min(depth - 1, 2), path).slice(0, LONGEST_MEMBER)
  })
  const more = others.length > MOST_MEMBERS ? ` | and ${others.length - MOST_MEMBERS} more` : ''
  return ` (${texts.join(' | ')}${more})`
}

module.exports = {
  Choice,
  Drop,
  Faults,
  OK,
  Overrun,
  Park,
  RELEASED,
  RetryAfter,
  Throttled,
  classOf,
  isAbort,
  isDrop,
  policiesOf,
  textOf
}
