'use strict'

const amqp = require('amqp')
const { Policy } = require('backhop')
const { Retrier } = require('backhop/amqp')

const url = (process.env.AMQP_URL ?? 'amqp://localhost').replace(/\/$/, '')
const connection = amqp.createConnection({ url, clientProperties: { capabilities: { consumer_cancel_notify: true } } })
let isStopping = false

connection.once('ready', async () => {
  const policy = new Policy({ initial: '1s', factor: 2, maxAttempts: 8 })
  const retrier = new Retrier(connection, { queue: 'purges', policy, workQueue: 'quorum' })
  await retrier.consume(async message => {
    console.log(`${message.body}, attempt ${message.attempt}`)
    if (message.attempt < 3) throw new Error('507 queue is full')
  }, { prefetch: 10 })
  process.once('SIGTERM', async () => {
    isStopping = true
    await retrier.drain({ timeout: '20s' })
    connection.disconnect()
  })
})
connection.on('error', error => console.error(`the connection: ${error.message}`))
connection.on('end', () => { // node-amqp reconnects after an error only
  const { readyEmitted, socket } = connection
  if (readyEmitted && socket.readableEnded && !isStopping) connection.emit('error', new Error('the broker is gone'))
})
