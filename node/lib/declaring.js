'use strict'
// Declares or verifies a topology: the core decides the steps and interprets refusals, a client
// executes the steps.
//
// A step is { declaration, passive, unbind }. passive checks whether the exchange or queue exists,
// unbind removes a binding. A client's channel resolves to undefined. If the broker refuses, it
// closes the channel or the connection, and the channel resolves to the refusal { code, text }.

const c = require('./core')
const { numbers } = require('./checks')
const { check, errorOf, made } = require('./errors')
const { NATIVE } = require('./native')
const { declarationOf } = require('./topology')

const REFUSALS = numbers('BH_REFUSAL_')
const MODES = numbers('BH_MODE_')

const declared = new WeakMap() // by connection

/**
 * Returns the core's record of the declarations on a connection. It saves steps for further work
 * queues.
 */
function declaredOn (connection) {
  let known = declared.get(connection)
  if (!known) {
    known = made(c.bh_declared_new())
    declared.set(connection, known)
  }
  return known
}

/** Declares the topology of a retrier, as its mode says. */
class Declaring {
  /** True if this retrier declared the topology, and may declare it again. */
  isOwn = false
  #topology
  #mode

  constructor (topology, mode) {
    this.#topology = topology
    this.#mode = mode
    this.makesRungs = Boolean(c.bh_mode_makes_rungs(MODES[mode])) // on demand, for a copy
  }

  /** The call that error texts suggest if something is missing; "" if it was called. */
  get suggestion () {
    return this.isOwn ? '' : 'declare()'
  }

  async begin (connection) {
    await this.#declare(connection, this.#mode)
    this.isOwn ||= this.#mode === 'create'
  }

  async verify (connection) {
    await this.#declare(connection, 'verify')
  }

  /**
   * Looks for the return exchange. If this retrier declared the topology, binds the work queue to
   * the exchange again, or declares the topology again if the exchange is missing. With mode none
   * it does nothing.
   *
   * Rejects if the exchange is missing, also if it is declared again.
   */
  async look (connection) {
    await this.#execute(connection, native => native.look(this.#lookMode))
  }

  /**
   * Returns whether retries come back after a look, which rejected with `error` or did not reject.
   */
  returnsAfter (error) {
    return Boolean(c.bh_replay_after_look(this.#lookMode, error?.status ?? 0))
  }

  /** Returns the text of the event `replayed` after retries came back by themselves. */
  returnText () {
    return String(c.bh_replay_unroutable_text(this.#lookMode))
  }

  get #lookMode () {
    return MODES[this.#mode === 'create' && !this.isOwn ? 'verify' : this.#mode]
  }

  /** Declares the topology again. */
  async restore (connection) {
    this.forget(connection)
    await this.#declare(connection, 'create')
  }

  /** Declares a rung, by its delay in milliseconds. */
  async makeRung (connection, rung) {
    await this.#declare(connection, 'create', rung)
  }

  /** Records that something on this connection may be missing. */
  forget (connection) {
    declaredOn(connection).clear()
  }

  /**
   * Returns an Error that explains a refusal after all was declared, or undefined.
   *
   * refusal: a name of REFUSALS; code, text, of: see bh_declaring_explain
   */
  diagnosis (refusal, { code = 0, text = '', of = '' }) {
    const native = made(c.bh_declaring_new(this.#topology[NATIVE], c.BH_DIALECT_NODE))
    native.explain(REFUSALS[refusal], code, text, of)
    return native.status() ? errorOf(native.status(), native.error()) : undefined
  }

  #declare (connection, mode, rung = 0) {
    return this.#execute(connection, native => native.begin(MODES[mode], rung))
  }

  /**
   * Executes the core's steps, which `begin` begins. Each refusal closes the channel, so the next
   * step opens another.
   */
  async #execute (connection, begin) {
    const { product, version } = connection.serverProperties ?? {}
    this.#topology.checkBroker(String(product ?? ''), String(version ?? ''))
    const native = made(c.bh_declaring_new(this.#topology[NATIVE], c.BH_DIALECT_NODE))
    check(native.set_makes_rungs(Number(this.makesRungs)))
    check(native.set_declared(declaredOn(connection)))
    check(begin(native))
    let channel
    try {
      for (let step; (step = native.next())[0] !== c.BH_DECLARE_NONE;) {
        channel ??= await connection.openChannel()
        const refusal = await channel.declare(stepOf(step))
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

/** Converts a step of the core: its fields as in bh_declaration. */
function stepOf (fields) {
  return { passive: Boolean(fields[7]), unbind: Boolean(fields[8]), declaration: declarationOf(fields) }
}

module.exports = { Declaring, MODES, stepOf }
