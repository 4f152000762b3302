'use strict'
// Topology: the exchanges, queues and bindings that a strategy needs.

const { inspect } = require('node:util')

const c = require('./addon')
const { check, errorOf, made } = require('./errors')
const { range } = require('./history')
const NATIVE = require('./native')
const { namesOf, numberOf, only } = require('./options')
const { Policy } = require('./policy')
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
const OPTIONS = ['queue', 'policy', 'strategy', 'queueType', 'namespace', 'series', 'workQueue', 'workQueueArguments']

class Topology {
  constructor (options) {
    const {
      queue, policy = new Policy(), strategy = 'ladder', queueType = 'quorum', namespace, series = 10, workQueue,
      workQueueArguments = {}
    } = only(options, OPTIONS, 'a Topology')
    if (!(policy instanceof Policy)) throw new TypeError(`policy is ${inspect(policy)}: give a Policy`)
    this.policy = policy
    const native = this[NATIVE] = made(c.bh_topology_new(queue))
    check(native.set_strategy(numberOf(STRATEGIES, strategy, 'strategy')))
    check(native.set_queue_type(numberOf(QUEUE_TYPES, queueType, 'queueType')))
    if (namespace !== undefined) check(native.set_namespace(namespace))
    check(native.set_series(series), `series is ${series}: give one of 5, 10, 20, 40`)
    if (workQueue !== undefined) check(native.set_work_queue_type(numberOf(QUEUE_TYPES, workQueue, 'workQueue')))
    const given = workQueueArguments instanceof Map ? workQueueArguments : Object.entries(workQueueArguments)
    for (const [name, value] of given) {
      const isNumber = typeof value === 'number' || typeof value === 'bigint'
      check(isNumber ? native.add_work_queue_int(name, value) : native.add_work_queue_string(name, value))
    }
    this.#check(native.build(policy[NATIVE]))
    this.declarations = Object.freeze(range(native.count()).map(i => declaration(native, i)))
  }

  #check (status) {
    if (status) throw errorOf(status, this[NATIVE].error())
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

  checkBroker (product, version) {
    this.#check(this[NATIVE].check_broker(product, version))
  }

  definitions (vhost = '/') {
    this.#check(c.bh_topology_export(this[NATIVE], vhost))
    return this[NATIVE].definitions()
  }

  [inspect.custom] (depth, options) {
    const { queue, strategy, rungs } = this
    return `Topology ${inspect({ queue, strategy, rungs, declarations: this.declarations.length }, options)}`
  }
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
