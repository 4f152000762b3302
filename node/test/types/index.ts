// Types that must be accepted, and, by @ts-expect-error, types that must be refused. tsc reads
// it; it never runs.

import {
  BackhopError, Breaker, type BreakerState, Delivery, Drop, Event, History, Message, Park, Plan, Policy, PolicyError,
  RetryAfter, Throttled, Topology, Worker, buildInfo, explain
} from 'backhop'
import { Clock, rehearse, seededRandom } from 'backhop/testing'

class QueueFull extends Error {
  constructor (readonly seconds: number) {
    super('507')
  }
}

const policy = new Policy({ initial: '10s', factor: 3, max: '1h', jitter: 0.2, maxAttempts: 8 })
const table: string = policy.preview().toString()
const mean: number = policy.preview(3).map(row => row.mean).reduce((a, b) => a + b, 0)
// @ts-expect-error -- a jitter that there is not
new Policy({ jitter: 'some' })
// @ts-expect-error -- an option that there is not
new Policy({ maxAttemps: 8 })

const topology = new Topology({ queue: 'cdn-purge', policy, strategy: 'ladder', series: 20, workQueue: 'quorum' })
// @ts-expect-error -- a queue is needed
new Topology({ policy })
// @ts-expect-error -- declarations do not change
topology.declarations[0] = undefined

const delivery = new Delivery({ exchange: 'cdn', properties: { messageId: '42' }, headers: { tenant: 'acme' } })
const history = new History(delivery, { topology, legacyCounter: 'x-retry-count' })
const plan = new Plan(history, topology, { outcome: 'failed', error: '507', retryAfter: '30s', now: new Date() })
if (plan.action === 'retry') plan.copyProperties({ messageId: '42' }, { integer: value => ({ '!': 'long', value }) })
const first: Date | undefined = history.firstFailure

const breaker = new Breaker('cdn', {
  errors: [QueueFull, error => error.code === 503], key: (message: Message) => String(message.headers['host']),
  window: '1m', leastCalls: 20, failurePercent: 50, rowFailures: 10, slow: '5s', slowPercent: 100, probeSuccesses: 3,
  probeTimeout: '1m', rampCalls: 64, throttledOpens: true, pauses: policy
})
const state: BreakerState = breaker.stateOf('eu')
if (state === 'open') breaker.close({ key: 'eu' })
else breaker.open({ duration: '5m', key: 'eu' })
// @ts-expect-error -- a state that there is not
if (new Breaker('db').state === 'shut') throw new Throttled('30s', '429', { wholeQueue: true })
// @ts-expect-error -- an option that there is not
new Breaker('db', { failures: 3 })
new Worker('amqp://localhost', {
  queue: 'cdn-purge', breaker, never: error => error.status === 429 && new Throttled('1s')
})

const worker = new Worker(['amqp://localhost', 'amqp://other'], {
  queue: 'cdn-purge', policy, concurrency: 50, never: [SyntaxError, QueueFull]
})
worker.on('disconnected', (event: Event) => console.error(event.error?.code, String(event)))
// @ts-expect-error -- an event that there is not
worker.on('disconected', () => {})

async function main (signal: AbortSignal): Promise<void> {
  const went: number = await worker.replay() + await worker.replay(10)
  console.log(went)
  await worker[Symbol.asyncDispose]()
  await worker.run(async (message: Message) => {
    const content: Buffer = message.content
    const id: string | undefined = message.id
    if (message.attempt > 3) throw new Park(`${id}: ${content.length}`)
    if (!message.headers['tenant']) throw new Drop()
    try {
      JSON.parse(content.toString())
    } catch (error) {
      throw new RetryAfter(new Headers().get('retry-after'), error as Error)
    }
  }, { signal, signals: ['SIGTERM'] })
  await worker.stop({ timeout: '20s' })
  const clock = new Clock()
  const rehearsal = await rehearse(() => { throw new QueueFull(1) }, 'body', { policy, clock, random: seededRandom(1) })
  const delays: number[] = rehearsal.delays
  console.log(delays, rehearsal.outcome === 'parked', explain({ 'backhop-attempts': 1 }, { topology }),
    String(buildInfo()))
}

function codeOf (error: unknown): string {
  if (error instanceof PolicyError) return error.code
  return error instanceof BackhopError ? `${error.status}` : ''
}

export { codeOf, first, main, mean, table }
