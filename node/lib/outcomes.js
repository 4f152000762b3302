'use strict'
// What a handler throws: what it means, and what it says of itself.

const { inspect, types } = require('node:util')

const { ArgumentError, BackhopError } = require('./errors')
const { warn } = require('./log')
const { instance, list, refuse, shown } = require('./options')
const { Policy } = require('./policy')
const { milliseconds } = require('./time')

const MEANS = Symbol.for('backhop.outcome') // another copy of this package, or another realm, has other classes
const LONGEST_TEXT = 2000 // characters; the core cuts it to 1 KiB
const MOST_CAUSES = 8
const MOST_MEMBERS = 5
const LONGEST_MEMBER = LONGEST_TEXT / MOST_MEMBERS
const DIGITS = /^\s*\d+\s*$/
const HTTP_DATE = /^\s*[A-Z][a-z]{2,8}[, ].*\d/
const DELAY = 'milliseconds, a string as "30s", a Date, or what the header Retry-After holds: seconds, or a date'

/** What RetryAfter, Park and Drop are; `reason` is a text, or the error that was met. */
class Outcome extends Error {
  constructor (reason = '', options = undefined) {
    if (isError(reason)) super(headOf(reason), { cause: reason })
    else super(String(reason), options)
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
    } catch (error) { // the handler's mistake, thrown where it is made; what it meant to tell stays
      error.cause = this.cause ?? (this.message ? new Error(this.message) : undefined)
      throw error
    }
  }

  get [MEANS] () {
    return 'failed'
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

/** A delay in milliseconds, also as HTTP's header Retry-After gives it: digits are seconds there. */
function delayOf (delay) {
  if (typeof delay === 'string' && DIGITS.test(delay)) return 1000 * Number(delay)
  if (delay instanceof Date) return Number.isNaN(delay.getTime()) ? refuseDelay(delay) : until(delay.getTime())
  if (typeof delay === 'string' && HTTP_DATE.test(delay)) {
    const time = Date.parse(delay)
    return Number.isNaN(time) ? refuseDelay(delay) : until(time)
  }
  return milliseconds(delay, 'the delay of RetryAfter', { give: DELAY })
}

function refuseDelay (delay) {
  return refuse('the delay of RetryAfter', delay, DELAY)
}

function until (time) {
  return Math.max(0, time - Date.now())
}

// --- What it means -------------------------------------------------------------------------------------------------

const UNPRINTABLE = 'what was thrown cannot be printed'
const OK = Object.freeze({ outcome: 'ok', error: '', retryAfter: 0 })
const CHOOSES = 'a class of errors, a function that is given the error, or an array of these'
const PAIRS = 'an array of [class of errors, or function that is given the error; Policy], or a Map'
const NATIVE = new Set([
  'Error', 'AggregateError', 'EvalError', 'RangeError', 'ReferenceError', 'SyntaxError', 'TypeError', 'URIError'
])

/**
 * Which errors park at once: those in `never`, and those that are not in `only`; and which are tried again by a policy
 * of their own: `policies`, as policiesOf gives them, of which the first counts that chooses one.
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

  /** What became of a message, by what its handler threw. */
  result (thrown) {
    try {
      const error = textOf(thrown)
      const means = thrown?.[MEANS]
      if (means === 'failed') return this.#withPolicy({ outcome: 'failed', error, retryAfter: thrown.delay }, thrown)
      if (means === 'permanent' || means === 'dropped') return { outcome: means, error, retryAfter: 0 }
      const { outcome, retryAfter } = this.#chosen(thrown)
      return this.#withPolicy({ outcome, error, retryAfter }, thrown)
    } catch { // a proxy that throws is no reason to lose a message
      return { outcome: 'failed', error: UNPRINTABLE, retryAfter: 0 }
    }
  }

  /** With the policy of the error; without one, the retrier's is meant. */
  #withPolicy (result, thrown) {
    const policy = this.#policies.length ? this.#policies.find(({ is }) => is(thrown))?.policy : undefined
    return policy ? { ...result, policy } : result
  }

  #chosen (thrown) {
    for (const answer of this.#never) {
      const is = answer(thrown)
      if (is === true) return { outcome: 'permanent', retryAfter: 0 }
      if (is) return { outcome: 'failed', retryAfter: is }
    }
    if (!this.#only) return { outcome: 'failed', retryAfter: 0 }
    for (const answer of this.#only) {
      const is = answer(thrown)
      if (is) return { outcome: 'failed', retryAfter: is === true ? 0 : is }
    }
    return { outcome: 'permanent', retryAfter: 0 }
  }
}

/** What chooses an error, and the policy that it has then, in pairs. */
function policiesOf (given) {
  return list(given, 'policies', PAIRS).map(pair => {
    if (!Array.isArray(pair) || pair.length !== 2) refuse('one of policies', pair, PAIRS)
    return [pair[0], instance(pair[1], Policy, 'the second of a pair of policies')]
  })
}

/** Functions that answer true, false or a delay in milliseconds. */
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

/** Whether it makes errors, or whatever is thrown: an arrow function or a plain one answers instead. */
function isClass (made) {
  if (/^class\b/.test(Function.prototype.toString.call(made))) return true
  for (let of = made.prototype; of; of = Object.getPrototypeOf(of)) {
    if (Object.hasOwn(of, 'constructor') && NATIVE.has(of.constructor?.name)) return true
  }
  return false
}

/** As instanceof; JavaScript's own errors also where they are of another realm, as Node's are under Jest. */
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

/** What a predicate says; one that fails, or says what it cannot mean, leaves its error one that is tried again. */
function answerOf (predicate, thrown, name) {
  const undecided = name === 'only'
  try {
    const answer = predicate(thrown)
    if (answer === undefined || answer === null || typeof answer === 'boolean') return Boolean(answer)
    return milliseconds(answer, `what a function of ${name} answers`, { least: 1, give: 'true, false, or a delay' })
  } catch (error) {
    warn(`a function of ${name} does not tell whether to try again: ${textOf(error)}: it is tried again, as the ` +
      `policy says; it was asked of ${textOf(thrown)}`, 'BACKHOP_CHOICE')
    return undecided
  }
}

// --- What it says --------------------------------------------------------------------------------------------------

function isError (thrown) {
  return types.isNativeError(thrown) || thrown instanceof Error
}

/** What was thrown, in words: with its code, its members and its causes, as far as they do not repeat each other. */
function textOf (thrown) {
  try {
    return saidBy(thrown, MOST_CAUSES).slice(0, LONGEST_TEXT)
  } catch {
    return UNPRINTABLE
  }
}

function saidBy (thrown, depth) {
  if (!isError(thrown)) return typeof thrown === 'string' ? thrown : inspect(thrown, { depth: 1 })
  const { cause } = thrown
  const hasCause = cause !== undefined && cause !== null && depth > 0
  if (thrown[MEANS]) {
    const own = String(thrown.message)
    if (!hasCause) return own
    const why = saidBy(cause, depth - 1)
    return own && !why.startsWith(own) ? `${own}; caused by ${why}` : why
  }
  const said = headOf(thrown) + membersOf(thrown, depth)
  return hasCause ? `${said}; caused by ${saidBy(cause, depth - 1)}` : said
}

/** The class of what was thrown: of an outcome, that of the error that it was made of. */
function classOf (thrown) {
  try {
    const { cause } = Object(thrown)
    if (thrown?.[MEANS] && isError(cause)) return classOf(cause)
    if (!isError(thrown)) return typeof thrown
    return String(thrown.name === 'Error' ? thrown.constructor?.name ?? 'Error' : thrown.name)
  } catch {
    return 'unknown'
  }
}

/** Whether it is no success by another name, as Drop is. */
function isFailure (thrown) {
  try {
    return thrown?.[MEANS] !== 'dropped'
  } catch {
    return true
  }
}

/** Its class, its message and its code. */
function headOf (error) {
  const name = String(error.name === 'Error' ? error.constructor?.name ?? 'Error' : error.name)
  const message = String(error.message ?? '').slice(0, LONGEST_TEXT)
  const code = isCode(error) ? String(error.code) : ''
  if (!message) return code ? `${name}: ${code}` : name
  return code && !message.includes(code) ? `${name}: ${message} [${code}]` : `${name}: ${message}`
}

/** A DOMException's number says no more than its name, nor does a code of Backhop's own. */
function isCode (error) {
  const { code, constructor } = error
  if (error instanceof BackhopError || constructor?.name === 'DOMException') return false
  return typeof code === 'string' || typeof code === 'number'
}

function membersOf ({ errors }, depth) {
  if (!Array.isArray(errors) || !errors.length || depth <= 0) return ''
  const told = errors.slice(0, MOST_MEMBERS).map(each => saidBy(each, Math.min(depth - 1, 2)).slice(0, LONGEST_MEMBER))
  const more = errors.length > MOST_MEMBERS ? ` | and ${errors.length - MOST_MEMBERS} more` : ''
  return ` (${told.join(' | ')}${more})`
}

module.exports = { Choice, Drop, OK, Park, RetryAfter, classOf, isFailure, policiesOf, textOf }
