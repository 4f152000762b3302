'use strict'
// The examples end as they tell, on a broker: AMQP_URL names it, as tests/broker/broker sets it.

const assert = require('node:assert/strict')
const { execFile, spawn } = require('node:child_process')
const path = require('node:path')
const { createInterface } = require('node:readline')
const { promisify } = require('node:util')

const { buildInfo } = require('backhop')

const { Broker, CONNECTS, NEEDS_BROKER, PATIENCE, describe, it } = require('./broker')

const NEEDS_CLIENT = CONNECTS ? NEEDS_BROKER : { skip: 'an amqplib before 0.10.7, whose default this RabbitMQ refuses' }
const EXAMPLES = path.join(__dirname, '..', '..', 'examples')
const NEEDS_WORKER = buildInfo().worker ? {} : { skip: 'built without librabbitmq' }

describe('the CDN purge', NEEDS_CLIENT, () => {
  for (const [name, needs] of [['amqp', {}], ['amqplib', {}], ['worker', NEEDS_WORKER]]) {
    it(`cdn-purge-${name}.js ends with every page purged`, needs, async () => {
      const program = path.join(EXAMPLES, `cdn-purge-${name}.js`)
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
