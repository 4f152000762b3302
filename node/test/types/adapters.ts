// Types that the adapters must accept, and, by @ts-expect-error, types that they must refuse. tsc
// reads it; it never runs.

import * as amqplib from 'amqplib'
import * as callbacks from 'amqplib/callback_api'
import { Park, Policy, RetryAfter, type Message as AnyMessage } from 'backhop'
import { Retrier as NodeAmqpRetrier, type Handler } from 'backhop/amqp'
import { Message, Retrier, type RetrierOptions } from 'backhop/amqplib'
import { metrics, tracing } from 'backhop/opentelemetry'
import { prometheus } from 'backhop/prom-client'
import { Registry } from 'prom-client'

const policy = new Policy({ initial: '10s' })
const options: RetrierOptions = {
  queue: 'cdn-purge', policy, never: [SyntaxError, error => error.status === 404], only: Error,
  policies: [[RangeError, policy], [error => error.status === 429, policy]], mode: 'verify', confirmTimeout: '30s',
  onEvent: ({ name, queue, id, error }) => console.log(name === 'parked', queue, id, error?.code)
}

/** Over any client, from a worker, in a rehearsal. */
async function everywhere (message: AnyMessage): Promise<void> {
  const { body, contentType, correlationId, timestamp, lastAttempt, signal } = message
  const age: number = timestamp ? Date.now() - timestamp.getTime() : 0
  if (lastAttempt && !signal.aborted) {
    throw new RetryAfter(new Date(), `${body.length} ${contentType} ${correlationId} ${age}`)
  }
}

async function promises (): Promise<void> {
  const connection = await amqplib.connect('amqp://localhost')
  const channel = await connection.createChannel()
  const retrier = await Retrier.declare(channel, options)
  await channel.consume('cdn-purge', retrier.wrap(async (message: Message) => {
    const content: Buffer = message.content
    const tag: number = message.fields.deliveryTag
    const id: unknown = message.properties['messageId']
    if (message.attempt > 3) throw new Park(`${content.length} ${tag} ${String(id)}`)
    throw new RetryAfter('30s', message.lastError)
  }, { cancelled: () => console.error('cancelled') }))
  const handle: (channel: amqplib.Channel, message: amqplib.ConsumeMessage, error: unknown) => Promise<void> | void =
    retrier.errorHandler()
  const got = await channel.get('cdn-purge')
  if (got) {
    const message = retrier.read(got, channel)
    const handled: number = await retrier.handle(message, async given => given.fields.deliveryTag)
    const atOnce: string = retrier.handle(message, ({ queue }) => queue)
    console.log(handled, atOnce)
    retrier.settle(message)
    retrier.settle(message, new Error('no'))
    const fromNest: Record<string, any> = got // NT13
    retrier.settle(retrier.read(fromNest, channel), undefined)
    handle(channel, { ...got, fields: { ...got.fields, consumerTag: '' } }, undefined)
  }
  await retrier.verify()
  await retrier.verify(channel)
  await new Retrier(null, options).declare(channel)
  const consumer = await retrier.consume(everywhere, { prefetch: 10, timeout: '30s' })
  const why: Error | undefined = await consumer.closed
  console.log(why)
  await consumer.cancel()
  await consumer[Symbol.asyncDispose]()
  await retrier[Symbol.asyncDispose]()
  await retrier.drain({ timeout: '20s' })
  const count: number = await retrier.replay(10) + retrier.pending + retrier.topology.rungs.length
  console.log(count, retrier.policy.max)
  new Retrier(channel, {
    ...options,
    onEvent: [prometheus({ register: new Registry(), errorTypes: ['TypeError'] }), metrics(),
      tracing({ failureIsError: false }),
      event => console.log(event.lateness ?? 0, event.error, event.errorText.length, event.toJSON()['level']),
      async event => { await Promise.resolve(event) }]
  })
  new Retrier(channel, { ...options, onEvent: [] })
  // @ts-expect-error -- no message
  retrier.handle({}, () => undefined)
  // @ts-expect-error -- no Registry
  prometheus({ register: {} })
  // @ts-expect-error -- milliseconds or a string
  await retrier.drain({ timeout: new Date() })
  // @ts-expect-error -- an option that there is not
  new Retrier(channel, { queue: 'cdn-purge', polcy: policy })
  // @ts-expect-error -- no channel
  new Retrier({}, options)
}

function callback (): void {
  callbacks.connect('amqp://localhost', (failure, connection) => {
    if (failure) throw failure
    connection.createConfirmChannel((error, channel) => {
      if (error) throw error
      const retrier = new Retrier(channel, options)
      channel.consume('cdn-purge', retrier.wrap(() => undefined), {})
    })
  })
}

async function nodeAmqp (connection: object): Promise<void> {
  const retrier = await NodeAmqpRetrier.declare(connection, options)
  await retrier.consume(everywhere)
  await retrier.consume(message => message.payload.data)
  const handle: Handler = async (payload, headers, deliveryInfo, message) => {
    console.log(payload, headers, deliveryInfo, message.attempt, message.incoming)
  }
  const listener: (payload: unknown, headers: unknown, deliveryInfo: unknown, incoming: unknown) => Promise<void> =
    retrier.wrap(handle)
  await listener({}, {}, {}, {})
  const message = retrier.read({})
  await retrier.handle(message, async ({ payload }) => console.log(payload))
  retrier.settle(message)
}

export { callback, nodeAmqp, promises }
