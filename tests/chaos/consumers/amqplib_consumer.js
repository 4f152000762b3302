'use strict'
// amqplib_consumer.js QUEUE JOURNAL URL...: consumes over amqplib, from the next node if one is lost.

const { createRequire } = require('node:module')
const fs = require('node:fs')
const path = require('node:path')
const { setTimeout: sleep } = require('node:timers/promises')

const installed = createRequire(path.resolve(__dirname, '../../../build/node/default/package.json'))
const amqplib = installed('amqplib')
const { Policy } = installed('backhop')
const { Retrier } = installed('backhop/amqplib')

const [queue, journal, ...urls] = process.argv.slice(2)
const file = fs.openSync(journal, 'a')
const policy = new Policy({ initial: 300, factor: 2, max: '3s', jitter: 0.2, maxAttempts: 5, maxCrashes: 0 })

function write (...fields) {
  fs.writeSync(file, [Date.now(), ...fields].join('\t') + '\n')
}

function handle (message) {
  const body = message.content.toString()
  const fails = message.attempt <= Number(body.split(' ')[1])
  write(fails ? 'failed' : 'done', message.attempt, Math.round(message.lastDelay ?? 0), message.routingKey,
    message.properties.headers['x-mark'], message.properties.messageId, body)
  if (fails) throw new Error('507 queue is full')
}

/** Writes how many messages came back from the unroutable queue. */
function onEvent ({ name, count }) {
  if (name === 'replayed') write('returned', count)
}

async function consume (url) {
  const connection = await amqplib.connect(url + '?heartbeat=5', { timeout: 8000 })
  const lost = new Promise(resolve => {
    connection.on('error', error => console.error(url, error.message))
    connection.on('close', resolve)
  })
  const channel = await connection.createChannel()
  channel.on('error', error => console.error(url, error.message))
  channel.on('close', () => connection.close().catch(() => {}))
  await channel.prefetch(Number(process.env.BACKHOP_CHAOS_PREFETCH))
  const retrier = await Retrier.declare(channel, { queue, policy, onEvent })
  await channel.consume(queue, retrier.wrap(handle))
  write('connected', url)
  await lost
}

async function main () {
  for (let next = 0; ; next = (next + 1) % urls.length) {
    try {
      await consume(urls[next])
    } catch (error) {
      console.error(urls[next], error.message)
    }
    await sleep(200)
  }
}

main()
