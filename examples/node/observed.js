'use strict'

const amqplib = require('amqplib')
const client = require('prom-client')

const { Policy } = require('backhop')
const { Retrier } = require('backhop/amqplib')
const { tracing } = require('backhop/opentelemetry')
const { prometheus } = require('backhop/prom-client')

const metrics = prometheus() // one for the process

function toMyLog (event) {
  if (event.name === 'parked') console.log(String(event), event.error)
}

async function main () {
  const connection = await amqplib.connect(process.env.AMQP_URL ?? 'amqp://localhost')
  const policy = new Policy({ initial: '500ms', maxAttempts: 3 })
  const options = { queue: 'purges', policy, workQueue: 'quorum', onEvent: [metrics, tracing(), toMyLog] }
  const retrier = new Retrier(await connection.createChannel(), options)
  await retrier.consume(async message => {
    console.log(`${message.body}, attempt ${message.attempt}`)
    throw new Error('507 queue is full')
  })
  setTimeout(async () => console.log(await client.register.metrics()), 3000)
}

main()
