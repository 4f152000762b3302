'use strict'
// What the retriers over each client share: what they decide, what they tell, how they wait.

const { Decider } = require('./decider')
const { Declared, checkBroker, creating, takeAll, verifying } = require('./declaring')
const { ArgumentError, WaitTimeoutError } = require('./errors')
const { debug, warn } = require('./log')
const { only } = require('./options')
const { OK, textOf } = require('./outcomes')
const { Copy, Publisher, tellRefused } = require('./publisher')
const { duration, milliseconds } = require('./time')
const { Topology } = require('./topology')
const { Slices } = require('./turns')

const TOPOLOGY = ['queue', 'policy', 'strategy', 'queueType', 'namespace', 'series', 'workQueue', 'workQueueArguments']
const DECIDER = ['never', 'legacyCounter', 'waitQueues', 'clock', 'random']
const OPTIONS = [...TOPOLOGY, ...DECIDER, 'confirmTimeout']
const ORIGINAL = Symbol('original') // of a message: how its client settles it, and makes its copy
const SETTLED = Symbol('settled') // of a client's message; a WeakSet of thousands takes 20 ms as it grows
const SETTLES = { ack: 'ack', drop: 'ack', reject: 'reject', return: 'return' } // by the plan's action

class BaseRetrier {
  #topology
  #decider
  #declared
  #confirmTimeout
  #publishers = new Map() // by line
  #handling = 0
  #arrived = new Slices() // a client gives all that it has read at once
  #ended = new Slices() // what many handlers wait for may come at once
  #idle = []

  constructor (options) {
    only(options, OPTIONS, 'a Retrier')
    const pick = names => Object.fromEntries(names.filter(name => name in options).map(name => [name, options[name]]))
    this.#topology = new Topology(pick(TOPOLOGY))
    this.#decider = new Decider(this.#topology, pick(DECIDER))
    this.#declared = new Declared(this.#topology)
    this.#confirmTimeout = milliseconds(options.confirmTimeout ?? '30s')
    if (this.#confirmTimeout <= 0) {
      throw new ArgumentError(`confirmTimeout is ${options.confirmTimeout}: give milliseconds, or a string as "30s"`)
    }
  }

  static async declare (channel, options) {
    const retrier = new this(channel, options)
    await retrier.declare()
    return retrier
  }

  get topology () {
    return this.#topology
  }

  get policy () {
    return this.#topology.policy
  }

  // Declaring

  async declare (options = {}) {
    const { verify = false } = only(options, ['verify'], 'declare')
    const line = await this._line()
    checkBroker(this.#topology, line.serverProperties)
    await takeAll(line, verify ? verifying(this.#topology) : creating(this.#topology))
    this.#declared.restores ||= !verify
  }

  verify () {
    return this.declare({ verify: true })
  }

  // Handling

  /** What the client's delivery tells, for `read`. */
  _read (line, delivery) {
    this.#decider.frameMax = line.frameMax
    return this.#decider.read(delivery)
  }

  /** Reads a message, hands it to the handler, and settles it; never rejects. */
  _handle (read, handle) {
    this.#handling++
    return new Promise(resolve => {
      this.#arrived.add(() => this.#handOne(read, handle, resolve))
    })
  }

  #handOne (read, handle, resolve) {
    const over = () => {
      this.#handling--
      this.#settled()
      resolve()
    }
    let message
    try {
      message = read()
      const poison = this.#decider.guard(message.history)
      if (poison) {
        warn(`${message}: its consumers were lost ${message.history.crashes} times: parking it`, 'BACKHOP_PARKED')
        this.#carryOut(message, poison)
        over()
        return
      }
    } catch (error) {
      tellRefused(undefined, error)
      over()
      return
    }
    let result
    let isLater
    try {
      result = handle(message)
      isLater = typeof result?.then === 'function'
    } catch (thrown) {
      this._fail(message, thrown)
      over()
      return
    }
    if (isLater) {
      this.#settleLater(message, result).then(over)
    } else {
      this.settle(message)
      over()
    }
  }

  /** A handler that ends at once is settled before the next message is read. */
  async #settleLater (message, result) {
    let settle = () => this.settle(message)
    try {
      await result
    } catch (thrown) {
      settle = () => this._fail(message, thrown)
    }
    if (!this.#arrived.hasTime) await new Promise(resolve => this.#ended.add(resolve))
    settle()
  }

  settle (message, error) {
    if (error !== undefined && error !== null) this._fail(message, error)
    else this.#decide(message, () => OK)
  }

  /** As `settle` for a handler that threw, whatever it was. */
  _fail (message, thrown) {
    this.#decide(message, decider => decider.result(thrown), plan => tell(plan, message, thrown))
  }

  #decide (message, result, told) {
    const { line, incoming, isHere } = message[ORIGINAL]
    if (incoming[SETTLED]) {
      debug('a message is settled already, and stays as it is')
      return
    }
    if (!isHere) {
      debug('a message is not settled: its channel is closed, and the broker delivers it again')
      return
    }
    const decider = this.#decider
    try {
      decider.frameMax = line.frameMax // another connection may have been served meanwhile
      const plan = decider.plan(message.history, result(decider))
      this.#carryOut(message, plan)
      told?.(plan)
    } catch (error) {
      tellRefused(message.history, error)
    }
  }

  #carryOut (message, plan) {
    const original = message[ORIGINAL]
    if (plan.publishes) this.#publisher(original.line).publish(this.#copy(message, plan))
    else original.settle(SETTLES[plan.action])
    original.incoming[SETTLED] = true
  }

  #copy (message, plan, replayed) {
    const original = message[ORIGINAL]
    const { history, content } = message
    return new Copy({ plan, content, original, replayed, ...original.copy(plan, history) })
  }

  #publisher (line) {
    let publisher = this.#publishers.get(line)
    if (!publisher) {
      for (const old of this.#publishers.keys()) {
        if (!old.isOpen) this.#publishers.delete(old)
      }
      publisher = new Publisher(line, this.#topology, this.#declared, this.#confirmTimeout)
      this.#publishers.set(line, publisher)
    }
    return publisher
  }

  // Waiting

  get pending () {
    return [...this.#publishers.values()].reduce((count, publisher) => count + publisher.pending, 0)
  }

  async drain (options = {}) {
    const { timeout } = only(options, ['timeout'], 'drain')
    const limit = timeout === undefined ? undefined : milliseconds(timeout)
    let timer
    const isLate = limit !== undefined && new Promise(resolve => {
      timer = setTimeout(resolve, Math.min(limit, 2 ** 31 - 1), true)
    })
    const drained = this.#drained()
    try {
      if (!await Promise.race(isLate ? [drained, isLate] : [drained])) return
    } finally {
      clearTimeout(timer)
    }
    throw new WaitTimeoutError(
      `${this.#handling} handlers still run, and ${this.pending} copies are not confirmed; the broker delivers their ` +
      'originals again'
    )
  }

  async #drained () {
    while (this.#handling || this.pending) {
      if (this.#handling) await new Promise(resolve => this.#idle.push(resolve))
      for (const publisher of this.#publishers.values()) await publisher.idle()
    }
    await this._flush()
  }

  #settled () {
    if (this.#handling) return
    for (const resolve of this.#idle.splice(0)) resolve()
  }

  // Replaying

  async replay (options = {}) {
    const { limit = Infinity } = only(options, ['limit'], 'replay')
    const line = await this._line()
    const channel = await line.openChannel()
    const queue = this.#topology.parkedQueue
    let count = 0
    let most = limit
    try {
      for (; count < most; count++) {
        const got = await channel.get(queue)
        if (!got) break
        if (count === 0) most = Math.min(limit, got.left + 1) // a passive declare of a busy quorum queue tells 0
        const message = this._parked(got, line)
        const plan = this.#decider.replay(message.history)
        await new Promise((resolve, reject) => {
          const replayed = error => error ? reject(error) : resolve()
          this.#publisher(line).publish(this.#copy(message, plan, replayed))
        })
      }
    } finally {
      await channel.close()
    }
    return count
  }
}

/** Tells what becomes of a message that failed. */
function tell (plan, message, thrown) {
  if (plan.action === 'park') {
    warn(`${message} failed, and is parked (${plan.reason}): ${textOf(thrown)}`, 'BACKHOP_PARKED')
  } else if (debug.enabled) {
    debug('%s failed%s: %s', message, plan.delay ? `, again in ${duration(plan.delay)}` : '', textOf(thrown))
  }
}

module.exports = { BaseRetrier, ORIGINAL }
