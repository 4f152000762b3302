'use strict'
// The examples end as they print, on a broker: AMQP_URL names it, as tests/broker/broker sets it.

const assert = require('node:assert/strict')
const { execFile, spawn } = require('node:child_process')
const path = require('node:path')
const { createInterface } = require('node:readline')
const { promisify } = require('node:util')

const { buildInfo } = require('backhop')

const { Broker, CONNECTS, NEEDS_BROKER, PATIENCE, describe, it, until } = require('./broker')

const NEEDS_CLIENT = CONNECTS ? NEEDS_BROKER : { skip: 'an amqplib before 0.10.7, whose default this RabbitMQ refuses' }
const EXAMPLES = path.join(__dirname, '..', '..', 'examples')
const NEEDS_WORKER = buildInfo().worker ? {} : { skip: 'built without librabbitmq' }

describe('the CDN purge', NEEDS_CLIENT, () => {
  for (const [name, needs] of [['cdn-purge-amqp', {}], ['cdn-purge-amqplib', {}], ['cdn-purge-worker', NEEDS_WORKER]]) {
    it(`${name}.js ends with every page purged`, needs, async () => {
      const program = path.join(EXAMPLES, `${name}.js`)
      const { stdout } = await promisify(execFile)(process.execPath, [program], { timeout: PATIENCE })
      const [purged, refusals, parked] = stdout.trim().split('\n').at(-1).match(/\d+/g).map(Number)
      assert.deepEqual([purged, parked], [19, 1])
      assert.ok(refusals >= 18, stdout)
      assert.equal(stdout.match(/507 queue is full/g).length, refusals)
    })
  }
})

describe('the quickstart', NEEDS_CLIENT, () => {
  it('ends with the third attempt', async () => {
    const broker = await Broker.connect()
    await broker.channel.deleteQueue('purges')
    await broker.close()
    const program = spawn(process.execPath, [path.join(EXAMPLES, 'quickstart.js')], { timeout: PATIENCE })
    const lines = []
    for await (const line of createInterface({ input: program.stdout })) if (lines.push(line) === 3) break
    program.kill()
    assert.deepEqual(lines, [1, 2, 3].map(attempt => `/index.html, attempt ${attempt}`))
  })
})

describe('an example', NEEDS_CLIENT, () => {
  /** Runs it on a broker without the queue "purges", publishes a page, and resolves to that many lines. */
  async function linesOf (name, count) {
    const broker = await Broker.connect()
    for (const queue of ['purges', 'purges.parked']) await broker.channel.deleteQueue(queue)
    const program = spawn(process.execPath, [path.join(EXAMPLES, `${name}.js`)], { timeout: PATIENCE })
    const lines = []
    try {
      await until(() => broker.has('purges'))
      await broker.insist('/index.html', 'purges')
      for await (const line of createInterface({ input: program.stdout })) if (lines.push(line) === count) break
    } finally {
      program.kill('SIGKILL')
      await broker.close()
    }
    return lines
  }

  const attempts = [1, 2, 3].map(attempt => `/index.html, attempt ${attempt}`)

  const needs = { 'own-consumer': {}, 'quickstart-amqp': {}, 'quickstart-worker': NEEDS_WORKER, breaker: NEEDS_WORKER }
  for (const name of Object.keys(needs)) {
    it(`${name}.js retries until the third attempt`, needs[name], async () => {
      assert.deepEqual(await linesOf(name, 3), attempts)
    })
  }

  it('observed.js reports a message that is parked', async () => {
    const lines = await linesOf('observed', 4)
    assert.deepEqual(lines.slice(0, 3), attempts)
    assert.match(lines[3], /^parked: message /)
  })
})

describe('the tutorial', NEEDS_CLIENT, () => {
  const run = async name => {
    const { stdout } = await promisify(execFile)(process.execPath, [path.join(EXAMPLES, name)], { timeout: PATIENCE })
    return stdout.trim().split('\n').at(-1)
  }

  it('begins with tutorial-loses.js, a consumer that loses messages', async () => {
    assert.equal(await run('tutorial-loses.js'), '1 of 20 pages purged')
  })

  it('spares the API that tutorial-hammers.js hammers, in tutorial-retries.js', async () => {
    const refusals = []
    let last
    for (const name of ['tutorial-hammers.js', 'tutorial-retries.js']) {
      last = await run(name)
      const [purged, , refused] = last.match(/\d+/g).map(Number)
      assert.equal(purged, 19)
      refusals.push(refused)
    }
    assert.ok(refusals[0] > 2 * refusals[1], String(refusals))
    assert.match(last, /, 1 parked$/) // so no message of this example comes back in the next one
  })
})
