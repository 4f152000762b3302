'use strict'
// The tutorial's first consumer: RabbitMQ forgets each message when it sends it.

const amqplib = require('amqplib')

const cdn = require('./cdn')

async function main () {
  await cdn.changePages()
  const api = await cdn.PurgeApi.start()
  const connection = await amqplib.connect(cdn.AMQP_URL)
  const channel = await connection.createChannel()

  let handled = 0
  await new Promise(resolve => {
    channel.consume(cdn.QUEUE, async message => {
      const page = message.content.toString()
      try {
        await api.purge(page)
      } catch (error) {
        console.log(`${page.padEnd(18)} ${error.message}`)
      }
      if (++handled === cdn.PAGES.length) resolve()
    }, { noAck: true })
  })

  console.log(`${api.purged.length} of ${cdn.PAGES.length} pages purged`)
  await connection.close()
  await api.stop()
  await cdn.deleteAll()
}

main()
