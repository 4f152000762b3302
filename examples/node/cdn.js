'use strict'
// The rest of the world for the examples: a CDN's purge API, which is full at its peak, and a site
// whose pages change.
//
// Nothing here knows of Backhop. The API is a real HTTP server on this machine.

const { once } = require('node:events')
const http = require('node:http')

const amqplib = require('amqplib')

const EXCHANGE = 'backhop-example.events'
const QUEUE = 'backhop-example.cdn-purge'
const PAGES = [...Array.from({ length: 19 }, (_, i) => `/article/${i + 1}`), '/old/front-page']
const ANSWER_MS = 5 // that the API takes for an answer
const NO_LIMIT = 1_000_000_000 // of returns, as Backhop declares it: by default RabbitMQ 4 drops a message after 20
const AMQP_URL = process.env.AMQP_URL ?? 'amqp://guest:guest@localhost/'

/** 507: the API takes no more at the moment; `retryAfter` in milliseconds, 0 if it does not say. */
class QueueFullError extends Error {
  constructor (retryAfter) {
    super('507 queue is full')
    this.retryAfter = retryAfter
  }
}

/** 404: the API does not know the site, and never will. */
class NoSuchSiteError extends Error {}

/**
 * A purge API whose peak begins with the first request: it takes one page then, and answers 507 to
 * all others. On a slow machine the peak lasts for a page until its first request, so each page is
 * refused.
 */
class PurgeApi {
  refused = 0
  purged = []
  #begun
  #peak
  #asked = new Set() // pages
  #server = http.createServer((request, response) => {
    const [status, headers] = this.#answer(request.url)
    setTimeout(() => response.writeHead(status, headers).end(), ANSWER_MS)
  })

  constructor (peak) {
    this.#peak = peak
  }

  /** A server that listens; `peak` in milliseconds. */
  static async start (peak = 4000) {
    const api = new PurgeApi(peak)
    api.#server.listen(0, '127.0.0.1')
    await once(api.#server, 'listening')
    return api
  }

  #answer (path) {
    if (path.startsWith('/old/')) return [404, {}]
    this.#begun ??= Date.now()
    const isFirst = !this.#asked.has(path)
    this.#asked.add(path)
    if (this.purged.length && (isFirst || Date.now() - this.#begun < this.#peak)) {
      this.refused++
      return [507, this.refused % 9 === 0 ? { 'Retry-After': '3' } : {}]
    }
    this.purged.push(path)
    return [202, {}]
  }

  /** Purges a page, as a client of the API does. */
  async purge (path) {
    const request = http.request({ method: 'PURGE', host: '127.0.0.1', port: this.#server.address().port, path })
    request.end()
    const [response] = await once(request, 'response')
    response.resume()
    await once(response, 'end')
    if (response.statusCode === 507) throw new QueueFullError(1000 * Number(response.headers['retry-after'] ?? 0))
    if (response.statusCode === 404) throw new NoSuchSiteError('404 no such site')
  }

  async stop () {
    this.#server.close()
    this.#server.closeAllConnections?.()
    await once(this.#server, 'close')
  }
}

/** Declares the site's own exchange and the work queue, and publishes an event for each page. */
async function changePages () {
  await withChannel(async channel => {
    await channel.assertExchange(EXCHANGE, 'topic', { durable: true })
    await channel.assertQueue(QUEUE, { arguments: { 'x-queue-type': 'quorum', 'x-delivery-limit': NO_LIMIT } })
    await channel.bindQueue(QUEUE, EXCHANGE, 'article.*')
    for (const page of PAGES) channel.publish(EXCHANGE, 'article.updated', Buffer.from(page), { persistent: true })
    await channel.waitForConfirms()
  })
}

/** Deletes the example's queues and its exchange. Resolves to the number of parked messages. */
async function cleanUp () {
  const { messageCount } = await withChannel(channel => channel.purgeQueue(`${QUEUE}.parked`))
  await deleteAll()
  return messageCount
}

/** Deletes the example's queues and its exchange. */
async function deleteAll () {
  await withChannel(async channel => {
    await channel.deleteQueue(QUEUE)
    await channel.deleteQueue(`${QUEUE}.parked`)
    await channel.deleteExchange(EXCHANGE)
  })
}

async function withChannel (use) {
  const connection = await amqplib.connect(AMQP_URL)
  try {
    return await use(await connection.createConfirmChannel())
  } finally {
    await connection.close()
  }
}

module.exports = {
  AMQP_URL, EXCHANGE, NoSuchSiteError, PAGES, PurgeApi, QUEUE, QueueFullError, changePages, cleanUp, deleteAll
}
