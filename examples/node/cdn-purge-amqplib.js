'use strict'
// Purges the pages of a site from its CDN, over amqplib: a purge that the API refuses at its peak
// comes back later.
//
// AMQP_URL=amqp://guest:guest@localhost/ node cdn-purge-amqplib.js

const amqplib = require('amqplib')

const { Policy, RetryAfter } = require('backhop')
const { Retrier } = require('backhop/amqplib')

const cdn = require('./cdn')

async function main () {
  await cdn.changePages()
  const api = await cdn.PurgeApi.start()
  const connection = await amqplib.connect(cdn.AMQP_URL)
  const channel = await connection.createChannel()

  const policy = new Policy({ initial: 500, factor: 2, max: '4s', jitter: 0.2, maxAttempts: 10, maxRetryAfter: '10s' })
  const retrier = new Retrier(channel, { queue: cdn.QUEUE, policy, never: [cdn.NoSuchSiteError] })

  await new Promise(resolve => {
    retrier.consume(async message => {
      const page = message.body.toString()
      try {
        await api.purge(page)
      } catch (error) {
        console.log(`${page.padEnd(18)} attempt ${message.attempt}: ${error.message}`)
        throw error instanceof cdn.QueueFullError ? new RetryAfter(error.retryAfter, error) : error
      }
      console.log(`${page.padEnd(18)} attempt ${message.attempt}: purged`)
      if (api.purged.length === cdn.PAGES.length - 1) resolve()
    }, { prefetch: 10 })
  })

  await retrier.drain({ timeout: '20s' })
  await connection.close()
  await api.stop()
  console.log(`${api.purged.length} pages purged, ${api.refused} refusals, ${await cdn.cleanUp()} parked`)
}

main()
