'use strict'
// Runs the shared vectors through the public classes.

const assert = require('node:assert/strict')

const { BackhopError, Delivery, History, Policy, Topology } = require('backhop')

const { c, errors: { inWords } } = require('./internals')
const notation = require('./notation')

const { entries, fraction, integer, only, raw, steps } = notation

/** The error that a case expects by its status. */
function refused (code, run) {
  let thrown
  assert.throws(run, error => {
    thrown = error
    return error instanceof BackhopError && error.code === code
  })
  return thrown
}

/** Each text is in the error's. */
function tells (error, texts = []) {
  for (const text of [texts].flat()) assert.ok(error.message.includes(inWords(text)), error.message)
}

// --- Inputs --------------------------------------------------------------------------------------

const camel = name => name.replace(/[-_](\w)/g, (_, letter) => letter.toUpperCase())

function delivery ({ delivery: given = {} }) {
  only(given, 'exchange routing_key properties headers')
  const properties = Object.entries(given.properties ?? {})
  return new Delivery({
    exchange: raw(given.exchange ?? 'events'),
    routingKey: raw(given.routing_key ?? 'order.created'),
    properties: Object.fromEntries(properties.map(([name, content]) => [
      camel(name), typeof content === 'number' ? content : raw(content)
    ])),
    headers: given.headers && [...entries(given.headers)]
  })
}

function policy ({ policy: given = {} }) {
  only(given, 'kind initial_ms factor max_ms steps_ms jitter ratio max_attempts max_age_ms max_retry_after_ms ' +
  'max_crashes max_deferrals')
  const options = {}
  for (const key of ['initial_ms', 'max_ms', 'max_age_ms', 'max_retry_after_ms']) {
    if (key in given) options[camel(key.replace('_ms', ''))] = Number(given[key])
  }
  for (const key of ['max_attempts', 'max_crashes', 'max_deferrals']) {
    if (key in given) options[camel(key)] = integer(given[key])
  }
  if ('kind' in given) options.kind = given.kind
  const ignores = given.kind === 'linear' || given.kind === 'fixed' // and the class refuses it
  if ('factor' in given && !ignores) options.factor = fraction(given.factor)
  if ('steps_ms' in given) {
    options.steps = given.steps_ms.flatMap(steps)
    options.kind ??= 'exponential'
  }
  assert.ok(!('ratio' in given) || given.jitter === 'spread')
  if ('jitter' in given) options.jitter = 'ratio' in given ? fraction(given.ratio) : given.jitter
  return new Policy(options)
}

function topology ({ topology: given = {} }, builtFor) {
  only(given, 'queue strategy queue_type namespace series stripes work_queue_type work_queue_arguments policies')
  const options = { queue: raw(given.queue ?? 'orders'), policy: builtFor }
  for (const key of ['strategy', 'queue_type', 'series', 'stripes']) if (key in given) options[camel(key)] = given[key]
  if ('namespace' in given) options.namespace = raw(given.namespace)
  if ('work_queue_type' in given) options.workQueue = given.work_queue_type
  if ('work_queue_arguments' in given) {
    options.workQueueArguments = new Map(given.work_queue_arguments.map(([name, content]) => [
      raw(name), typeof content === 'number' ? content : raw(content)
    ]))
  }
  if ('policies' in given) options.policies = given.policies.map(further => policy({ policy: further }))
  return new Topology(options)
}

function history ({ legacy_counter: legacyCounter, wait_queues: waitQueues = [] }, delivery, topology) {
  return new History(delivery, {
    topology, legacyCounter: legacyCounter && raw(legacyCounter), waitQueues: waitQueues.map(raw)
  })
}

/** Returns the addon's policy of a back-off or of a breaker's pauses. */
function backOff ({ kind, jitter, ...times }) {
  only(times, 'initial_ms max_ms max_retry_after_ms')
  const [, policy] = c.bh_policy_new()
  const { initial_ms: initialMs = 1000, max_ms: maxMs = c.bh_policy_defaults()[3] } = times
  const kinds = { fixed: c.BH_KIND_FIXED, linear: c.BH_KIND_LINEAR, exponential: c.BH_KIND_EXPONENTIAL }
  const jitters = { none: c.BH_JITTER_NONE, full: c.BH_JITTER_FULL, decorrelated: c.BH_JITTER_DECORRELATED }
  const status = policy.set(kinds[kind], 0, initialMs, 0, 2, maxMs, Buffer.alloc(0), jitters[jitter], 0, 10, 0,
    times.max_retry_after_ms ?? 86400000, 5, 100)
  if (status) throw new Error(policy.error())
  return policy
}

module.exports = { ...notation, backOff, camel, delivery, history, policy, refused, tells, topology }
