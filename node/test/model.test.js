'use strict'
// The model of RabbitMQ for tests: backhop/testing's startBroker.

const assert = require('node:assert/strict')
const { execFileSync } = require('node:child_process')
const path = require('node:path')
const { describe, it } = require('node:test')

const amqplib = require('amqplib')
const { BackhopError, StateError, buildInfo } = require('backhop')
const { startBroker } = require('backhop/testing')

const EXAMPLES = path.join(__dirname, '..', 'examples')
const NEEDS_COMMAND = { skip: buildInfo().worker ? false : 'the package was built without librabbitmq' }

async function withChannel (broker, use) {
  const connection = await amqplib.connect(broker.url)
  const channel = await connection.createConfirmChannel()
  await use(channel)
  await connection.close()
}

describe('the model of RabbitMQ', NEEDS_COMMAND, () => {
  it('has a test in the guide that passes', () => {
    const { NODE_TEST_CONTEXT, ...env } = process.env // so that it is no part of this run
    execFileSync(process.execPath, ['--test', path.join(EXAMPLES, 'model.js')], { env })
  })

  it('keeps what is durable over a restart', async t => {
    const broker = await startBroker(t)
    await withChannel(broker, async channel => {
      await channel.assertQueue('kept', { durable: true })
      for (const persistent of [false, true]) channel.sendToQueue('kept', Buffer.from('x'), { persistent })
      await channel.waitForConfirms()
    })
    await broker.control('kill')
    await assert.rejects(amqplib.connect(broker.url))
    await broker.control('start')
    await withChannel(broker, async channel => assert.equal((await channel.checkQueue('kept')).messageCount, 1))
  })

  it('lets time pass by command if its clock is real', async t => {
    const broker = await startBroker(t, { version: '4.0', clock: 'real' })
    await withChannel(broker, async channel => {
      await channel.assertQueue('late', { durable: true, messageTtl: 3_600_000 })
      channel.sendToQueue('late', Buffer.from('x'))
      await channel.waitForConfirms()
    })
    const depth = async () => (await broker.control('list', 'queues'))[0].split('\t').slice(0, 3)
    assert.deepEqual(await depth(), ['late', 'classic', '1'])
    await broker.control('advance', 3_600_000)
    assert.deepEqual(await depth(), ['late', 'classic', '0'])
  })

  it('says what is wrong', async () => {
    await assert.rejects(startBroker({ version: '2.0' }), error => error instanceof BackhopError &&
      /'2\.0' is no version of the model: give 3\.10, 4\.0 or 4\.3/.test(error.message))
    await assert.rejects(startBroker({ versions: '4.3' }), /startBroker has no option versions/)
    const broker = await startBroker()
    const answers = [broker.control('dance'), broker.control('now'), broker.control('purge', 'it has a space', 'q')]
    const [dance, now, purge] = await Promise.allSettled(answers)
    assert.match(dance.reason.message, /'dance' is unknown/)
    assert.equal(now.value.length, 1)
    assert.match(purge.reason.message, /no vhost 'it has a space'/)
    await broker.close()
    await broker.close()
    await assert.rejects(broker.control('now'), error => error instanceof StateError)
  })
})
