/**
 * For your tests: runs your handler and your policy without a broker and without delays.
 *
 *     const { rehearse } = require("backhop/testing")
 *
 *     test("a full queue is retried and then parked", async () => {
 *       const rehearsal = await rehearse(handle, "/index.html", { policy })
 *       assert.equal(rehearsal.outcome, "parked")
 *       console.log(rehearsal)                        // prints as a table
 *     })
 *
 * The core decides as in production. A message that waits is delivered again after its delay, with
 * the headers that the broker adds.
 *
 * @packageDocumentation
 */

import { type BreakerState, type CommonOptions, Duration, Message, Plan } from './index.js'

/** A clock for tests. It goes on only if you advance it. */
export class Clock {
  /** @param start a Date, or milliseconds since the epoch; default: 2026 */
  constructor (start?: number | Date)
  /** Milliseconds since the epoch. */
  now: number
  /** Adds a duration to the time. */
  advance (by: Duration): void
}

/**
 * Returns a function that gives `count` random bytes, the same ones in every run.
 *
 * @param seed another seed gives other bytes; default 0
 */
export function seededRandom (seed?: number): (count: number) => Buffer

/**
 * One call of the handler. If the poison guard parked the message, or the breaker was open, there
 * was no call.
 */
export interface Attempt {
  number: number
  /** Milliseconds since the first attempt began. */
  at: number
  /** The value that the handler threw, if it threw. */
  error?: unknown
  /** The decision after the attempt. */
  plan: Plan
  /** The delay after the attempt, in milliseconds; 0 if there is none. */
  delay: number
  /** The state of the breaker of the message after the attempt, if you gave one. */
  breaker?: BreakerState
}

/** The attempts of a message, as an array that prints as a table. */
export class Rehearsal extends Array<Attempt> {
  /** The end of the message; `"waiting"` if it would be retried again. */
  readonly outcome: 'acked' | 'parked' | 'dropped' | 'waiting'
  /** Why it was parked: exhausted, permanent, too-old, oversized or poison; else "". */
  readonly reason: string
  /** The delays between attempts, in milliseconds. */
  readonly delays: number[]
  /** The values that the handler threw, in order. */
  readonly errors: unknown[]
}

/**
 * Options of a rehearsal: all of a topology and a retrier that need no broker. The queue is
 * `"work"` by default.
 */
export interface RehearseOptions extends Omit<CommonOptions, 'mode' | 'confirmTimeout' | 'backOff'> {
  /** The exchange of the first publish; default: the default exchange. */
  exchange?: string
  /** Default: the queue's name. */
  routingKey?: string
  headers?: { readonly [name: string]: unknown }
  /** Properties in amqplib's names: `{ messageId: "42" }`. */
  properties?: { readonly [name: string]: unknown }
  /** Default: a new one. */
  clock?: Clock
  /** Default: `seededRandom(0)`. */
  random?: (count: number) => Buffer
  /** Number of attempts after which the rehearsal ends; default 100. */
  mostAttempts?: number
}

/**
 * Hands a message to a handler until it is settled for good. The message has `fields` and
 * `properties` of amqplib, and `payload` and `deliveryInfo` of node-amqp, too.
 *
 * @param content the message's body; default: empty
 * @throws {@link ArgumentError} if an option is unknown or wrong
 */
export function rehearse (
  handle: (message: any) => unknown, content?: string | Uint8Array, options?: RehearseOptions
): Promise<Rehearsal>

/**
 * A model of RabbitMQ, for tests: in memory, in a process of its own, for this machine alone. Start
 * one with {@link startBroker}.
 *
 * Its waits take no time: while no message is with a consumer, its clock skips to the next TTL.
 */
export interface Broker {
  /** Its AMQP URL, at a free port of 127.0.0.1, for the user guest. */
  readonly url: string
  /**
   * Does what an operator or a fault would do, and resolves to the lines of the answer.
   * `control('kill')` and `control('start')` restart the broker, `control('advance', 60_000)` lets
   * 60,000 ms pass, `control('list', 'queues')` lists the queues. The manual backhop(1) lists all
   * commands.
   *
   * @throws BackhopError if the command is unknown, or failed
   * @throws StateError if the broker is closed
   */
  control (...words: (string | number)[]): Promise<string[]>
  /** Ends the broker, with all its messages. It may be called again. */
  close (): Promise<void>
  [Symbol.asyncDispose] (): Promise<void>
}

/** Options of {@link startBroker}. */
export interface BrokerOptions {
  /** The version of RabbitMQ; default: "4.3". */
  version?: '3.10' | '4.0' | '4.3'
  /** "skip", the default, or "real" to let waits take their time. */
  clock?: 'skip' | 'real'
}

/**
 * Starts a model of RabbitMQ.
 *
 *     test('a purge is parked after its last attempt', async t => {
 *       const broker = await startBroker(t)               // ends after the test
 *       const connection = await amqplib.connect(broker.url)
 *       // your consumer, and your assertions
 *     })
 *
 * @param test the context of a test of node:test, after which the broker ends
 * @throws StateError if the package was built without the command, which has the model
 * @throws BackhopError if the version or clock is unknown
 */
export function startBroker (test: { after (end: () => Promise<void>): void }, options?: BrokerOptions): Promise<Broker>
export function startBroker (options?: BrokerOptions): Promise<Broker>
