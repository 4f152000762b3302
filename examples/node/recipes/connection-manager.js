'use strict'

const manager = require('amqp-connection-manager')
const { Policy } = require('backhop')
const { Retrier } = require('backhop/amqplib')

async function main () {
  const connection = manager.connect([process.env.AMQP_URL ?? 'amqp://localhost'])
  const wrapper = connection.createChannel()
  const policy = new Policy({ initial: '1s', maxAttempts: 3 })
  const options = { queue: process.env.QUEUE ?? 'cdn-purge', policy, workQueue: 'quorum' }
  let retrier
  await wrapper.addSetup(async channel => {
    const previous = retrier // its connection may live on, if only the channel was closed
    retrier = new Retrier(channel, options)
    await previous?.drain({ timeout: '20s' })
    await retrier.consume(async message => {
      console.log(`attempt ${message.attempt}: ${message.body}`)
      if (message.attempt < 3) throw new Error('507 queue is full')
    }, { prefetch: 10 })
  })
  process.once('SIGTERM', async () => {
    await retrier?.drain({ timeout: '20s' }) // wrapper.close() ends no consumer of the retrier
    await wrapper.close()
    await connection.close()
  })
}

main()
