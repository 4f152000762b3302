'use strict'
// The broker of the live tests, which AMQP_URL names, as tests/broker/broker sets it; and how to
// wait for something, and how long at most.

const { execFileSync } = require('node:child_process')
const { randomUUID } = require('node:crypto')
const { readFileSync } = require('node:fs')
const path = require('node:path')
const test = require('node:test')
const { setTimeout: sleep } = require('node:timers/promises')

const amqplib = require('amqplib')

const { Policy, Topology } = require('backhop')

const { isLeftOut } = require('../profile')

const URL_OF_BROKER = process.env.AMQP_URL
const CTL = process.env.BACKHOP_BROKER_CTL
const VERSION = Number(process.env.BACKHOP_BROKER_VERSION ?? 4.3)
const PATIENCE = 120_000 // that nothing takes which ends well
const LIMIT = 300_000
const LEAVING = 10_000
const DELETE = { ticket: 0, ifUnused: false, ifEmpty: false, nowait: true }
const NEEDS_BROKER = URL_OF_BROKER ? {} : { skip: 'AMQP_URL is not set: tests/broker/broker run 4.3 -- ...' }
const NEEDS_CTL = CTL ? {} : { skip: 'BACKHOP_BROKER_CTL is not set' }
const QUICK = new Policy({ initial: 100, jitter: 'none', max: 200, maxAttempts: 3, maxRetryAfter: 0 })

/**
 * Returns the URL as amqplib takes it. RabbitMQ 4.1 and newer refuse its default before 0.10.7,
 * frames of 4 KiB.
 */
const amqplibUrl = url => `${url}${url.includes('?') ? '&' : '?'}frameMax=131072`

// RabbitMQ 4.1 and newer refuse the frame size that amqplib before 0.10.7 has by default.
const AMQPLIB = path.dirname(require.resolve('amqplib'))
const MANIFEST = path.join(AMQPLIB, 'package.json')
const [MAJOR, MINOR, PATCH] = JSON.parse(readFileSync(MANIFEST, 'utf8')).version.split('.').map(Number)
const CONNECTS = VERSION < 4.1 || MAJOR > 0 || MINOR > 10 || (MINOR === 10 && PATCH >= 7)

const { ExchangeDelete, QueueDelete } = require(path.join(AMQPLIB, 'lib/defs')) // amqplib 2 does not export them
let leaving

const WANTED = new RegExp(process.env.BACKHOP_SUITES ?? '')

/**
 * Does as node:test's, if the profile has it (../profile.js), and if BACKHOP_SUITES, a regular
 * expression, is not set or fits the name. A failed test may leave connections open; they keep the
 * process no longer than LEAVING once all is over.
 */
function describe (name, needs, body) {
  if (!WANTED.test(name) || isLeftOut(needs)) return
  test.describe(name, needs, () => {
    test.before(() => clearTimeout(leaving))
    test.after(() => { leaving = setTimeout(() => process.exit(1), LEAVING).unref() })
    body()
  })
}

/**
 * Does as node:test's with a limit, if the profile has the test (../profile.js). A suite's limit
 * would be one for all of its tests together.
 */
function it (name, ...rest) {
  const run = rest.pop()
  const [options = {}] = rest
  if (!isLeftOut(options)) test.it(name, { timeout: LIMIT, ...options }, run)
}

/**
 * Waits for a condition, and resolves to it. what: a text, or a function that returns it if the
 * wait fails.
 */
async function until (isSo, what = String(isSo)) {
  const end = Date.now() + PATIENCE
  for (;;) {
    const is = await isSo()
    if (is) return is
    if (Date.now() > end) throw new Error(`it did not come true: ${typeof what === 'function' ? what() : what}`)
    await sleep(10)
  }
}

/** Declares, publishes and looks, by amqplib. */
class Broker {
  namespace = `test-${randomUUID()}`
  #url
  #connection
  #queues = []

  static async connect (url = URL_OF_BROKER) {
    const broker = new Broker()
    broker.#url = url
    await broker.#open()
    return broker
  }

  async #open () {
    this.#connection = await amqplib.connect(amqplibUrl(this.#url))
    this.#connection.on('error', () => {})
    await this.#channel()
  }

  async #channel () {
    this.channel = await this.#connection.createConfirmChannel()
    this.channel.on('error', () => {})
  }

  /** Connects again if the broker closed the channel, or the connection. */
  async #again () {
    await this.#channel().catch(() => this.reconnect())
  }

  /** Again, after the broker was away. */
  async reconnect () {
    await until(() => this.#open().then(() => true, () => false), 'the broker is there')
  }

  /** A new work queue. */
  async queue (args = { 'x-queue-type': 'classic' }) {
    const name = `test-${randomUUID()}`
    await this.channel.assertQueue(name, { arguments: args })
    this.#queues.push(name, `${name}.parked`)
    return name
  }

  async publish (body, routingKey, { exchange = '', ...options } = {}) {
    this.channel.publish(exchange, routingKey, Buffer.from(body), options)
    await this.channel.waitForConfirms()
  }

  /**
   * Publishes until the broker takes it. It refuses some while it makes a quorum queue of the name
   * of one that was just deleted.
   */
  async insist (body, queue) {
    await until(() => this.publish(body, queue).then(() => true, () => false), 'the broker takes the message')
  }

  /** Returns whether a queue exists. */
  async has (queue) {
    return this.#finds(() => this.channel.checkQueue(queue))
  }

  /** Returns whether an exchange exists. */
  async hasExchange (exchange) {
    return this.#finds(() => this.channel.checkExchange(exchange))
  }

  async #finds (check) {
    try {
      await check()
      return true
    } catch {
      await this.#again()
      return false
    }
  }

  /** Counts the messages that are ready; 0 if the queue is missing. */
  async count (queue) {
    try {
      return (await this.channel.checkQueue(queue)).messageCount
    } catch {
      await this.#again()
      return 0
    }
  }

  /**
   * Waits until a queue has so many ready messages: an acknowledgement may be behind the question.
   */
  async holds (queue, count) {
    await until(async () => await this.count(queue) === count, `${queue} has ${count} messages`)
  }

  /** Takes so many messages out of a queue, once they are there. */
  async take (queue, count) {
    const taken = []
    while (taken.length < count) {
      await until(() => this.count(queue), `a message is in ${queue}`)
      const message = await this.channel.get(queue, { noAck: true })
      if (message) taken.push(message)
    }
    return taken
  }

  /**
   * Takes a queue's messages, as soon as it can: a quorum queue has no leader yet when its broker
   * has just started.
   */
  async consume (queue, take) {
    const each = message => {
      if (!message) return
      take(message)
      this.channel.ack(message)
    }
    await until(() => this.channel.consume(queue, each).then(() => true, () => this.#again()), `${queue} is there`)
  }

  async bodies (queue, count) {
    return (await this.take(queue, count)).map(({ content }) => content.toString())
  }

  /** Takes all messages until the queue reports none: then no more is on its way. */
  async all (queue) {
    const bodies = []
    for (let message; (message = await this.channel.get(queue, { noAck: true }));) {
      bodies.push(message.content.toString())
    }
    return bodies
  }

  /** The exchange that a test publishes to, with queues that are bound to it. */
  async events (type, queues, key = '') {
    const exchange = `${this.namespace}.events`
    await this.channel.assertExchange(exchange, type)
    for (const queue of queues) await this.channel.bindQueue(queue, exchange, key)
    return exchange
  }

  async delete ({ what, name }) {
    if (what === 'queue') await this.channel.deleteQueue(name)
    else if (what === 'exchange') await this.channel.deleteExchange(name)
  }

  /**
   * Deletes the declared exchanges and queues. The broker answers the last one alone: answers to
   * all took longer than most tests.
   */
  async close () {
    const { channel, namespace } = this
    for (const queue of this.#queues) channel.sendImmediately(QueueDelete, { ...DELETE, queue })
    for (const policy of [QUICK, new Policy()]) {
      const { declarations } = new Topology({ queue: 'any', policy, namespace })
      for (const { what, name } of declarations.filter(({ name }) => name.startsWith(namespace))) {
        if (what === 'queue') channel.sendImmediately(QueueDelete, { ...DELETE, queue: name })
        else if (what === 'exchange') channel.sendImmediately(ExchangeDelete, { ...DELETE, exchange: name })
      }
    }
    await channel.deleteExchange(`${namespace}.events`)
    await this.#connection.close()
  }
}

function control (...args) {
  return execFileSync(CTL, args, { encoding: 'utf8', timeout: PATIENCE })
}

/**
 * Imports definitions, as an administrator does by `rabbitmqctl import_definitions`. That wants a
 * file that the broker can see.
 */
function importing (definitions) {
  const text = Buffer.from(definitions).toString('base64')
  control('eval', `rabbit_definitions:import_raw(base64:decode(<<"${text}">>)).`)
}

/**
 * Resolves to what `use` resolves to, with the URL of a new virtual host. The examples have fixed
 * names of queues, so each run has its own host.
 */
async function withVhost (use) {
  const name = `test-${randomUUID()}`
  const permission = { user: 'guest', vhost: name, configure: '.*', write: '.*', read: '.*' }
  importing(JSON.stringify({ vhosts: [{ name }], permissions: [permission] }))
  try {
    return await use(`${URL_OF_BROKER.replace(/\/$/, '')}/${name}`)
  } finally {
    control('eval', `rabbit_vhost:delete(<<"${name}">>, <<"a test">>).`)
  }
}

/** Returns the URL of a new user, who may configure nothing. */
function stranger (name) {
  const permission = { user: name, vhost: '/', configure: '^$', write: '.*', read: '.*' }
  importing(JSON.stringify({ users: [{ name, password: 'secret', tags: '' }], permissions: [permission] }))
  return URL_OF_BROKER.replace('guest:guest', `${name}:secret`)
}

module.exports = {
  Broker, CONNECTS, LIMIT, NEEDS_BROKER, NEEDS_CTL, PATIENCE, QUICK, URL: URL_OF_BROKER, VERSION, amqplibUrl, control,
  describe, importing,
  it, stranger, until, withVhost
}
