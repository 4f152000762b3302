/**
 * For your tests: what becomes of a message, with your handler and your policy, without a broker and without waiting.
 *
 *     const { rehearse } = require("backhop/testing")
 *
 *     test("a full queue is tried again and then parked", async () => {
 *       const rehearsal = await rehearse(handle, "/index.html", { policy })
 *       assert.equal(rehearsal.outcome, "parked")
 *       console.log(rehearsal)                        // prints as a table
 *     })
 *
 * The decisions are those of the core, as in production; of the broker, what waits comes back when its delay is over, with
 * the headers that retries count by.
 *
 * @packageDocumentation
 */

import { type CommonOptions, Duration, Message, Plan } from './index.js'

/** A clock that goes on only when it is told to. */
export class Clock {
  /** @param start a Date, or milliseconds since the epoch; default: 2026 */
  constructor (start?: number | Date)
  /** Milliseconds since the epoch. */
  now: number
  /** Lets time pass. */
  advance (by: Duration): void
}

/**
 * A function that gives so many random bytes, the same in every run.
 *
 * @param seed another one gives others
 */
export function seededRandom (seed?: number): (count: number) => Buffer

/** One call of the handler, or of none where the poison guard parked the message before. */
export interface Attempt {
  number: number
  /** Milliseconds since the first one began. */
  at: number
  /** What the handler threw, if it did. */
  error?: unknown
  /** What was decided then. */
  plan: Plan
  /** How long the message waits after it, in milliseconds; 0 where it does not. */
  delay: number
}

/** What became of a message: an array of attempts that prints as a table. */
export class Rehearsal extends Array<Attempt> {
  /** `"waiting"` where it would go on. */
  readonly outcome: 'acked' | 'parked' | 'dropped' | 'waiting'
  /** Why it was parked: exhausted, permanent, too-old, oversized or poison; else "". */
  readonly reason: string
  /** How long it waited after each attempt that was followed by another, in milliseconds. */
  readonly delays: number[]
  /** What the handler threw, in order. */
  readonly errors: unknown[]
}

/** A topology's and a retrier's, as far as no broker is needed; the queue is `"work"` by default. */
export interface RehearseOptions extends Omit<CommonOptions, 'mode' | 'confirmTimeout' | 'backOff'> {
  /** Where the message was published; default: the default exchange. */
  exchange?: string
  /** Default: the queue's name. */
  routingKey?: string
  headers?: { readonly [name: string]: unknown }
  /** As `{ messageId: "42" }`. */
  properties?: { readonly [name: string]: unknown }
  /** Default: a new one. */
  clock?: Clock
  /** Default: `seededRandom(0)`. */
  random?: (count: number) => Buffer
  /** Ends a rehearsal that would go on; default 100. */
  mostAttempts?: number
}

/**
 * Hands a message to a handler until it is settled for good. The message has what every message has, and what amqplib's and
 * node-amqp's have besides: `fields`, `properties`, `payload`, `deliveryInfo`.
 *
 * @param content the message's body
 */
export function rehearse (handle: (message: any) => unknown, content?: string | Uint8Array, options?: RehearseOptions): Promise<Rehearsal>
