'use strict'
// Policy: how long, how often, how random, when to give up.

const { inspect } = require('node:util')

const c = require('./addon')
const { errorOf, made } = require('./errors')
const { range } = require('./history')
const NATIVE = require('./native')
const { namesOf, numberOf, only } = require('./options')
const { duration, milliseconds } = require('./time')

const KINDS = {
  exponential: c.BH_KIND_EXPONENTIAL,
  linear: c.BH_KIND_LINEAR,
  fixed: c.BH_KIND_FIXED,
  steps: c.BH_KIND_STEPS
}
const JITTERS = {
  none: c.BH_JITTER_NONE,
  spread: c.BH_JITTER_SPREAD,
  equal: c.BH_JITTER_EQUAL,
  full: c.BH_JITTER_FULL,
  decorrelated: c.BH_JITTER_DECORRELATED
}
const KIND_NAMES = namesOf(KINDS)
const JITTER_NAMES = namesOf(JITTERS)
const SPREAD = 0.2
const ROWS = 20
const OPTIONS = [
  'initial', 'factor', 'max', 'jitter', 'maxAttempts', 'kind', 'steps', 'maxAge', 'maxRetryAfter', 'maxCrashes'
]

/** What a policy will do: rows that print as a table. */
class Preview extends Array {
  static get [Symbol.species] () {
    return Array
  }

  toString () {
    const cells = [['failure', 'lowest', 'mean', 'highest', 'total']]
    for (const { attempt, lowest, mean, highest, total } of this) {
      cells.push([String(attempt), ...[lowest, mean, highest, total].map(duration)])
    }
    const widths = cells[0].map((_, column) => Math.max(...cells.map(row => row[column].length)))
    return cells.map(row => row.map((cell, column) => cell.padStart(widths[column])).join('  ')).join('\n')
  }

  [inspect.custom] () {
    return this.toString()
  }
}

class Policy {
  #options

  constructor (options = {}) {
    this.#options = { ...only(options, OPTIONS, 'a Policy') }
    const {
      initial, factor, max, jitter = SPREAD, maxAttempts, steps = [], maxAge, maxRetryAfter, maxCrashes
    } = options
    const kind = options.kind ?? (steps.length ? 'steps' : 'exponential')
    this[NATIVE] = made(c.bh_policy_new())
    this.#set('set_kind', numberOf(KINDS, kind, 'kind'))
    this.#set('set_initial_ms', initial, milliseconds)
    this.#set('set_factor', factor)
    this.#set('set_max_ms', max, milliseconds)
    for (const step of steps) this.#set('add_step_ms', step, milliseconds)
    if (typeof jitter === 'number') this.#check(this[NATIVE].set_jitter(JITTERS.spread, jitter))
    else this.#check(this[NATIVE].set_jitter(numberOf(JITTERS, jitter, 'jitter'), SPREAD))
    this.#set('set_max_attempts', maxAttempts, whole('maxAttempts'))
    this.#set('set_max_age_ms', maxAge, milliseconds)
    this.#set('set_max_retry_after_ms', maxRetryAfter, milliseconds)
    this.#set('set_max_crashes', maxCrashes, whole('maxCrashes'))
    this.#check(this[NATIVE].check())
  }

  /** What is not given keeps the core's default. */
  #set (setter, value, convert = given => given) {
    if (value !== undefined && value !== null) this.#check(this[NATIVE][setter](convert(value)))
  }

  #check (status) {
    if (status) throw errorOf(status, this[NATIVE].error())
  }

  get kind () {
    return KIND_NAMES.get(this[NATIVE].kind())
  }

  get jitter () {
    return JITTER_NAMES.get(this[NATIVE].jitter())
  }

  get maxAttempts () {
    return this[NATIVE].max_attempts()
  }

  get max () {
    return this[NATIVE].max_ms()
  }

  get maxAge () {
    return this[NATIVE].max_age_ms()
  }

  get maxRetryAfter () {
    return this[NATIVE].max_retry_after_ms()
  }

  get maxCrashes () {
    return this[NATIVE].max_crashes()
  }

  delay (attempt, { previous = 0, random = 0.5 } = {}) {
    return this[NATIVE].delay_ms(attempt, milliseconds(previous), random)
  }

  row (attempt) {
    const native = this[NATIVE]
    return {
      attempt,
      lowest: native.lowest_ms(attempt),
      mean: native.mean_ms(attempt),
      highest: native.highest_ms(attempt),
      total: native.total_ms(attempt)
    }
  }

  preview (failures = this.maxAttempts ? Math.min(ROWS, this.maxAttempts - 1) : ROWS) {
    return Preview.from(range(failures), i => this.row(i + 1))
  }

  /** The options that it was made with: `new Policy(JSON.parse(text))` makes it again. */
  toJSON () {
    return { ...this.#options }
  }

  [inspect.custom] (depth, options) {
    return `Policy ${inspect(this.#options, options)}`
  }
}

function whole (name) {
  return value => {
    if (Number.isInteger(value)) return value
    throw new TypeError(`${name} is ${inspect(value)}: give a whole number`)
  }
}

module.exports = { Policy, Preview }
