'use strict'
// Purges the pages of a site from its CDN, over node-amqp: a purge that the API refuses at its peak
// comes back later.
//
// AMQP_URL=amqp://guest:guest@localhost/ node cdn-purge-amqp.js

const amqp = require('amqp')

const { Policy, RetryAfter } = require('backhop')
const { Retrier } = require('backhop/amqp')

const cdn = require('./cdn')

async function main () {
  await cdn.changePages()
  const api = await cdn.PurgeApi.start()
  const url = cdn.AMQP_URL.replace(/\/$/, '') // node-amqp takes a slash at the end for a vhost without a name
  const connection = amqp.createConnection({ url }, { reconnect: false })
  connection.on('error', error => console.error(`the connection: ${error.message}`))

  const policy = new Policy({ initial: 500, factor: 2, max: '4s', jitter: 0.2, maxAttempts: 10, maxRetryAfter: '10s' })
  const retrier = await Retrier.declare(connection, { queue: cdn.QUEUE, policy, never: [cdn.NoSuchSiteError] })

  await new Promise(resolve => {
    const purge = async (payload, headers, deliveryInfo, message) => {
      const page = payload.data.toString()
      try {
        await api.purge(page)
      } catch (error) {
        console.log(`${page.padEnd(18)} attempt ${message.attempt}: ${error.message}`)
        throw error instanceof cdn.QueueFullError ? new RetryAfter(error.retryAfter, error) : error
      }
      console.log(`${page.padEnd(18)} attempt ${message.attempt}: purged`)
      if (api.purged.length === cdn.PAGES.length - 1) resolve()
    }
    connection.queue(cdn.QUEUE, { passive: true }, queue => {
      queue.bind(cdn.EXCHANGE, 'article.*')
      queue.subscribe({ ack: true, prefetchCount: 10 }, retrier.wrap(purge))
    })
  })

  await retrier.drain({ timeout: '20s' })
  connection.disconnect()
  await api.stop()
  console.log(`${api.purged.length} pages purged, ${api.refused} refusals, ${await cdn.cleanUp()} parked`)
}

main()
