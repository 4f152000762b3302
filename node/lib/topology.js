'use strict'
// Topology: the exchanges, queues and bindings that a strategy needs.

const { inspect } = require('node:util')

const c = require('./addon')
const { InvalidNameError, check, errorOf, made } = require('./errors')
const { range } = require('./history')
const NATIVE = require('./native')
const { instance, list, namesOf, numberOf, only, refuse, shown, text, whole } = require('./options')
const { MOST_ROWS, Policy, Preview, previewed } = require('./policy')
const { TYPES } = require('./values')

const STRATEGIES = {
  ladder: c.BH_STRATEGY_LADDER,
  'message-ttl': c.BH_STRATEGY_MESSAGE_TTL,
  reject: c.BH_STRATEGY_REJECT,
  'delayed-exchange': c.BH_STRATEGY_DELAYED_EXCHANGE,
  native: c.BH_STRATEGY_NATIVE
}
const STRATEGY_NAMES = namesOf(STRATEGIES)
const QUEUE_TYPES = { quorum: c.BH_QUEUE_QUORUM, classic: c.BH_QUEUE_CLASSIC }
const WHATS = namesOf({ exchange: c.BH_DECLARE_EXCHANGE, queue: c.BH_DECLARE_QUEUE, binding: c.BH_DECLARE_BINDING })
const SERIES = [5, 10, 20, 40]
const MOST_STRIPES = 64
const LONGEST_NAME = 247 // bytes
const OPTIONS = [
  'queue', 'policy', 'policies', 'strategy', 'queueType', 'namespace', 'series', 'stripes', 'workQueue',
  'workQueueArguments'
]

class Topology {
  constructor (options = {}) {
    const {
      queue, policy = new Policy(), strategy = 'ladder', queueType = 'quorum', namespace, series = 10, stripes = 1,
      workQueue, workQueueArguments = {}, policies = []
    } = only(options, OPTIONS, 'a Topology')
    this.policy = instance(policy, Policy, 'policy')
    const given = list(policies, 'policies', 'an array of Policies')
    const further = given.map(each => instance(each, Policy, 'one of policies'))
    const native = this[NATIVE] = made(
      c.bh_topology_new(isText(queue, 'queue')), unusable('queue', queue), InvalidNameError
    )
    check(native.set_strategy(numberOf(STRATEGIES, strategy, 'strategy')))
    check(native.set_queue_type(numberOf(QUEUE_TYPES, queueType, 'queueType')))
    if (namespace !== undefined) this.#check(native.set_namespace(isText(namespace, 'namespace')))
    if (!SERIES.includes(series)) refuse('series', series, `one of ${SERIES.join(', ')}`)
    check(native.set_series(series))
    check(native.set_stripes(whole(stripes, 'stripes', 1, MOST_STRIPES)))
    if (workQueue !== undefined) check(native.set_work_queue_type(numberOf(QUEUE_TYPES, workQueue, 'workQueue')))
    for (const [name, value] of argumentsOf(workQueueArguments)) {
      const isNumber = typeof value === 'number' || typeof value === 'bigint'
      check(isNumber ? native.add_work_queue_int(name, value) : native.add_work_queue_string(name, value))
    }
    for (const each of further) this.#check(native.add_policy(each[NATIVE]))
    this.#check(native.build(policy[NATIVE]))
    this.declarations = Object.freeze(range(native.count()).map(i => declaration(native, i)))
  }

  #check (status) {
    if (status) throw errorOf(status, this[NATIVE].error().replace('the work queue\'s type', 'workQueue, its type,'))
  }

  get queue () {
    return this[NATIVE].queue()
  }

  get strategy () {
    return STRATEGY_NAMES.get(this[NATIVE].strategy())
  }

  get parkedQueue () {
    return this[NATIVE].parked_queue()
  }

  get worstLateness () {
    return this[NATIVE].worst_lateness_ms()
  }

  get rungs () {
    return range(this[NATIVE].rung_count()).map(i => this[NATIVE].rung_ms(i))
  }

  row (attempt) {
    whole(attempt, 'attempt', 1)
    const [native, policy] = [this[NATIVE], this.policy[NATIVE]]
    return {
      attempt,
      lowest: native.lowest_ms(policy, attempt),
      mean: native.mean_ms(policy, attempt),
      highest: native.highest_ms(policy, attempt),
      total: native.total_ms(policy, attempt),
      rungs: native.spread(policy, attempt)
    }
  }

  preview (failures = previewed(this.policy)) {
    return Preview.from(range(whole(failures, 'failures', 0, MOST_ROWS)), i => this.row(i + 1))
  }

  shares (attempt) {
    whole(attempt, 'attempt', 1)
    const share = i => this[NATIVE].share(this.policy[NATIVE], attempt, i)
    return new Map(this.rungs.map((rung, i) => [rung, share(i)]).filter(([, share]) => share > 0))
  }

  checkBroker (product, version) {
    this.#check(this[NATIVE].check_broker(isText(product, 'product'), isText(version, 'version')))
  }

  definitions (vhost = '/') {
    this.#check(c.bh_topology_export(this[NATIVE], text(vhost, 'vhost')))
    return this[NATIVE].definitions()
  }

  [inspect.custom] (depth, options) {
    const { queue, strategy, rungs } = this
    return `Topology ${inspect({ queue, strategy, rungs, declarations: this.declarations.length }, options)}`
  }
}

/** A string or its bytes; whether it may be empty is the core's to say. */
function isText (value, name) {
  return typeof value === 'string' || value instanceof Uint8Array ? value : refuse(name, value, 'a string')
}

/** Why a name is refused: InvalidNameError says nothing of the name itself. */
function unusable (what, name) {
  const bytes = Buffer.byteLength(name ?? '')
  if (!bytes) return `${what} is empty: give the name of the work queue`
  if (bytes > LONGEST_NAME) return `${what} is ${bytes} bytes long: give a name of ${LONGEST_NAME} at most`
  if (String(name).startsWith('amq.')) {
    return `${what} is ${shown(name)}: names that begin with amq. are the broker's own`
  }
  return `${what} is ${shown(name)}: give a name in UTF-8 that has no zero byte`
}

function argumentsOf (given) {
  if (typeof given !== 'object' || given === null || Array.isArray(given)) {
    refuse('workQueueArguments', given, 'an object, or a Map')
  }
  const pairs = [...given instanceof Map ? given : Object.entries(given)]
  for (const [name, value] of pairs) {
    const isInteger = Number.isSafeInteger(value) || (typeof value === 'bigint' && BigInt.asIntN(64, value) === value)
    text(name, 'the name of an argument')
    if (!isInteger) text(value, `workQueueArguments: ${name}`, 'a whole number, or a string that is not empty')
  }
  return pairs
}

function declaration (native, index) {
  const isInt = i => native.argument_type(index, i) === TYPES.int64
  return Object.freeze({
    what: WHATS.get(native.declaration(index)),
    name: native.name(index),
    type: native.type(index),
    source: native.source(index),
    routingKey: native.routing_key(index),
    arguments: Object.freeze(Object.fromEntries(range(native.argument_count(index)).map(i => [
      native.argument_name(index, i), isInt(i) ? native.argument_int(index, i) : native.argument_string(index, i)
    ]))),
    wait: native.wait_ms(index),
    onDemand: Boolean(native.on_demand(index))
  })
}

module.exports = { Topology }
