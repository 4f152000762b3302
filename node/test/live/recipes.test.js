'use strict'
// The recipes of the guide, as they stand there.

const assert = require('node:assert/strict')
const { existsSync, readFileSync } = require('node:fs')
const { spawn } = require('node:child_process')
const { once } = require('node:events')
const path = require('node:path')
const { afterEach, beforeEach } = require('node:test')

const manager = require('amqp-connection-manager')
const amqplib = require('amqplib')

const { buildInfo } = require('backhop')
const { Retrier } = require('backhop/amqplib')

const { Broker, CONNECTS, NEEDS_BROKER, QUICK, URL, amqplibUrl, describe, it, until } = require('./broker')

const manifest = path.join(path.dirname(require.resolve('amqplib')), 'package.json')
const NEEDS_RECOVERY = parseInt(JSON.parse(readFileSync(manifest, 'utf8')).version) < 2
  ? { skip: 'an amqplib before 2' }
  : {}

const RECIPES = path.join(__dirname, '..', '..', 'examples', 'recipes')
const TOOLS = process.env.BACKHOP_TOOLS // where NestJS and TypeScript are installed
const NEEDS_NEST = parseInt(process.versions.node) < 20
  ? { skip: 'NestJS 11 needs Node 20' }
  : TOOLS ? {} : { skip: 'BACKHOP_TOOLS is not set: node/tools/test sets it' }
const NEEDS_GOLEVELUP = { ...NEEDS_NEST, real: true } // it consumes from amq.rabbitmq.reply-to
const NEEDS_CLIENT = CONNECTS ? {} : { skip: 'an amqplib before 0.10.7, whose default this RabbitMQ refuses' }

/** Starts a recipe. Returns its process, its output so far, and a promise of its end. */
function start (name, env) {
  const file = path.join(RECIPES, name)
  const args = existsSync(`${file}.ts`) ? ['-r', path.join(__dirname, 'typescript.js'), `${file}.ts`] : [`${file}.js`]
  const program = spawn(process.execPath, args, {
    env: { ...process.env, NODE_PATH: TOOLS, ...env }, stdio: ['ignore', 'pipe', 'pipe']
  })
  const started = { program, output: '', ended: once(program, 'exit') }
  for (const stream of [program.stdout, program.stderr]) stream.on('data', chunk => { started.output += chunk })
  return started
}

describe('a recipe', { ...NEEDS_BROKER, long: true }, () => {
  let broker
  let queue
  let options
  let seen
  let close

  beforeEach(async () => {
    broker = await Broker.connect()
    queue = await broker.queue()
    options = { queue, policy: QUICK, namespace: broker.namespace }
    seen = []
  })

  afterEach(async () => {
    await close()
    await broker.close()
  })

  /** A message that fails once comes again, even if the connection was cut off before. */
  async function comesAgain (body) {
    await broker.publish(body, queue)
    await until(() => seen.some(([of, attempt]) => of === body && attempt === 2), `${body} comes again`)
    assert.deepEqual(seen.find(([of]) => of === body), [body, 1])
  }

  async function comesAgainAcross (cut) {
    await comesAgain('first')
    cut()
    await comesAgain('second')
  }

  const handle = message => {
    seen.push([String(message.body), message.attempt])
    if (message.attempt === 1) throw new Error('507 queue is full')
  }

  it('NT7: amqp-connection-manager, across a lost connection, and drained before the close', async () => {
    const connection = manager.connect([amqplibUrl(URL)], { reconnectTimeInSeconds: 0.1 })
    const wrapper = connection.createChannel()
    let retrier
    close = () => connection.close()
    await wrapper.addSetup(async channel => {
      const previous = retrier
      retrier = new Retrier(channel, options)
      await previous?.drain({ timeout: '20s' })
      await retrier.consume(handle, { prefetch: 5 })
    })
    await wrapper.waitForConnect()
    await comesAgainAcross(() => connection.connection.connection.stream.destroy(new Error('cut')))
    seen.length = 0
    for (let i = 0; i < 20; i++) await broker.publish(String(i), queue)
    await until(() => seen.length >= 5, 'some are handled')
    await retrier.drain({ timeout: '20s' })
    const began = seen.length
    await wrapper.close()
    await connection.close()
    assert.equal(seen.length, began)
    close = () => {}
    const again = new Set()
    await broker.consume(queue, ({ content }) => again.add(String(content)))
    const done = new Set(seen.filter(([, attempt]) => attempt > 1).map(([body]) => body))
    await until(() => again.size + done.size === 20, 'each message is there once more: it failed, or was not handled')
    assert.deepEqual([...again].filter(body => done.has(body)), [])
  })

  it('amqplib\'s own recovery', NEEDS_RECOVERY, async () => {
    let current
    const connection = await amqplib.connect(amqplibUrl(URL), {
      recovery: {
        initialDelay: 100,
        setup: async connection => {
          current = connection
          await new Retrier(await connection.createChannel(), options).consume(handle)
        }
      }
    })
    connection.on('error', () => {})
    close = () => connection.close()
    await comesAgainAcross(() => current.connection.stream.destroy(new Error('cut')))
  })

  /** Starts a recipe with a queue that it declares itself. */
  async function begin (name) {
    const fresh = `${queue}.fresh`
    const started = start(name, { QUEUE: fresh })
    close = async () => {
      started.program.kill('SIGKILL')
      for (const each of [fresh, `${fresh}.parked`]) await broker.channel.deleteQueue(each)
    }
    await until(() => broker.has(fresh), 'the program declares its queue')
    return Object.assign(started, { fresh })
  }

  const EVENT = '{"pattern":"purge","data":"page"}'
  for (const [name, body, needs, printed = body] of [
    ['first', 'page', NEEDS_CLIENT],
    ['connection-manager', 'page', NEEDS_CLIENT],
    ['rabbitmq-client', 'page', NEEDS_CLIENT],
    ['nestjs-microservice', EVENT, NEEDS_NEST],
    ['golevelup', '"page"', NEEDS_GOLEVELUP, 'page']
  ]) {
    it(`${name} consumes, retries, and ends at SIGTERM`, needs, async () => {
      const started = await begin(name)
      const { program, ended, fresh } = started
      await broker.publish(body, fresh)
      await until(() => started.output.includes(`attempt 3: ${printed}`) || program.exitCode !== null,
        () => started.output)
      program.kill('SIGTERM')
      const lines = [1, 2, 3].map(attempt => `attempt ${attempt}: ${printed}\n`)
      assert.deepEqual([...await ended, started.output], [0, null, lines.join('')])
      await broker.holds(fresh, 0)
    })
  }

  it('NT12: NestJS parks messages without a handler, and those that are not JSON', NEEDS_NEST, async () => {
    const { fresh } = await begin('nestjs-microservice')
    const refused = ['{"pattern":"unknown","data":1}', 'not json', 'null']
    for (const body of refused) await broker.publish(body, fresh)
    assert.deepEqual((await broker.bodies(`${fresh}.parked`, 3)).sort(), refused.sort())
  })

  it('golevelup parks a message that is not JSON', NEEDS_GOLEVELUP, async () => {
    const { fresh } = await begin('golevelup')
    await broker.publish('not json', fresh)
    assert.deepEqual(await broker.bodies(`${fresh}.parked`, 1), ['not json'])
  })
})

const NEEDS_WORKER = buildInfo().worker ? {} : { skip: 'built without librabbitmq' }

describe('the recipe express.js', { ...NEEDS_BROKER, ...NEEDS_WORKER, long: true }, () => {
  let broker
  let queue
  let program

  const begin = env => {
    const started = start('express', { QUEUE: queue, PORT: 0, ...env })
    program = started.program
    return started
  }

  beforeEach(async () => {
    broker = await Broker.connect()
    queue = `${await broker.queue()}.fresh` // the program declares it
  })

  afterEach(async () => {
    program.kill('SIGKILL')
    for (const each of [queue, `${queue}.parked`]) await broker.channel.deleteQueue(each)
    await broker.close()
  })

  it('answers what the worker\'s state is, and ends at SIGTERM', async () => {
    const seen = begin({})
    const port = await until(() => /port (\d+)/.exec(seen.output)?.[1], () => seen.output)
    const health = async () => {
      const response = await globalThis.fetch(`http://127.0.0.1:${port}/health`)
      return [response.status, await response.json()]
    }
    await until(async () => (await health())[0] === 200, 'it is ready')
    const [, { state }] = await health()
    assert.equal(state, 'ready')
    await broker.publish('page', queue)
    await until(() => seen.output.includes('attempt 3: page'), () => seen.output)
    program.kill('SIGTERM')
    assert.deepEqual(await seen.ended, [0, null], seen.output)
  })

  it('ends with an error if the worker cannot start', async () => {
    const seen = begin({ AMQP_URL: URL.replace('guest:guest', 'guest:wrong') })
    assert.deepEqual(await seen.ended, [1, null])
    assert.match(seen.output, /AccessError/)
  })
})
