'use strict'
// Declares or verifies a topology: the core tells the steps, and what the broker's refusals mean; a client takes them.
//
// A step is { declaration, passive }; passive: only to look whether it is there. What comes back is undefined, or the
// refusal { code, text } with which the broker closed the channel, so that the next step needs a new one; or the
// connection.

const c = require('./addon')
const { check, errorOf, made } = require('./errors')
const { range } = require('./history')
const NATIVE = require('./native')
const { namesOf } = require('./options')
const { TYPES } = require('./values')

const MODES = { create: c.BH_MODE_CREATE, verify: c.BH_MODE_VERIFY, none: c.BH_MODE_NONE }
const WHATS = namesOf({ exchange: c.BH_DECLARE_EXCHANGE, queue: c.BH_DECLARE_QUEUE, binding: c.BH_DECLARE_BINDING })

const declared = new WeakMap()

/** What is known to be there, of all that was declared on a line: a further work queue costs its own part alone. */
function declaredOn (line) {
  let known = declared.get(line)
  if (!known) {
    known = made(c.bh_declared_new())
    declared.set(line, known)
  }
  return known
}

/** Of a topology, for retriers of a mode. */
class Declaring {
  /** Whether the retrier declared it, and may declare it again. */
  restores = false
  /** Whether it is there, as far as is known. */
  isThere = true
  #topology
  #mode

  constructor (topology, mode) {
    this.#topology = topology
    this.#mode = mode
    this.makesRungs = Boolean(c.bh_mode_makes_rungs(MODES[mode])) // those on demand, where a message needs one
  }

  /** What may have been forgotten, where it turns out not to be there. */
  get forgotten () {
    return this.restores ? '' : 'declare()'
  }

  /** At the start. */
  async begin (line) {
    await this.#take(line, this.#mode)
    this.isThere = true
    this.restores ||= this.#mode === 'create'
  }

  async verify (line) {
    await this.#take(line, 'verify')
  }

  /** What was lost. */
  async restore (line) {
    await this.#take(line, 'create')
    this.isThere = true
  }

  /** A rung, by its delay in milliseconds. */
  async makeRung (line, rung) {
    await this.#take(line, 'create', rung)
  }

  /** Something of it may be gone, and of what else was declared on the line. */
  doubt (line) {
    this.isThere = !this.restores
    declaredOn(line).forget()
  }

  /**
   * What is wrong with how the topology is used, once all was declared, in the core's words; undefined for nothing.
   * `asks` is the core's, as 'refuse_consumer', and called with the arguments.
   */
  diagnosis (asks, ...args) {
    const native = made(c.bh_declaring_new(this.#topology[NATIVE], c.BH_DIALECT_NODE))
    native[asks](...args)
    return native.status() ? errorOf(native.status(), native.error()) : undefined
  }

  /** On channels of the line's, as each refusal closes one. */
  async #take (line, mode, rung = 0) {
    const { product, version } = line.serverProperties ?? {}
    this.#topology.checkBroker(String(product ?? ''), String(version ?? ''))
    const native = made(c.bh_declaring_new(this.#topology[NATIVE], c.BH_DIALECT_NODE))
    check(native.set_makes_rungs(Number(this.makesRungs)))
    check(native.set_declared(declaredOn(line)))
    check(native.begin(MODES[mode], rung))
    let channel
    try {
      while (native.next()) {
        channel ??= await line.openChannel()
        const refusal = await channel.take(stepOf(native))
        if (!refusal) continue
        native.refuse(refusal.code, refusal.text)
        channel = undefined
      }
    } finally {
      await channel?.close()
    }
    if (native.status()) throw errorOf(native.status(), native.error())
  }
}

function stepOf (native) {
  const isInt = i => native.argument_type(i) === TYPES.int64
  return {
    passive: Boolean(native.passive()),
    declaration: {
      what: WHATS.get(native.what()),
      name: native.name(),
      type: native.type(),
      source: native.source(),
      routingKey: native.routing_key(),
      arguments: Object.fromEntries(range(native.argument_count()).map(i => [
        native.argument_name(i), isInt(i) ? native.argument_int(i) : native.argument_string(i)
      ]))
    }
  }
}

module.exports = { Declaring, MODES, stepOf }
