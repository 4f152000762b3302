'use strict'
// Policy: how long, how often, how random, when to give up.

const { inspect } = require('node:util')

const c = require('./core')
const { StrategyError, check, errorOf, made } = require('./errors')
const { NATIVE } = require('./native')
const { previewOf, rowCount, topologyRow } = require('./preview')
const { list, namesOf, numberOf, numbers, only, refuse, shown, whole } = require('./checks')
const { duration, milliseconds } = require('./times')

const KINDS = numbers('BH_KIND_')
const JITTERS = numbers('BH_JITTER_')
const KIND_NAMES = namesOf(KINDS)
const JITTER_NAMES = namesOf(JITTERS)
const DEFAULTS = c.bh_policy_defaults()
const SPREAD = 0.2
const RANGE = /^(\w+) is (-?\d+): give a whole number from (-?\d+) to (\d+)$/ // of the core's sentences
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
      initial, factor, max, jitter = SPREAD, maxAttempts, steps, maxAge = 0, maxRetryAfter = 86400000, maxCrashes = 5,
      maxDeferrals = 100
    } = options
    const delays = steps === undefined ? [] : list(steps, 'steps', 'an array of delays')
    if (steps !== undefined) {
      if (!delays.length) refuse('steps', steps, 'one delay at least, or another kind')
      this.#options.steps = Object.freeze(delays)
    }
    const { kind = delays.length ? 'steps' : 'exponential' } = options
    this[NATIVE] = made(c.bh_policy_new())
    const [, initialMs, defaultFactor, maxMs] = DEFAULTS
    const steps64 = BigInt64Array.from(delays, step => BigInt(ms(step, 'a step'))) // refuses a hole
    this.#check(this[NATIVE].set(
      numberOf(KINDS, kind, 'kind'),
      Number(initial !== undefined), initial === undefined ? initialMs : ms(initial, 'initial'),
      Number(factor !== undefined), factor === undefined ? defaultFactor : number(factor, 'factor'),
      max === undefined ? maxMs : ms(max, 'max'),
      Buffer.from(steps64.buffer),
      ...(typeof jitter === 'number' ? [JITTERS.spread, jitter] : [kindOf(jitter), SPREAD]),
      maxAttempts === undefined ? DEFAULTS.at(-1) : whole(maxAttempts, 'maxAttempts', -Infinity),
      ms(maxAge, 'maxAge'), ms(maxRetryAfter, 'maxRetryAfter'),
      whole(maxCrashes, 'maxCrashes', -Infinity), whole(maxDeferrals, 'maxDeferrals', -Infinity)
    ))
    this.#check(this[NATIVE].check())
  }

  /** Throws the core's sentence, in the names and units of the options. */
  #check (status) {
    if (!status) return
    const text = this[NATIVE].error()
    const [, field, value, from, to] = RANGE.exec(text) ?? []
    if (!field) {
      throw errorOf(status, text.replace(ABOVE, (_, value, name, most) => {
        return ` is ${duration(value)}, above ${name} ${duration(most)}`
      }))
    }
    const [name, given] = this.#named(field, Number(value))
    throw errorOf(status, field.endsWith('_ms')
      ? `${name} is ${shown(given)}: give a duration from ${from} ms to ${duration(Number(to))}`
      : `${name} is ${given}: give a whole number from ${from} to ${to}`)
  }

  /** Returns the name of an option, and its given value, from the name of the core's field. */
  #named (field, value) {
    if (field === 'step_ms') return ['a step', this.#options.steps.find(step => ms(step, 'a step') === value)]
    const name = field.replace(/_ms$/, '').replace(/_(\w)/g, (_, letter) => letter.toUpperCase())
    return [name, this.#options[name]]
  }

  get kind () {
    return KIND_NAMES.get(this[NATIVE].read()[0])
  }

  get jitter () {
    return JITTER_NAMES.get(this[NATIVE].read()[4])
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

/** Returns the ms of a duration. The core checks its range. */
function ms (value, name) {
  return milliseconds(value, name, { least: -Infinity })
}

function kindOf (jitter) {
  if (Object.hasOwn(JITTERS, jitter)) return JITTERS[jitter]
  return refuse('jitter', jitter, `a share from 0 to 1, or one of ${Object.keys(JITTERS).join(', ')}`)
}

module.exports = { Policy }
