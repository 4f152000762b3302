'use strict'

const amqplib = require('amqplib')
const { Retrier } = require('backhop/amqplib')

async function main () {
  const connection = await amqplib.connect(process.env.AMQP_URL ?? 'amqp://localhost')
  const channel = await connection.createChannel()
  const retrier = new Retrier(channel, { queue: 'purges', workQueue: 'quorum' })
  await retrier.declare()
  await channel.prefetch(10)
  await channel.consume('purges', retrier.wrap(async message => {
    console.log(`${message.body}, attempt ${message.attempt}`)
    if (message.attempt < 3) throw new Error('507 queue is full')
  }))
}

main()
