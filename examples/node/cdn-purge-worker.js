'use strict'
// The CDN purge with the worker, which keeps connections of its own.
//
//     AMQP_URL=amqp://guest:guest@localhost/ node cdn-purge-worker.js

const { Policy, RetryAfter, Worker } = require('backhop')

const { AMQP_URL, NoSuchSiteError, PAGES, PurgeApi, QUEUE, QueueFullError, changePages, cleanUp } = require('./cdn')

async function main () {
  const api = await PurgeApi.start()
  await changePages()

  const policy = new Policy({ initial: '500ms', factor: 2, max: '4s', maxAttempts: 10, maxRetryAfter: '10s' })
  const worker = new Worker(AMQP_URL, { queue: QUEUE, policy, concurrency: 4, never: [NoSuchSiteError] })
  worker.on('parked', event => console.log(`parked: ${event.text}`))

  await worker.run(async message => {
    const page = message.body.toString()
    try {
      await api.purge(page)
    } catch (error) {
      if (!(error instanceof QueueFullError)) throw error
      console.log(`${page.padEnd(18)} attempt ${message.attempt}: ${error.message}`)
      throw new RetryAfter(error.retryAfter, error)
    }
    console.log(`${page.padEnd(18)} attempt ${message.attempt}: purged`)
    if (api.purged.length === PAGES.length - 1) worker.stop()
  })

  console.log(`${api.purged.length} pages purged, ${api.refused} refusals, ${await cleanUp()} parked`)
  await api.stop()
}

main()
