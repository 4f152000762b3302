'use strict'
// README's recipes for clients that connect again by themselves, and for one that has no adapter, as they stand there.

const assert = require('node:assert/strict')
const { readFileSync } = require('node:fs')
const { spawn } = require('node:child_process')
const { once } = require('node:events')
const path = require('node:path')
const { afterEach, beforeEach, test } = require('node:test')

const manager = require('amqp-connection-manager')
const amqplib = require('amqplib')

const { buildInfo } = require('backhop')
const { Retrier } = require('backhop/amqplib')

const { Broker, CONNECTS, NEEDS_BROKER, QUICK, URL, amqplibUrl, describe, it, until } = require('./broker')

const manifest = path.join(path.dirname(require.resolve('amqplib')), 'package.json')
const NEEDS_RECOVERY = parseInt(JSON.parse(readFileSync(manifest, 'utf8')).version) < 2 ? { skip: 'an amqplib before 2' } : {}

const RECIPES = path.join(__dirname, '..', '..', 'examples', 'recipes')
const NEEDS_CLIENT = CONNECTS ? {} : { skip: 'an amqplib before 0.10.7, whose default this RabbitMQ refuses' }

describe('a recipe', NEEDS_BROKER, () => {
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

  /** A message that fails once comes again, also where the connection was cut off before. */
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

  for (const name of ['first', 'connection-manager', 'rabbitmq-client']) {
    it(`${name}.js consumes, retries, and ends at SIGTERM`, NEEDS_CLIENT, async () => {
      const fresh = `${queue}.fresh` // the program declares it
      const env = { ...process.env, QUEUE: fresh }
      const program = spawn(process.execPath, [path.join(RECIPES, `${name}.js`)], { env, stdio: ['ignore', 'pipe', 'pipe'] })
      let output = ''
      for (const stream of [program.stdout, program.stderr]) stream.on('data', chunk => { output += chunk })
      const ended = once(program, 'exit')
      close = async () => {
        program.kill('SIGKILL')
        for (const each of [fresh, `${fresh}.parked`]) await broker.channel.deleteQueue(each)
      }
      await until(() => broker.has(fresh), 'the program declares its queue')
      await broker.publish('page', fresh)
      await until(() => output.includes('attempt 3: page') || program.exitCode !== null, () => output)
      program.kill('SIGTERM')
      assert.deepEqual([...await ended, output], [0, null, 'attempt 1: page\nattempt 2: page\nattempt 3: page\n'])
      await broker.holds(fresh, 0)
    })
  }
})

describe('the recipe express.js', { ...NEEDS_BROKER, ...buildInfo().worker ? {} : { skip: 'built without librabbitmq' } }, () => {
  let broker
  let queue
  let program

  beforeEach(async () => {
    broker = await Broker.connect()
    queue = `${await broker.queue()}.fresh` // the program declares it
  })

  afterEach(async () => {
    program.kill('SIGKILL')
    for (const each of [queue, `${queue}.parked`]) await broker.channel.deleteQueue(each)
    await broker.close()
  })

  function start (env) {
    program = spawn(process.execPath, [path.join(RECIPES, 'express.js')], {
      env: { ...process.env, QUEUE: queue, PORT: 0, ...env }, stdio: ['ignore', 'pipe', 'pipe']
    })
    const seen = { output: '', ended: once(program, 'exit') }
    for (const stream of [program.stdout, program.stderr]) stream.on('data', chunk => { seen.output += chunk })
    return seen
  }

  it('answers what the worker\'s state is, and ends at SIGTERM', async () => {
    const seen = start({})
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
    const seen = start({ AMQP_URL: URL.replace('guest:guest', 'guest:wrong') })
    assert.deepEqual(await seen.ended, [1, null])
    assert.match(seen.output, /AccessError/)
  })
})

test('README shows each recipe as it runs', () => {
  const readme = readFileSync(path.join(path.dirname(require.resolve('backhop')), '..', 'README.md'), 'utf8')
  for (const name of ['first', 'connection-manager', 'rabbitmq-client', 'express']) {
    const program = readFileSync(path.join(RECIPES, `${name}.js`), 'utf8').replace("'use strict'\n\n", '')
    assert.ok(readme.includes(`\`\`\`js\n${program}\`\`\`\n`), `${name}.js differs`)
  }
})
