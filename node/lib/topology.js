'use strict'
// Topology: the exchanges, queues and bindings that a strategy needs.

const { inspect } = require('node:util')

const c = require('./core')
const { ArgumentError, InvalidNameError, check, errorOf, made } = require('./errors')
const { NATIVE, range } = require('./native')
const { instance, list, namesOf, numberOf, numbers, only, pick, refuse, shown, text, whole } = require('./checks')
const { Policy } = require('./policy')
const { previewOf, rowCount, topologyRow } = require('./preview')
const { TYPES } = require('./headers')

const STRATEGIES = numbers('BH_STRATEGY_')
const STRATEGY_NAMES = namesOf(STRATEGIES)
const QUEUE_TYPES = numbers('BH_QUEUE_')
const WHATS = namesOf(numbers('BH_DECLARE_', 'NONE'))
const SERIES = [5, 10, 20, 40]
const MOST_STRIPES = 64
const LONGEST_NAME = 247 // bytes
const TOPOLOGY = [ // options that a retrier and a worker have too
  'queue', 'policy', 'strategy', 'queueType', 'namespace', 'series', 'stripes', 'workQueue', 'workQueueArguments'
]
const OPTIONS = [...TOPOLOGY, 'policies']

class Topology {
  #view // what the core has of it

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
    if (!SERIES.includes(series)) refuse('series', series, `one of ${SERIES.join(', ')}`)
    this.#check(native.set(
      numberOf(STRATEGIES, strategy, 'strategy'), numberOf(QUEUE_TYPES, queueType, 'queueType'),
      Number(namespace !== undefined), namespace === undefined ? '' : isText(namespace, 'namespace'), series,
      whole(stripes, 'stripes', 1, MOST_STRIPES), Number(workQueue !== undefined),
      numberOf(QUEUE_TYPES, workQueue === undefined ? 'quorum' : workQueue, 'workQueue')
    ))
    for (const [name, value] of argumentsOf(workQueueArguments)) {
      const isNumber = typeof value === 'number' || typeof value === 'bigint'
      check(isNumber ? native.add_work_queue_int(name, value) : native.add_work_queue_string(name, value))
    }
    for (const each of further) this.#check(native.add_policy(each[NATIVE]))
    this.#check(native.build(policy[NATIVE]))
    const [name, parkedQueue, unroutableQueue, worstLateness, rungs, count, defers, strategyNumber] = native.read()
    this.#view = { name, parkedQueue, unroutableQueue, worstLateness, rungs, defers, strategyNumber }
    this.declarations = Object.freeze(range(count).map(i => declarationOf(native.declaration(i))))
  }

  #check (status) {
    if (status) throw errorOf(status, this[NATIVE].error().replace('the work queue\'s type', 'workQueue, its type,'))
  }

  get queue () {
    return this.#view.name
  }

  get strategy () {
    return STRATEGY_NAMES.get(this.#view.strategyNumber)
  }

  get parkedQueue () {
    return this.#view.parkedQueue
  }

  /** The queue of messages that came back to no queue; '' for the strategy native. Private. */
  get _unroutableQueue () {
    return this.#view.unroutableQueue
  }

  /** True if a message can wait without an attempt. Private. */
  get _defers () {
    return this.#view.defers === 1
  }

  get worstLateness () {
    return this.#view.worstLateness
  }

  get rungs () {
    return [...this.#view.rungs]
  }

  row (attempt) {
    return topologyRow(this[NATIVE], this.policy[NATIVE], attempt)
  }

  preview (failures = rowCount(this.policy)) {
    return previewOf(failures, attempt => this.row(attempt))
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

/** Returns a string or bytes. The core decides whether it may be empty. */
function isText (value, name) {
  return typeof value === 'string' || value instanceof Uint8Array ? value : refuse(name, value, 'a string')
}

/** Returns why a name is refused. The core's error has not the name itself. */
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
    if (isInteger || value === '') continue // '' is the default exchange in x-dead-letter-exchange
    text(value, `workQueueArguments: ${name}`, 'a whole number or a string')
  }
  return pairs
}

/** Converts a declaration of the core. */
function declarationOf ([kind, name, type, source, routingKey, wait, onDemand, , , args]) {
  return Object.freeze({
    what: WHATS.get(kind),
    name,
    type,
    source,
    routingKey,
    arguments: Object.freeze(Object.fromEntries(args.map(([name, type, string, integer]) => {
      return [name, type === TYPES.int64 ? integer : string]
    }))),
    wait,
    onDemand: Boolean(onDemand)
  })
}

/**
 * Returns the topology of a retrier or a worker: the one that is given, or a new one of its
 * options.
 *
 * policies: pairs of errors and Policy, as policiesOf returns them
 * Throws an ArgumentError if there is neither a queue nor a topology, or both.
 */
function topologyOf (options, what, policies) {
  const given = Object.keys(pick(options, TOPOLOGY))
  if (options.topology === undefined) {
    if (options.queue !== undefined) {
      return new Topology({ ...pick(options, TOPOLOGY), policies: policies.map(([, policy]) => policy) })
    }
    throw new ArgumentError(`${what} has neither queue nor topology: give the name of the work queue, or a Topology`)
  }
  if (given.length) throw new ArgumentError(`${what} has its ${given[0]} from the topology: give either`)
  return instance(options.topology, Topology, 'topology')
}

module.exports = { TOPOLOGY, Topology, declarationOf, topologyOf }
