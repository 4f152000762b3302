'use strict'
// A consumer for bench/outage and bench/hosts: calls the downstream for each message.
//
//     node outage.js amqplib|amqplib-callbacks|amqp|worker
//
// The environment has AMQP_URL, OUTAGE_PORT and OUTAGE_QUEUE.
//
// - OUTAGE_BAD: every fifth message fails by its own fault.
// - OUTAGE_HOSTS: the number of hosts, which are the keys of the breaker.
// - OUTAGE_WITHOUT: without a breaker.

const { once } = require('node:events')
const http = require('node:http')

const { Breaker, Policy, Worker } = require('backhop')

const AT_ONCE = 50
const { AMQP_URL, OUTAGE_PORT: port, OUTAGE_QUEUE: queue, OUTAGE_BAD, OUTAGE_HOSTS, OUTAGE_WITHOUT } = process.env

class Down extends Error {}
class Bad extends Error {}

const isBad = number => Boolean(OUTAGE_BAD) && number % 5 === 0

/** Resolves to the status of the answer. */
async function get (path) {
  const request = http.get({ host: '127.0.0.1', port, path, agent: false })
  const [response] = await once(request, 'response')
  response.resume()
  return response.statusCode
}

const numberOf = message => Number(String(message.body ?? message.content))

async function handle (message) {
  const number = numberOf(message)
  const status = await get(`/${isBad(number) ? 'bad' : 'good'}/${number}/${message.attempt}`)
  if (isBad(number)) throw new Bad('the message is bad')
  if (status === 503) throw new Down('503')
}

const onEvent = event => event.name === 'breaker_opened' && get('/opened/0/0')
const key = OUTAGE_HOSTS ? message => numberOf(message) % Number(OUTAGE_HOSTS) : undefined
const breaker = OUTAGE_WITHOUT ? undefined : new Breaker('the API', { errors: [Down], key })
const options = { queue, policy: new Policy({ maxAttempts: 1000 }), never: [Bad], onEvent, breaker }

const CLIENTS = {
  async amqplib () {
    const { Retrier } = require('backhop/amqplib')
    const connection = await require('amqplib').connect(AMQP_URL)
    await new Retrier(await connection.createChannel(), options).consume(handle, { prefetch: AT_ONCE })
  },

  'amqplib-callbacks' () {
    const { Retrier } = require('backhop/amqplib')
    require('amqplib/callback_api').connect(AMQP_URL, (error, connection) => {
      if (error) throw error
      connection.createChannel((failure, channel) => {
        if (failure) throw failure
        new Retrier(channel, options).consume(handle, { prefetch: AT_ONCE })
      })
    })
  },

  async amqp () {
    const { Retrier } = require('backhop/amqp')
    const connection = require('amqp').createConnection({ url: AMQP_URL.replace(/\/$/, '') }, { reconnect: false })
    await once(connection, 'ready')
    await new Retrier(connection, options).consume(handle, { prefetch: AT_ONCE })
  },

  async worker () {
    const worker = new Worker(AMQP_URL, { ...options, concurrency: AT_ONCE, prefetch: AT_ONCE })
    await worker.run(handle, { signals: true })
  }
}

CLIENTS[process.argv[2]]()
