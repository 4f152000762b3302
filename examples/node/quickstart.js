'use strict'

const amqplib = require('amqplib')
const { Policy } = require('backhop')
const { Retrier } = require('backhop/amqplib')

async function main () {
  const connection = await amqplib.connect(process.env.AMQP_URL ?? 'amqp://localhost')
  const channel = await connection.createChannel()
  const policy = new Policy({ initial: '1s', factor: 2, maxAttempts: 8 })
  const retrier = new Retrier(channel, { queue: 'purges', policy, workQueue: 'quorum' })
  await retrier.declare()
  channel.sendToQueue('purges', Buffer.from('/index.html'), { messageId: '1' })
  await retrier.consume(async message => {
    console.log(`${message.body}, attempt ${message.attempt}`)
    if (message.attempt < 3) throw new Error('507 queue is full') // the message is retried
  }, { prefetch: 10 })
}

main()
