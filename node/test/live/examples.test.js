'use strict'
// The examples end as they print, on a broker: AMQP_URL names it, as tests/broker/broker sets it.

const assert = require('node:assert/strict')
const { execFile, spawn } = require('node:child_process')
const { once } = require('node:events')
const path = require('node:path')
const { createInterface } = require('node:readline')
const { promisify } = require('node:util')

const { buildInfo } = require('backhop')

const {
  Broker, CONNECTS, NEEDS_BROKER, NEEDS_CTL, PATIENCE, describe, it, until, withVhost
} = require('./broker')

const NEEDS_CLIENT = CONNECTS
  ? { ...NEEDS_BROKER, ...NEEDS_CTL }
  : { skip: 'an amqplib before 0.10.7, whose default this RabbitMQ refuses' }
const EXAMPLES = path.join(__dirname, '..', '..', 'examples')
const NEEDS_WORKER = buildInfo().worker ? {} : { skip: 'built without librabbitmq' }

/** Runs an example to its end, in its own vhost, and resolves to its output. */
function outputOf (name) {
  return withVhost(async url => {
    const options = { env: { ...process.env, AMQP_URL: url }, timeout: PATIENCE }
    const { stdout } = await promisify(execFile)(process.execPath, [path.join(EXAMPLES, name)], options)
    return stdout
  })
}

/**
 * Runs an example that goes on, publishes a page unless the example does, and resolves to that many
 * lines.
 */
function linesOf (name, count, { publishes = false } = {}) {
  return withVhost(async url => {
    const broker = await Broker.connect(url)
    const env = { ...process.env, AMQP_URL: url }
    const program = spawn(process.execPath, [path.join(EXAMPLES, name)], { env, timeout: PATIENCE })
    const lines = []
    try {
      await until(() => broker.has('purges'))
      if (!publishes) await broker.insist('/index.html', 'purges')
      for await (const line of createInterface({ input: program.stdout })) if (lines.push(line) === count) break
    } finally {
      program.kill('SIGKILL')
      await broker.close()
    }
    return lines
  })
}

const AT_ONCE = 4 // programs, which mostly wait

describe('the CDN purge', { ...NEEDS_CLIENT, long: true, concurrency: AT_ONCE }, () => {
  for (const [name, needs] of [['cdn-purge-amqp', {}], ['cdn-purge-amqplib', {}], ['cdn-purge-worker', NEEDS_WORKER]]) {
    it(`${name}.js ends with every page purged`, needs, async () => {
      const stdout = await outputOf(`${name}.js`)
      const [purged, refusals, parked] = stdout.trim().split('\n').at(-1).match(/\d+/g).map(Number)
      assert.deepEqual([purged, parked], [19, 1])
      assert.ok(refusals >= 18, stdout)
      assert.equal(stdout.match(/507 queue is full/g).length, refusals)
    })
  }
})

const ATTEMPTS = [1, 2, 3].map(attempt => `/index.html, attempt ${attempt}`)

describe('the quickstart', NEEDS_CLIENT, () => {
  it('ends with the third attempt', async () => {
    assert.deepEqual(await linesOf('quickstart.js', 3, { publishes: true }), ATTEMPTS)
  })

  it('P4-21: ends at Ctrl-C without a word', { long: true }, async () => {
    await withVhost(async url => {
      const env = { ...process.env, AMQP_URL: url }
      const program = spawn(process.execPath, [path.join(EXAMPLES, 'quickstart.js')], { env, timeout: PATIENCE })
      const ended = once(program, 'close')
      let errors = ''
      program.stderr.on('data', data => { errors += data })
      for await (const line of createInterface({ input: program.stdout })) {
        if (line === ATTEMPTS.at(-1)) program.kill('SIGINT')
      }
      assert.deepEqual([...await ended, errors], [null, 'SIGINT', ''])
    })
  })
})

describe('an example', { ...NEEDS_CLIENT, long: true, concurrency: AT_ONCE }, () => {
  const needs = { 'own-consumer': {}, 'quickstart-amqp': {}, 'quickstart-worker': NEEDS_WORKER, breaker: NEEDS_WORKER }
  for (const name of Object.keys(needs)) {
    it(`${name}.js retries until the third attempt`, needs[name], async () => {
      assert.deepEqual(await linesOf(`${name}.js`, 3), ATTEMPTS)
    })
  }

  it('observed.js reports a message that is parked', async () => {
    const lines = await linesOf('observed.js', 4)
    assert.deepEqual(lines.slice(0, 3), ATTEMPTS)
    assert.match(lines[3], /^parked: message /)
  })
})

describe('the tutorial', { ...NEEDS_CLIENT, long: true, concurrency: AT_ONCE }, () => {
  const linesOfAll = async name => (await outputOf(name)).trim().split('\n')
  const lastLineOf = async name => (await linesOfAll(name)).at(-1)

  it('begins with tutorial-loses.js, a consumer that loses messages', async () => {
    const lines = await linesOfAll('tutorial-loses.js')
    assert.equal(lines.at(-1), '1 of 20 pages purged')
    assert.ok(lines.includes('/old/front-page    404 no such site'), lines.join('\n')) // P4-23
  })

  it('spares the API that tutorial-hammers.js hammers, in tutorial-retries.js', async () => {
    let last, refused
    for (const name of ['tutorial-hammers.js', 'tutorial-retries.js']) {
      last = await lastLineOf(name)
      const numbers = last.match(/\d+/g).map(Number)
      assert.equal(numbers[0], 19)
      refused = numbers[2]
    }
    // The fifth attempt is the last. How often requeueing calls depends on the machine.
    assert.ok(refused <= 19 * 4, last)
    assert.match(last, /, 1 parked$/)
  })
})
