'use strict'
// The tutorial's third consumer: a message that fails waits in the broker, longer each time.

const amqplib = require('amqplib')
const { Policy } = require('backhop')
const { Retrier } = require('backhop/amqplib')

const cdn = require('./cdn')

async function main () {
  await cdn.changePages()
  const api = await cdn.PurgeApi.start()
  const connection = await amqplib.connect(cdn.AMQP_URL)
  const channel = await connection.createChannel()

  const policy = new Policy({ initial: '500ms', factor: 2, max: '4s', maxAttempts: 6 })
  const retrier = new Retrier(channel, { queue: cdn.QUEUE, policy })

  await new Promise(resolve => {
    retrier.consume(async message => {
      await api.purge(message.body.toString()) // resolves: acknowledged; throws: retried
      if (api.purged.length === 19) resolve()
    }, { prefetch: 10 })
  })

  await retrier.drain({ timeout: '20s' })
  console.log(`${api.purged.length} of ${cdn.PAGES.length} pages purged, ${api.refused} refusals`)
  await connection.close()
  await api.stop()
  await cdn.deleteAll()
}

main()
