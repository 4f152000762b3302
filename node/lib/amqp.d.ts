/**
 * Retries over node-amqp (the package amqp, version 0.2.7).
 *
 *     const { Retrier } = require("backhop/amqp")
 *     const retrier = new Retrier(connection, { queue: "cdn-purge", policy })
 *     const consumer = await retrier.consume(async (message) => {
 *       await purge(message.body)                       // resolve: ack; throw: later
 *     }, { prefetch: 10 })
 *
 * It publishes copies on a confirm channel of its own, on your connection. A message that failed is acknowledged when
 * the broker confirmed its copy. Confirms are pipelined: nothing waits for one. Where node-amqp connects again and
 * subscribes again, the retrier goes on; a delivery of the lost connection is never settled on the new one.
 *
 * Copies keep the bytes of headers and properties, so also what node-amqp itself reads wrongly: 64-bit integers,
 * doubles, decimals and timestamps. Read such values by `message.delivery`, and not in node-amqp's `headers`. A header
 * of the types int16, uint8, uint16, uint32 or a nested table with a header named hasOwnProperty ends node-amqp's
 * connection before anybody sees the message.
 *
 * Give the connection `clientProperties: { capabilities: { "connection.blocked": true, consumer_cancel_notify: true } }`, so
 * that the broker tells when it takes no publishes, and when it ends a consumer, as with its queue. Warnings are those of backhop/amqplib.
 *
 * @packageDocumentation
 */

import { Message as BaseMessage } from './index.js'
import { BaseRetrier, type Consumption, type RetrierOptions } from './retrier.js'

export type { Consumption, RetrierOptions } from './retrier.js'

/** What a handler gets, of `wrap` as its fourth argument: what every message has, and what node-amqp has read. */
export class Message extends BaseMessage {
  private constructor ()
  /** node-amqp's message, the fourth argument of its listener. The retrier acknowledges it. */
  readonly incoming: any // eslint-disable-line @typescript-eslint/no-explicit-any
  /** `{ data, contentType }`, or what JSON was parsed to; undefined of a message of `read`. */
  readonly payload: any // eslint-disable-line @typescript-eslint/no-explicit-any
  /** node-amqp's third argument of a listener; undefined of a message of `read`. */
  readonly deliveryInfo: any // eslint-disable-line @typescript-eslint/no-explicit-any
}

/**
 * A handler: as a listener of `queue.subscribe`, but for its fourth argument, and for what it returns. `payload` is
 * `{ data, contentType }`, or what JSON was parsed to; the bytes are `message.content`.
 */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Handler = (payload: any, headers: any, deliveryInfo: any, message: Message) => unknown

/** Acknowledges what a handler did, and lets what it could not do come back later. */
export class Retrier extends BaseRetrier {
  /**
   * A retrier whose topology is declared, once the connection is ready. Throws as the constructor, and rejects as
   * `declare`.
   */
  static declare (connection: object, options: RetrierOptions): Promise<Retrier>
  /**
   * @param connection of node-amqp's createConnection; make the retrier before you subscribe
   * @throws {@link StrategyError} where the strategy cannot serve the policy; the text names one that does
   * @throws {@link InvalidNameError} for a name that cannot be used
   */
  constructor (connection: object, options: RetrierOptions)
  /**
   * Declares as the mode says, and subscribes to the retrier's queue with manual acknowledgement. Where node-amqp connects
   * again, it subscribes again; where the broker cancels the consumer or closes its channel, the retrier does, after the
   * back-off. Nothing else of this connection is to subscribe to the queue.
   *
   * @param handle its message is acknowledged where it resolves or returns, and comes back later where it rejects or throws
   * @param options `prefetch`: how many messages it has in hand at most, 1 to 65535; default 100
   * @throws {@link MissingError} where the work queue does not exist, and else as `declare`
   */
  consume (handle: (message: Message) => unknown, options?: { prefetch?: number | undefined }): Promise<Consumption>
  /**
   * A listener for `queue.subscribe({ ack: true, prefetchCount }, ...)` that hands each message to `handle`. Where that
   * resolves or returns, the message is acknowledged; where it rejects or throws, the message comes back later, or is
   * parked. A delivery of another queue, or of a subscription without `ack: true`, is left alone, with a warning.
   */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  wrap (handle: Handler): (payload: any, headers: any, deliveryInfo: any, incoming: any) => Promise<void>
  /**
   * The message as a handler gets it, for who calls the handler himself; hand it to `settle` in the end. It is `delivered` with
   * that. The poison guard is not asked.
   *
   * @param incoming the fourth argument of a subscribed listener
   */
  read (incoming: any): Message // eslint-disable-line @typescript-eslint/no-explicit-any
  /**
   * Calls the handler with a message of `read`, within the span of its attempt where `onEvent` has tracing, and gives what it
   * gives: `settle` is still to be called. How long it took, and how late it came, are measured from here on.
   *
   * @throws what the handler throws, as it is
   */
  handle<T> (message: Message, handler: (message: Message) => T): T
  /**
   * Says what became of a message of `read`: nothing where it went well, or what its handler threw. What is settled
   * stays so: nothing happens the second time.
   */
  settle (message: Message, error?: unknown): void
}
