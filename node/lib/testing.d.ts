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
 * One call of the handler. If the poison guard parked the message, or the breaker was open, there was
 * no call.
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
