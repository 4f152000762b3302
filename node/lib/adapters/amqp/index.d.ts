/**
 * Retries over node-amqp (the package amqp, version 0.2.7).
 *
 *     const { Retrier } = require("backhop/amqp")
 *     const retrier = new Retrier(connection, { queue: "cdn-purge", policy })
 *     const consumer = await retrier.consume(async (message) => {
 *       await purge(message.body)                       // resolves: ack; throws: retry
 *     }, { prefetch: 10 })
 *
 * The retrier publishes copies on a confirm channel of its own, on your connection. It acknowledges
 * a failed message after the broker confirmed its copy. Any number of copies may be in flight. If
 * node-amqp reconnects and subscribes again, the retrier goes on. A delivery of a lost connection
 * is never settled on the new one.
 *
 * Copies keep the bytes of headers and properties, also of types that node-amqp reads wrongly:
 * 64-bit integers, doubles, decimals and timestamps. Read such values from `message.delivery`, not
 * from node-amqp's `headers`. node-amqp closes its connection for headers of some
 * types: int16, uint8, uint16, uint32, and a nested table with a header named hasOwnProperty.
 *
 * Make the connection with
 * `clientProperties: { capabilities: { "connection.blocked": true, consumer_cancel_notify: true }
 * }`. Otherwise the broker does not report that it blocks publishes, or that it cancels a consumer.
 * See backhop/amqplib for its warnings.
 *
 * @packageDocumentation
 */

import { Message as BaseMessage } from '../../index.js'
import { BaseRetrier, type ConsumeOptions, type Consumption, type RetrierOptions } from '../retrier.js'

export type { ConsumeOptions, Consumption, RetrierOptions } from '../retrier.js'

/**
 * The message that a handler gets; from `wrap` it is the fourth argument. It has node-amqp's fields
 * too.
 */
export class Message extends BaseMessage {
  private constructor ()
  /** node-amqp's message, the fourth argument of its listener. The retrier acknowledges it. */
  readonly incoming: any // eslint-disable-line @typescript-eslint/no-explicit-any
  /** `{ data, contentType }`, or parsed JSON; undefined for a message of `read`. */
  readonly payload: any // eslint-disable-line @typescript-eslint/no-explicit-any
  /** node-amqp's third argument of a listener; undefined for a message of `read`. */
  readonly deliveryInfo: any // eslint-disable-line @typescript-eslint/no-explicit-any
}

/**
 * A handler for `wrap`: a listener of `queue.subscribe` whose fourth argument is a {@link Message}.
 * `payload` is `{ data, contentType }`, or parsed JSON. The bytes are `message.content`.
 */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Handler = (payload: any, headers: any, deliveryInfo: any, message: Message) => unknown

/** Acknowledges messages whose handler succeeds, and retries the others. */
export class Retrier extends BaseRetrier {
  /**
   * Makes a retrier and declares its topology when the connection is ready. Throws as the
   * constructor and `declare`.
   */
  static declare (connection: object, options: RetrierOptions): Promise<Retrier>
  /**
   * @param connection a connection of node-amqp's createConnection; make the retrier before you
   *   subscribe
   * @throws {@link StrategyError} if the strategy cannot serve the policy; the text names one that
   *   can
   * @throws {@link InvalidNameError} if a name cannot be used
   */
  constructor (connection: object, options: RetrierOptions)
  /**
   * Calls `declare`, and subscribes to the work queue with manual acknowledgement. Nothing else on
   * this connection may subscribe to this queue.
   *
   * If node-amqp reconnects, it subscribes again. If the broker cancels the consumer or closes its
   * channel, the retrier subscribes again after the back-off.
   *
   * @param handle called with each message; the message is acknowledged if it resolves or returns,
   *   and retried otherwise
   * @param options see {@link ConsumeOptions}
   * @throws {@link MissingError} if the work queue does not exist; further errors as of `declare`
   */
  consume (handle: (message: Message) => unknown, options?: ConsumeOptions): Promise<Consumption>
  /**
   * Returns a listener for `queue.subscribe({ ack: true, prefetchCount }, ...)` that hands each
   * message to `handle`.
   *
   * If the handler resolves or returns, the message is acknowledged. If it throws, the message is
   * retried or parked. A delivery of another queue, or of a subscription without `ack: true`, is
   * not settled, and causes a warning. While a breaker is open, your consumer goes on: its messages
   * are held, and after 30 s they wait in a wait queue. Once a minute the retrier looks for the
   * return exchange, as a {@link Consumption} does.
   */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  wrap (handle: Handler): (payload: any, headers: any, deliveryInfo: any, incoming: any) => Promise<void>
  /**
   * Returns the message for a handler that you call yourself. A breaker does not see this call.
   * Pass it to `settle` afterwards. Emits delivered, and does not check the poison guard.
   *
   * @param incoming the fourth argument of a subscribed listener
   */
  read (incoming: any): Message // eslint-disable-line @typescript-eslint/no-explicit-any
  /**
   * Calls a handler with a message of `read`, and returns its result. You still have to call
   * `settle`.
   *
   * The call runs within the span of the attempt if `onEvent` has tracing. The event's duration is
   * measured from here.
   *
   * @throws the value that the handler throws
   */
  handle<T> (message: Message, handler: (message: Message) => T): T
  /**
   * Settles a message of `read`. A second call has no effect.
   *
   * @param thrown the value that the handler threw, which may be undefined; leave it out if the
   *   handler succeeded
   */
  settle (message: Message, ...thrown: [] | [unknown]): void
}
