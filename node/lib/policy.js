'use strict'
// Policy: how long, how often, how random, when to give up.

const { inspect } = require('node:util')

const c = require('./core')
const { StrategyError, check, errorOf, made } = require('./errors')
const NATIVE = require('./native')
const { previewOf, rowCount, topologyRow } = require('./preview')
const { list, namesOf, numberOf, only, refuse, shown, whole } = require('./checks')
const { duration, milliseconds } = require('./times')

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
const RANGE = /^.* is -?\d+: give a whole number from (-?\d+) to (\d+)$/ // of the core's sentences
const ABOVE = / is (\d+)(?: ms)?, above (\w+) (\d+)/
const OPTIONS = [
  'initial', 'factor', 'max', 'jitter', 'maxAttempts', 'kind', 'steps', 'maxAge', 'maxRetryAfter', 'maxCrashes',
  'maxDeferrals'
]

class Policy {
  #options

  constructor (options = {}) {
    this.#options = { ...only(options, OPTIONS, 'a Policy') }
    const {
      initial, factor, max, jitter = SPREAD, maxAttempts, steps, maxAge, maxRetryAfter, maxCrashes,
      maxDeferrals
    } = options
    const delays = steps === undefined ? [] : list(steps, 'steps', 'an array of delays')
    if (steps !== undefined) {
      if (!delays.length) refuse('steps', steps, 'one delay at least, or another kind')
      this.#options.steps = Object.freeze(delays)
    }
    const { kind = delays.length ? 'steps' : 'exponential' } = options
    this[NATIVE] = made(c.bh_policy_new())
    this.#set('set_kind', numberOf(KINDS, kind, 'kind'))
    this.#set('refuse_unused', Number(initial !== undefined), Number(factor !== undefined))
    this.#setDuration('initial', 'set_initial_ms', initial)
    if (factor !== undefined) this.#set('set_factor', number(factor, 'factor'))
    this.#setDuration('max', 'set_max_ms', max)
    for (const step of delays) this.#setGiven('a step', 'add_step_ms', step) // refuses a hole
    if (typeof jitter === 'number') this.#set('set_jitter', JITTERS.spread, jitter)
    else this.#set('set_jitter', Object.hasOwn(JITTERS, jitter) ? JITTERS[jitter] : refuseJitter(jitter), SPREAD)
    this.#setWhole('maxAttempts', 'set_max_attempts', maxAttempts)
    this.#setDuration('maxAge', 'set_max_age_ms', maxAge)
    this.#setDuration('maxRetryAfter', 'set_max_retry_after_ms', maxRetryAfter)
    this.#setWhole('maxCrashes', 'set_max_crashes', maxCrashes)
    this.#setWhole('maxDeferrals', 'set_max_deferrals', maxDeferrals)
    this.#set('check')
  }

  /** Sets a duration. An option that is not given keeps the core's default. */
  #setDuration (name, setter, value) {
    if (value !== undefined) this.#setGiven(name, setter, value)
  }

  #setGiven (name, setter, value) {
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
    return this[NATIVE].limits()[0]
  }

  get max () {
    return this[NATIVE].limits()[1]
  }

  get maxAge () {
    return this[NATIVE].limits()[2]
  }

  get maxRetryAfter () {
    return this[NATIVE].limits()[3]
  }

  get maxCrashes () {
    return this[NATIVE].limits()[4]
  }

  get maxDeferrals () {
    return this[NATIVE].limits()[5]
  }

  delay (attempt, options = {}) {
    const { previous = 0, random = 0.5 } = only(options, ['previous', 'random'], 'delay')
    if (!(number(random, 'random') >= 0 && random < 1)) refuse('random', random, 'a number from 0 to below 1')
    return this[NATIVE].delay_ms(whole(attempt, 'attempt', 1), milliseconds(previous, 'previous'), random)
  }

  row (attempt) {
    whole(attempt, 'attempt', 1)
    const [lowest, mean, highest, total] = this[NATIVE].preview(attempt)
    return { attempt, lowest, mean, highest, total, rungs: 0 }
  }

  preview (failures = rowCount(this)) {
    const topology = made(c.bh_topology_new('preview'))
    const status = topology.build(this[NATIVE])
    if (status === StrategyError.status) return previewOf(failures, attempt => this.row(attempt))
    check(status)
    return previewOf(failures, attempt => topologyRow(topology, this[NATIVE], attempt))
  }

  /** Returns the options, for JSON: `new Policy(JSON.parse(text))` makes an equal policy. */
  toJSON () {
    return { ...this.#options }
  }

  [inspect.custom] (depth, options) {
    return `Policy ${inspect(this.#options, options)}`
  }
}

function number (value, name) {
  return typeof value === 'number' ? value : refuse(name, value, 'a number')
}

function refuseJitter (jitter) {
  return refuse('jitter', jitter, `a share from 0 to 1, or one of ${Object.keys(JITTERS).join(', ')}`)
}

module.exports = { Policy }
