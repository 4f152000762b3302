'use strict'

const { Policy, Worker } = require('backhop')

async function main () {
  const policy = new Policy({ initial: '1s', factor: 2, maxAttempts: 8 })
  const options = { queue: 'purges', policy, workQueue: 'quorum', concurrency: 50 }
  const worker = new Worker(process.env.AMQP_URL ?? 'amqp://localhost', options)
  await worker.run(async message => {
    console.log(`${message.body}, attempt ${message.attempt}`)
    if (message.attempt < 3) throw new Error('507 queue is full') // the message is retried
  }, { signals: true }) // until SIGINT or SIGTERM
}

main()
