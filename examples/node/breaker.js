'use strict'

const { Breaker, Worker } = require('backhop')

const api = new Breaker('purge API') // give it to each consumer that calls this API

async function main () {
  const options = { queue: 'purges', workQueue: 'quorum', breaker: api }
  const worker = new Worker(process.env.AMQP_URL ?? 'amqp://localhost', options)
  await worker.run(async message => {
    console.log(`${message.body}, attempt ${message.attempt}`)
    if (message.attempt < 3) throw new Error('503 service unavailable') // ten in a row open the breaker
  }, { signals: true })
}

main()
