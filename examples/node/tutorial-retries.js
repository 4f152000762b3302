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

  let ended = 0
  let finish
  const finished = new Promise(resolve => { finish = resolve })
  const onEvent = ({ name }) => {
    if (['succeeded', 'parked'].includes(name) && ++ended === cdn.PAGES.length) finish()
  }

  const policy = new Policy({ initial: '500ms', factor: 2, max: '4s', maxAttempts: 5 })
  const retrier = new Retrier(channel, { queue: cdn.QUEUE, policy, onEvent })

  await retrier.consume(async message => {
    await api.purge(message.body.toString()) // resolves: acknowledged; throws: retried
  }, { prefetch: 10 })

  await finished
  await retrier.drain({ timeout: '20s' })
  await connection.close()
  await api.stop()
  const parked = await cdn.cleanUp()
  console.log(`${api.purged.length} of ${cdn.PAGES.length} pages purged, ${api.refused} refusals, ${parked} parked`)
}

main()
