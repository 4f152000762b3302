/**
 * Retries over amqplib, with its promise API or its callback API.
 *
 *     const { Retrier } = require("backhop/amqplib")
 *     const retrier = new Retrier(channel, { queue: "cdn-purge", policy })
 *     const consumer = await retrier.consume(async (message) => {
 *       await purge(message.body)                       // resolves: ack; throws: retry
 *     }, { prefetch: 100 })
 *
 * The retrier publishes copies on a confirm channel of its own, on the connection of your channel.
 * Your channel stays as it is, also if it is a confirm channel. The retrier acknowledges a failed
 * message after the broker confirmed its copy. Any number of copies may be in flight.
 *
 * amqplib cannot keep everything of a message. It loses the width of integers and floats, integers
 * beyond 2^53, strings that are not UTF-8, negative decimals, and values nested deeper than 90
 * levels. It cannot write headers beyond 64 KiB. The worker keeps all of them.
 *
 * A problem that Backhop handles becomes a warning of the process (type BackhopWarning). Its code
 * is BACKHOP_ and the name of the event (see `onEvent`), or one of these:
 *
 *     BACKHOP_CRASHED         a message's consumers were lost, and it waits
 *     BACKHOP_ACKNOWLEDGED    a delivery was acknowledged twice, or was consumed with noAck
 *     BACKHOP_CHOICE          a predicate failed
 *     BACKHOP_LISTENER        onEvent or a bridge failed
 *
 * Each retry is logged with NODE_DEBUG=backhop.
 *
 * @packageDocumentation
 */

import { Message as BaseMessage } from '../../index.js'
import { BaseRetrier, type ConsumeOptions, type Consumption, type RetrierOptions } from '../retrier.js'

export type { ConsumeOptions, Consumption, RetrierOptions } from '../retrier.js'

/** A channel of amqplib's, of either API. */
export interface Channel {
  readonly connection: object
}

/** A message of amqplib's, from `consume` or `get`. */
export interface AmqplibMessage {
  readonly content: Buffer
  readonly fields: {
    readonly deliveryTag: number
    readonly redelivered: boolean
    readonly exchange: string
    readonly routingKey: string
  }
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  readonly properties: { readonly headers?: { readonly [name: string]: any } | undefined }
}

/** A message of amqplib's. NestJS gives it as a Record. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Incoming = AmqplibMessage | Record<string, any>

/** The message that a handler gets. It has amqplib's `fields` and `properties` too. */
export class Message extends BaseMessage {
  private constructor ()
  /**
   * amqplib's fields: deliveryTag, redelivered, exchange and routingKey of this delivery,
   * consumerTag.
   */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  readonly fields: { readonly [name: string]: any } & AmqplibMessage['fields']
  /** amqplib's properties: contentType, messageId, headers and so on. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  readonly properties: { readonly [name: string]: any } & AmqplibMessage['properties']
}

/**
 * Acknowledges messages whose handler succeeds, and retries the others.
 *
 * Before you close the connection, `await retrier.drain()`; otherwise unconfirmed messages are
 * redelivered. After you reconnect, make a new retrier. A message of a closed channel is never
 * settled on another one.
 */
export class Retrier extends BaseRetrier {
  /** Makes a retrier and declares its topology. Throws as the constructor and `declare`. */
  static declare (channel: Channel, options: RetrierOptions): Promise<Retrier>
  /**
   * @param channel your channel; null if you give one to `errorHandler`, `read` and `wrap` later
   * @throws {@link StrategyError} if the strategy cannot serve the policy; the text names one that
   *   can
   * @throws {@link InvalidNameError} if a name cannot be used
   */
  constructor (channel: Channel | null, options: RetrierOptions)
  /**
   * Treats the topology as the mode says, see {@link BaseRetrier.declare}.
   *
   * @param channel a channel of the connection to use; default: the retrier's
   */
  override declare (channel?: Channel): Promise<void>
  /**
   * Checks the topology, see {@link BaseRetrier.verify}.
   *
   * @param channel a channel of the connection to use; default: the retrier's
   */
  override verify (channel?: Channel): Promise<void>
  /**
   * Calls `declare`, and consumes the work queue with manual acknowledgement, on a channel of its
   * own.
   *
   * If the broker cancels the consumer or closes its channel, the retrier consumes again after the
   * back-off. If the connection is lost, the consumer ends, and `closed` resolves to the error.
   *
   * @param handle called with each message; the message is acknowledged if it resolves or returns,
   *   and retried otherwise
   * @param options see {@link ConsumeOptions}
   * @throws {@link MissingError} if the work queue does not exist; further errors as of `declare`
   */
  consume (handle: (message: Message) => unknown, options?: ConsumeOptions): Promise<Consumption>
  /**
   * Returns a callback for `channel.consume` (without noAck) that hands each message to `handle`.
   *
   * If the handler resolves or returns, the message is acknowledged. If it throws, the message is
   * retried or parked. While a breaker is open, your consumer goes on: its messages are held, and
   * after 30 s they wait in a wait queue. Once a minute the retrier looks for the return exchange,
   * as a {@link Consumption} does.
   *
   * @param options `channel`: the channel that consumes; default: the retrier's. `cancelled`:
   *   called if the broker cancels the consumer, for example because the queue is deleted. amqplib
   *   then passes null instead of a message. The process gets a warning too. An exception of
   *   `cancelled` is an uncaughtException
   */
  wrap (
    handle: (message: Message) => unknown,
    options?: { channel?: Channel | undefined, cancelled?: (() => void) | undefined }
  ): (incoming: AmqplibMessage | null) => Promise<void> | void
  /**
   * Returns a function for a framework to call if a handler threw, like the `errorHandler` of
   * NestJS integrations. The framework acknowledges the messages that succeed.
   *
   * It does not check the poison guard, and emits no events of messages that succeed. Events of a
   * failed message have neither duration nor lateness, and there is no span. A breaker does not see
   * these messages.
   */
  errorHandler (): (channel: Channel, incoming: AmqplibMessage, error: unknown) => void
  /**
   * Returns the message for a handler that you call yourself. A breaker does not see this call.
   * Pass it to `settle` afterwards. Emits delivered, and does not check the poison guard.
   *
   * @param channel the channel that it came by; default: the retrier's
   */
  read (incoming: Incoming, channel?: Channel): Message
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
