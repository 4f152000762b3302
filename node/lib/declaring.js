'use strict'
// How a topology is declared or verified: steps for a client to take, and what the broker's refusals mean.
//
// A step is { declaration, passive }; passive: only to look whether it is there. What comes back is undefined, or the
// refusal { code, text } with which the broker closed the channel, so that the next step needs a new one; or the
// connection.

const { AccessError, BrokerError, ChannelClosedError, ClashError, MissingError } = require('./errors')

const ACCESS_REFUSED = 403
const NOT_FOUND = 404
const PRECONDITION_FAILED = 406
const DIFFERENCE = /inequivalent arg '(?<name>[^']*)'.*: received (?<needed>.*) but current is (?<is>.*)/s
const OWN_SUFFIXES = ['parked', 'wait', 'retry', 'return']

/** Refuses a broker that cannot serve the strategy. */
function checkBroker (topology, serverProperties) {
  const { product, version } = serverProperties ?? {}
  topology.checkBroker(String(product ?? ''), String(version ?? ''))
}

/**
 * Declares; by default all that is not for demand alone.
 *
 * A rung on demand, which comes last, is taken to be there where the user may not declare it: an administrator may have
 * imported it, and what is published to one that is not there is noticed.
 */
function * creating (topology, declarations = topology.declarations.filter(each => !each.onDemand)) {
  for (const declaration of declarations) {
    const refusal = yield { declaration, passive: false }
    if (declaration.onDemand && refusal?.code === ACCESS_REFUSED) return
    if (refusal) throw explained(topology, declaration, refusal)
  }
}

/**
 * Makes nothing, and throws all that is missing or different.
 *
 * Declaring what exists changes nothing, and compares its arguments. Without the permission to declare, that it exists
 * is all that can be known; and nobody makes the rungs on demand, so that they must not be missing. AMQP cannot look at
 * bindings.
 */
function * verifying (topology) {
  const different = []
  const missing = []
  const rungs = new Set() // on demand, and missing
  let mayDeclare = true
  const declared = topology.declarations.filter(each => each.what !== 'binding')
  for (const declaration of declared) {
    let refusal = yield { declaration, passive: true }
    if (refusal?.code === NOT_FOUND) {
      if (declaration.onDemand) rungs.add(declaration.wait)
      else missing.push(`${declaration.what} "${declaration.name}"`)
      continue
    }
    if (!refusal) {
      refusal = yield { declaration, passive: false }
      mayDeclare &&= refusal?.code !== ACCESS_REFUSED
    }
    if (refusal?.code === PRECONDITION_FAILED) different.push(clash(topology, declaration, refusal))
    else if (refusal && refusal.code !== ACCESS_REFUSED) throw explained(topology, declaration, refusal)
  }
  if (!declared.some(each => each.what === 'queue' && each.name === topology.queue)) {
    const refusal = yield { declaration: { what: 'queue', name: topology.queue, type: '' }, passive: true }
    if (refusal?.code === NOT_FOUND) missing.push(`the work queue "${topology.queue}"`)
  }
  let advice = 'declare() makes what is missing, or import topology.definitions()'
  if (rungs.size && !mayDeclare) {
    if (!missing.length) advice = 'import topology.definitions(), or set maxRetryAfter: 0, which needs none'
    missing.push(`${rungs.size} rung${rungs.size > 1 ? 's' : ''} that a handler's RetryAfter can need`)
  }
  if (!different.length && !missing.length) return
  const found = missing.length ? [...different, `missing: ${missing.join(', ')}`] : different
  const text = `${found.join('; ')}; ${advice}`
  throw different.length ? new ClashError(text) : new MissingError(text)
}

/** Takes the steps on channels of the connection's, as each refusal closes one. */
async function takeAll (line, steps) {
  let channel
  let refusal
  try {
    for (;;) {
      const { value: step, done } = steps.next(refusal)
      if (done) return
      channel ??= await line.openChannel()
      refusal = await channel.take(step)
      if (refusal) channel = undefined
    }
  } finally {
    await channel?.close()
  }
}

/** What of a topology is known to be there. */
class Declared {
  /** Whether the retrier declared it, and may declare it again. */
  restores = false
  isThere = true

  /** What to do where the broker does not know where a copy goes, and nobody here may declare it. */
  hint (reason) {
    if (this.restores || !/^NOT_FOUND|no exchange/.test(reason)) return ''
    return '; the topology is not there: await declare() once at the start, or import topology.definitions()'
  }

  /** Something of it may be gone. */
  doubt () {
    this.isThere = !this.restores
  }
}

function explained (topology, declaration, refusal) {
  const { code, text } = refusal
  const { what, name, type } = declaration
  if (type === 'x-delayed-message' && text.includes('exchange type')) {
    return new BrokerError(
      'the broker does not know the exchange type x-delayed-message: enable the plugin ' +
      'rabbitmq_delayed_message_exchange, or use the strategy ladder, which needs none'
    )
  }
  if (code === PRECONDITION_FAILED) return new ClashError(clash(topology, declaration, refusal))
  if (code === NOT_FOUND && what === 'binding' && name === topology.queue) {
    return new MissingError(
      `the work queue "${topology.queue}" does not exist: declare it first, or have it declared with ` +
      'workQueue: "quorum"'
    )
  }
  if (code === NOT_FOUND) return new MissingError(`declaring "${name}": ${text}`)
  if (code === ACCESS_REFUSED) {
    return new AccessError(
      `declaring "${name}": ${text}; grant the permission, or import topology.definitions() and use verify()`
    )
  }
  return new ChannelClosedError(`declaring "${name}": the broker closed the channel: ${code} ${text}`)
}

/** RabbitMQ writes a value as 'V', as the value 'V' of type 'T', or as none. It cuts the text to 255 bytes. */
function clash (topology, declaration, refusal) {
  const found = DIFFERENCE.exec(refusal.text)?.groups
  const value = text => text.replace(/^[^']*'([^']*)'.*$/s, '$1')
  const difference = found
    ? `exists with ${found.name} = ${value(found.is)}, and ${value(found.needed)} is needed`
    : `exists with other arguments (${refusal.text})`
  const { queue } = topology
  const own = [queue, ...OWN_SUFFIXES.map(suffix => `${queue}.${suffix}`)]
  const choice = own.includes(declaration.name) ? 'name for the work queue' : 'namespace'
  return `${declaration.what} "${declaration.name}" ${difference} (once it is empty and unused, delete it and ` +
    `declare again, or choose another ${choice})`
}

module.exports = { Declared, checkBroker, creating, takeAll, verifying }
