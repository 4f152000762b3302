'use strict'
// The tutorial's second consumer: a message that fails goes back to its queue, and comes again at
// once.

const amqplib = require('amqplib')

const cdn = require('./cdn')

async function main () {
  await cdn.changePages()
  const api = await cdn.PurgeApi.start()
  const connection = await amqplib.connect(cdn.AMQP_URL)
  const channel = await connection.createChannel()
  await channel.prefetch(10)

  let isDone = false
  await new Promise(resolve => {
    channel.consume(cdn.QUEUE, async message => {
      try {
        await api.purge(message.content.toString())
        channel.ack(message)
      } catch {
        if (!isDone) channel.nack(message) // and requeue
      }
      isDone = api.purged.length === 19
      if (isDone) resolve()
    })
  })

  console.log(`${api.purged.length} of ${cdn.PAGES.length} pages purged, ${api.refused} refusals`)
  await connection.close()
  await api.stop()
  await cdn.deleteAll()
}

main()
