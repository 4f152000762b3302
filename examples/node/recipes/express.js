'use strict'

const express = require('express')
const { Policy, Worker } = require('backhop')

async function main () {
  const policy = new Policy({ initial: '1s', maxAttempts: 3 })
  const options = { queue: process.env.QUEUE ?? 'cdn-purge', policy, workQueue: 'quorum', timeout: '30s' }
  const worker = new Worker(process.env.AMQP_URL ?? 'amqp://localhost', options)
  const app = express()
  app.get('/health', (request, response) => {
    const { state, stateReason } = worker
    response.status(state === 'ready' ? 200 : 503).json({ state, reason: stateReason })
  })
  const server = app.listen(process.env.PORT ?? 3000, () => console.log(`port ${server.address().port}`))
  try {
    await worker.run(async message => { // rejects if the worker cannot start: the process then ends with an error
      console.log(`attempt ${message.attempt}: ${message.body}`)
      if (message.attempt < 3) throw new Error('507 queue is full')
    }, { signals: true })
  } finally {
    server.close()
  }
}

main()
