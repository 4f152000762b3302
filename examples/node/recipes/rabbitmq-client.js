'use strict'

const { Delivery, History, Plan, Policy, Topology } = require('backhop')
const { Connection } = require('rabbitmq-client')

async function main () {
  const connection = new Connection(process.env.AMQP_URL ?? 'amqp://localhost')
  const queue = process.env.QUEUE ?? 'cdn-purge'
  const policy = new Policy({ initial: '1s', maxAttempts: 3 })
  const topology = new Topology({ queue, policy, workQueue: 'quorum' })
  for (const { what, name, type, source, routingKey, arguments: args } of topology.declarations) {
    if (what === 'exchange') await connection.exchangeDeclare({ exchange: name, type, durable: true, arguments: args })
    if (what === 'queue') await connection.queueDeclare({ queue: name, durable: true, arguments: args })
    if (what === 'binding') await connection.queueBind({ queue: name, exchange: source, routingKey })
  }

  const publisher = connection.createPublisher({ confirm: true })
  const settings = { queue, queueOptions: { passive: true }, qos: { prefetchCount: 10 } }
  const consumer = connection.createConsumer(settings, async given => {
    const { exchange, routingKey, headers, body } = given
    const history = new History(new Delivery({ exchange, routingKey, properties: given, headers }), { topology })
    try {
      console.log(`attempt ${history.attempts + 1}: ${body}`)
      if (history.attempts < 2) throw new Error('507 queue is full')
    } catch (error) {
      const plan = new Plan(history, topology, { error: String(error) })
      const copy = { ...plan.copyProperties(given), exchange: plan.exchange, routingKey: plan.routingKey }
      await publisher.send(copy, body) // the client acknowledges the original when this function ends
    }
  })

  process.once('SIGTERM', async () => {
    await consumer.close()
    await publisher.close()
    await connection.close()
  })
}

main()
