'use strict'

const amqplib = require('amqplib')
const { Policy } = require('backhop')
const { Retrier } = require('backhop/amqplib')

async function main () {
  const connection = await amqplib.connect(process.env.AMQP_URL ?? 'amqp://localhost')
  const channel = await connection.createChannel()
  const policy = new Policy({ initial: '1s', maxAttempts: 3 })
  const queue = process.env.QUEUE ?? 'cdn-purge'
  const retrier = new Retrier(channel, { queue, policy, workQueue: 'quorum' }) // declares the queue too
  await retrier.consume(async message => {
    console.log(`attempt ${message.attempt}: ${message.body}`)
    if (message.attempt < 3) throw new Error('507 queue is full')
  }, { prefetch: 10 })
  process.once('SIGTERM', async () => {
    await retrier.drain({ timeout: '20s' })
    await connection.close()
  })
}

main()
