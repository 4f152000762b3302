'use strict'
// Retries a message and leaves a copy in its back-off; then closes the connection. Nothing keeps
// the process alive.

const amqplib = require('amqplib')

const { Park } = require('backhop')
const { Retrier } = require('backhop/amqplib')

async function main () {
  const [queue, namespace] = process.argv.slice(2)
  const connection = await amqplib.connect(`${process.env.AMQP_URL}?frameMax=131072`)
  const channel = await connection.createChannel()
  const retrier = new Retrier(channel, { queue, namespace }) // nothing is declared: the copy is returned
  const isReturned = new Promise(resolve => process.once('warning', resolve))
  await channel.consume(queue, retrier.wrap(() => { throw new Park('why') }))
  await isReturned
  await connection.close()
}

main()
