'use strict'
// Policy: how long, how often, how random, when to give up.

const { inspect } = require('node:util')

const c = require('./addon')
const { PolicyError, StrategyError, errorOf, made } = require('./errors')
const { range } = require('./history')
const NATIVE = require('./native')
const { list, namesOf, numberOf, only, refuse, shown, whole } = require('./options')
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
const USED = { initial: ['exponential', 'linear', 'fixed'], factor: ['exponential'] } // by which kinds
const ROWS = 20
const MOST_ROWS = 10_000
const RANGE = /^.* is -?\d+: give a whole number from (-?\d+) to (\d+)$/ // of the core's sentences
const ABOVE = / is (\d+)(?: ms)?, above (\w+) (\d+)/
const OPTIONS = [
  'initial', 'factor', 'max', 'jitter', 'maxAttempts', 'kind', 'steps', 'maxAge', 'maxRetryAfter', 'maxCrashes'
]

/** What a topology will do by its policy: rows that print as a table. */
class Preview extends Array {
  static get [Symbol.species] () {
    return Array
  }

  toString () {
    const cells = [['failure', 'lowest', 'mean', 'highest', 'total', 'rungs']]
    for (const { attempt, lowest, mean, highest, total, rungs } of this) {
      cells.push([String(attempt), ...[lowest, mean, highest, total].map(duration), String(rungs || '-')])
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
      initial, factor, max, jitter = SPREAD, maxAttempts, steps, maxAge, maxRetryAfter, maxCrashes
    } = options
    const delays = steps === undefined ? [] : list(steps, 'steps', 'an array of delays')
    if (steps !== undefined && !delays.length) refuse('steps', steps, 'one delay at least, or another kind')
    const { kind = delays.length ? 'steps' : 'exponential' } = options
    this[NATIVE] = made(c.bh_policy_new())
    this.#set('set_kind', numberOf(KINDS, kind, 'kind'))
    refuseUnused(kind, options)
    this.#setDuration('initial', 'set_initial_ms', initial)
    if (factor !== undefined) this.#set('set_factor', number(factor, 'factor'))
    this.#setDuration('max', 'set_max_ms', max)
    for (const step of delays) this.#setDuration('a step', 'add_step_ms', step)
    if (typeof jitter === 'number') this.#set('set_jitter', JITTERS.spread, jitter)
    else this.#set('set_jitter', Object.hasOwn(JITTERS, jitter) ? JITTERS[jitter] : refuseJitter(jitter), SPREAD)
    this.#setWhole('maxAttempts', 'set_max_attempts', maxAttempts)
    this.#setDuration('maxAge', 'set_max_age_ms', maxAge)
    this.#setDuration('maxRetryAfter', 'set_max_retry_after_ms', maxRetryAfter)
    this.#setWhole('maxCrashes', 'set_max_crashes', maxCrashes)
    this.#set('check')
  }

  /** What is not given keeps the core's default. */
  #setDuration (name, setter, value) {
    if (value === undefined) return
    this.#set(setter, milliseconds(value, name, { least: -Infinity }), ([from, to]) => {
      return `${name} is ${shown(value)}: give a duration from ${from} ms to ${duration(to)}`
    })
  }

  #setWhole (name, setter, value) {
    if (value === undefined) return
    this.#set(setter, whole(value, name, -Infinity), ([from, to]) => {
      return `${name} is ${value}: give a whole number from ${from} to ${to}`
    })
  }

  /** `ranged`: what to say of the range that the core has. */
  #set (setter, ...args) {
    const ranged = typeof args.at(-1) === 'function' ? args.pop() : undefined
    const status = this[NATIVE][setter](...args)
    if (!status) return
    const range = RANGE.exec(this[NATIVE].error())?.slice(1).map(Number)
    if (range && ranged) throw errorOf(status, ranged(range))
    throw errorOf(status, this[NATIVE].error().replace(ABOVE, (_, value, name, most) => {
      return ` is ${duration(value)}, above ${name} ${duration(most)}`
    }))
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

  delay (attempt, options = {}) {
    const { previous = 0, random = 0.5 } = only(options, ['previous', 'random'], 'delay')
    if (!(number(random, 'random') >= 0 && random < 1)) refuse('random', random, 'a number from 0 to below 1')
    return this[NATIVE].delay_ms(whole(attempt, 'attempt', 1), milliseconds(previous, 'previous'), random)
  }

  row (attempt) {
    whole(attempt, 'attempt', 1)
    const native = this[NATIVE]
    return {
      attempt,
      lowest: native.lowest_ms(attempt),
      mean: native.mean_ms(attempt),
      highest: native.highest_ms(attempt),
      total: native.total_ms(attempt),
      rungs: 0
    }
  }

  preview (failures = previewed(this)) {
    whole(failures, 'failures', 0, MOST_ROWS)
    const { Topology } = require('./topology') // which requires this file
    try {
      return new Topology({ queue: 'preview', policy: this }).preview(failures)
    } catch (error) {
      if (!(error instanceof StrategyError)) throw error
      return Preview.from(range(failures), i => this.row(i + 1))
    }
  }

  /** The options that it was made with: `new Policy(JSON.parse(text))` makes it again. */
  toJSON () {
    return { ...this.#options }
  }

  [inspect.custom] (depth, options) {
    return `Policy ${inspect(this.#options, options)}`
  }
}

/** How many failures a preview shows. */
function previewed ({ maxAttempts }) {
  return maxAttempts ? Math.max(0, Math.min(ROWS, maxAttempts - 1)) : ROWS
}

function number (value, name) {
  return typeof value === 'number' ? value : refuse(name, value, 'a number')
}

function refuseJitter (jitter) {
  return refuse('jitter', jitter, `a share from 0 to 1, or one of ${Object.keys(JITTERS).join(', ')}`)
}

/** What the kind would ignore is a mistake of who gave it. */
function refuseUnused (kind, options) {
  for (const [name, kinds] of Object.entries(USED)) {
    if (options[name] === undefined || kinds.includes(kind)) continue
    throw new PolicyError(
      `${name} is given, and the kind ${kind} has no use for it: leave it out, or take another kind`
    )
  }
}

module.exports = { MOST_ROWS, Policy, Preview, previewed }
