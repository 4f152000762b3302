'use strict'
// Plan: the decision as data.

const crypto = require('node:crypto')
const { inspect } = require('node:util')

const c = require('./core')
const { PROPERTIES } = require('./delivery')
const { check, made } = require('./errors')
const { NATIVE, listed } = require('./native')
const { instance, namesOf, numberOf, numbers, only } = require('./checks')
const { Policy } = require('./policy')
const { milliseconds } = require('./times')
const { TYPES, TYPE_NAMES, shortText, wireValue } = require('./headers')

const RANDOM_BYTES = 32
const FRAME_MAX = 131072

const OUTCOMES = numbers('BH_OUTCOME_', 'RELEASED')
const SETTLEMENTS = numbers('BH_OUTCOME_') // of a message, without a plan
const ACTION_NUMBERS = numbers('BH_ACTION_')
const ACTIONS = namesOf(ACTION_NUMBERS)
const PUBLISHING = new Set(['retry', 'defer', 'park', 'replay'])
const NAMES = Object.entries(PROPERTIES).map(([name, number]) => ({ name, number }))
const OPTIONS = ['policy', 'outcome', 'error', 'retryAfter', 'frameMax', 'now', 'random']
const KEPT = 12 // of a described plan: bits by the numbers of properties
const MOST_PROPERTY_BYTES = 65536
const { array: ARRAY, int64: INT64, void: VOID } = TYPES

const NO_RANDOM = Buffer.alloc(RANDOM_BYTES)
const WRITTEN = Buffer.alloc(MOST_PROPERTY_BYTES) // the properties of the last copy

// All plans share one plan of the core, as making one costs more than deciding. If another plan has
// taken it, a plan decides again, with the same result.
const shared = made(c.bh_plan_new())
let holder
let traced = '' // traceparent in the shared plan
let framed // frame_max in the shared plan

class Plan {
  #decide
  #nativesOf
  #history
  #topology
  #options
  #all
  #listed // the headers

  /**
   * nativesOf: returns the core's delivery and history of a history
   * decide: calls the core
   *
   * A Decider's options have `now` and `random`; others get defaults.
   */
  constructor (history, topology, options = {}, nativesOf = ownNatives, decide = make, known = OPTIONS) {
    this.#decide = decide
    this.#nativesOf = nativesOf
    this.#history = history
    this.#topology = topology
    this.#options = nativesOf === ownNatives ? settle(only(options, known, 'a Plan')) : options
    this.#all = this.#native().described(listed)
  }

  static guard (history, topology, options = {}, nativesOf) {
    return new Plan(history, topology, options, nativesOf, guard, ['frameMax', 'now', 'random'])
  }

  static replay (history, topology, options = {}, nativesOf) {
    return new Plan(history, topology, options, nativesOf, replay, ['frameMax', 'random'])
  }

  #native () {
    if (holder !== this) {
      holder = undefined
      frame(this.#options.frameMax ?? FRAME_MAX)
      check(this.#decide.call(undefined, shared, this.#nativesOf(this.#history), this.#topology, this.#options))
      holder = this
    }
    return shared
  }

  get action () {
    return ACTIONS.get(this.#all[0])
  }

  get attempts () {
    return this.#all[1]
  }

  get deferrals () {
    return this.#native().read()[2]
  }

  get delay () {
    return this.#all[2]
  }

  get retryAfterMet () {
    return this.#all[3]
  }

  get reason () {
    return this.#all[4]
  }

  get id () {
    return this.#all[5]
  }

  get exchange () {
    return this.#all[6]
  }

  get routingKey () {
    return this.#all[7]
  }

  get mandatory () {
    return this.#all[8]
  }

  get onDemand () {
    return this.#all[9]
  }

  get rung () {
    return this.#all[10]
  }

  get expiration () {
    return this.#all[11] || undefined
  }

  get publishes () {
    return PUBLISHING.has(this.action)
  }

  get keptProperties () {
    return NAMES.filter(({ number }) => this.#keeps(number)).map(({ name }) => name)
  }

  #keeps (number) {
    return (this.#all[KEPT] >> number & 1) === 1
  }

  keepsHeader (name) {
    return Boolean(this.#native().keeps_header(name))
  }

  get headers () {
    const own = this.#ownHeaders
    const headers = []
    for (let i = 0; i < own.length; i += 3) {
      const type = own[i + 1]
      const value = own[i + 2]
      headers.push([own[i], { '!': TYPE_NAMES.get(type), value: type === ARRAY ? [value] : value }])
    }
    return headers
  }

  /** Name, type and value of each header that is added, in one array. */
  get #ownHeaders () {
    return (this.#listed ??= this.#native().described_headers(listed))
  }

  copyProperties (properties, options) {
    const copy = { deliveryMode: 2, headers: this.copyHeaders(properties.headers, options) }
    for (const { name, number } of NAMES) {
      const value = properties[name]
      if (value !== undefined && value !== null && this.#keeps(number)) copy[name] = shortText(value)
    }
    if (this.expiration) copy.expiration = this.expiration
    return copy
  }

  copyHeaders (headers, { integer = value => value } = {}) {
    const own = this.#ownHeaders
    const native = this.#native()
    const copy = {}
    const keep = (given, value) => {
      const name = shortText(given)
      if (native.keeps_header(name)) set(copy, name, wireValue(value))
    }
    if (isPairs(headers)) for (const [name, value] of headers) keep(name, value)
    else if (headers) for (const name of Object.keys(headers)) keep(name, headers[name])
    for (let i = 0; i < own.length; i += 3) {
      const type = own[i + 1]
      const value = own[i + 2]
      if (type === INT64) set(copy, own[i], integer(value))
      else if (type === ARRAY) set(copy, own[i], [value])
      else set(copy, own[i], type === VOID ? wireValue(valueOf(headers, value)) : value)
    }
    return copy
  }

  /**
   * Returns the copy's properties as on the wire. Each integer has the smallest type that holds it,
   * as amqplib writes it.
   *
   * Returns undefined if the core cannot write them: the headers nest deeper than the core reads.
   */
  _encodedProperties () {
    const [delivery] = this.#nativesOf(this.#history)
    const size = this.#native().write_copy_properties(delivery, 1, WRITTEN)
    if (!size) return undefined
    const properties = Buffer.allocUnsafe(size)
    WRITTEN.copy(properties, 0, 0, size)
    return properties
  }

  [inspect.custom] (depth, options) {
    const { action, reason, exchange, delay } = this
    return `Plan ${inspect({ action, reason, exchange, delay }, options)}`
  }
}

/** Returns a caller's options with defaults of `now` and `random`. */
function settle (options) {
  const now = Math.trunc(Number(options.now ?? Date.now()))
  return { ...options, now, random: options.random ?? randomBytes(RANDOM_BYTES) }
}

/** Returns whether the guard has to act on a message: for most messages it has not. */
function isPoison (natives, topology, frameMax, now) {
  holder = undefined
  frame(frameMax)
  check(guard(shared, natives, topology, { now, random: NO_RANDOM }))
  return shared.action() !== c.BH_ACTION_NONE
}

/** Sets frame_max of the shared plan. */
function frame (frameMax) {
  if (frameMax !== framed) check(shared.set_frame_max(frameMax))
  framed = frameMax
}

function make (native, [delivery, history], topology, options) {
  const {
    policy = topology.policy, outcome = 'failed', error = '', retryAfter = 0, traceparent = '', now, random
  } = options
  if (traceparent !== traced) check(native.set_traceparent(traceparent))
  traced = traceparent
  return native.make(
    delivery, history, instance(policy, Policy, 'policy')[NATIVE], topology[NATIVE],
    numberOf(OUTCOMES, outcome, 'outcome'), error, milliseconds(retryAfter, 'retryAfter', { least: -Infinity }),
    now, random
  )
}

function guard (native, [delivery, history], topology, { now, random }) {
  return native.guard(delivery, history, topology.policy[NATIVE], topology[NATIVE], now, random)
}

function replay (native, [delivery, history], topology, { random }) {
  return native.replay(delivery, history, topology[NATIVE], random)
}

function ownNatives (history) {
  return [history.delivery[NATIVE], history[NATIVE]]
}

/** Returns headers as pairs of name and value. */
function entriesOf (headers) {
  return isPairs(headers) ? headers : Object.entries(headers ?? {})
}

function isPairs (headers) {
  return headers instanceof Map || Array.isArray(headers)
}

function valueOf (headers, name) {
  return [...entriesOf(headers)].find(([given]) => shortText(given) === name)?.[1]
}

/** Sets an own property, also __proto__. */
function set (table, name, value) {
  if (name !== '__proto__') table[name] = value
  else Object.defineProperty(table, name, { value, configurable: true, enumerable: true, writable: true })
}

let pool = Buffer.alloc(0)
let drawn = 0

/** Returns random bytes of the system, which are drawn in blocks: many cost as much as a few. */
function randomBytes (count) {
  if (pool.length < drawn + count) {
    pool = crypto.randomBytes(Math.max(count, 8192))
    drawn = 0
  }
  drawn += count
  return pool.subarray(drawn - count, drawn)
}

module.exports = { ACTION_NUMBERS, FRAME_MAX, OUTCOMES, Plan, RANDOM_BYTES, SETTLEMENTS, isPoison, randomBytes }
