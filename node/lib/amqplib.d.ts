/**
 * Retries over amqplib, its promise API or its callback API.
 *
 *     const { Retrier } = require("backhop/amqplib")
 *     const retrier = new Retrier(channel, { queue: "cdn-purge", policy })
 *     const consumer = await retrier.consume(async (message) => {
 *       await purge(message.body)                       // resolve: ack; throw: later
 *     }, { prefetch: 100 })
 *
 * It publishes copies on a confirm channel of its own, on the connection of your channel, which stays as it is: also
 * where yours is a confirm channel, as returns and confirms of the copies are nobody else's. A message that failed is
 * acknowledged when the broker confirmed its copy. Confirms are pipelined: nothing waits for one.
 *
 * What amqplib cannot keep of a message: the width of integers and floats (it writes the smallest integer, and doubles;
 * a double without a fraction becomes an integer), integers beyond 2^53, strings that are not UTF-8, negative decimals,
 * what is nested deeper than 90 levels. Headers beyond 64 KiB it cannot write. The worker keeps them all.
 *
 * What goes wrong and is mended becomes a warning of the process (type BackhopWarning), whose code is BACKHOP_ and the name of
 * the event (see `onEvent`), as BACKHOP_PARKED, BACKHOP_RETURNED, BACKHOP_UNCONFIRMED; or BACKHOP_CRASHED (a message's
 * consumers were lost, and it waits), BACKHOP_ACKNOWLEDGED (a delivery was acknowledged twice, or needed none), BACKHOP_CHOICE
 * (a predicate gave no answer), BACKHOP_LISTENER (onEvent, or a bridge, failed). What is retried is told with NODE_DEBUG=backhop.
 *
 * @packageDocumentation
 */

import { Message as BaseMessage } from './index.js'
import { BaseRetrier, type Consumption, type RetrierOptions } from './retrier.js'

export type { Consumption, RetrierOptions } from './retrier.js'

/** A channel of amqplib's, of either API. */
export interface Channel {
  readonly connection: object
}

/** A message of amqplib's, as `consume` and `get` give it. */
export interface Incoming {
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

/** What a handler gets: what every message has, and amqplib's `fields` and `properties`; `content` is amqplib's. */
export class Message extends BaseMessage {
  private constructor ()
  /** amqplib's: deliveryTag, redelivered, exchange and routingKey of this delivery, consumerTag. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  readonly fields: { readonly [name: string]: any } & Incoming['fields']
  /** amqplib's: contentType, messageId, headers and so on. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  readonly properties: { readonly [name: string]: any } & Incoming['properties']
}

/**
 * Acknowledges what a handler did, and lets what it could not do come back later.
 *
 * Before you close the connection, `await retrier.drain()`: what is unconfirmed then is delivered again. Where you
 * connect again, make a new retrier; a message of a channel that was closed is never settled on another one.
 */
export class Retrier extends BaseRetrier {
  /** A retrier whose topology is declared. Throws as the constructor, and rejects as `declare`. */
  static declare (channel: Channel, options: RetrierOptions): Promise<Retrier>
  /**
   * @param channel yours; null where there is none yet, for `errorHandler`, `read` and `settle`, which are given one
   * @throws {@link StrategyError} where the strategy cannot serve the policy; the text names one that does
   * @throws {@link InvalidNameError} for a name that cannot be used
   */
  constructor (channel: Channel | null, options: RetrierOptions)
  /**
   * As the mode says, see {@link BaseRetrier.declare}.
   *
   * @param channel on whose connection; default: the retrier's, and needed where it has none
   */
  override declare (channel?: Channel): Promise<void>
  /** Makes nothing, see {@link BaseRetrier.verify}; the channel as for `declare`. */
  override verify (channel?: Channel): Promise<void>
  /**
   * Declares as the mode says, and consumes the retrier's queue with manual acknowledgement, on a channel of its own. Where
   * the broker cancels the consumer or closes its channel, it consumes again, after the back-off. With its connection it
   * ends: `closed` resolves to why.
   *
   * @param handle its message is acknowledged where it resolves or returns, and comes back later where it rejects or throws
   * @param options `prefetch`: how many messages it has in hand at most, 1 to 65535; default 100
   * @throws {@link MissingError} where the work queue does not exist, and else as `declare`
   */
  consume (handle: (message: Message) => unknown, options?: { prefetch?: number | undefined }): Promise<Consumption>
  /**
   * A callback for `channel.consume` (without noAck) that hands each message to `handle`. Where that resolves or
   * returns, the message is acknowledged; where it rejects or throws, the message comes back later, or is parked.
   *
   * @param options `channel`: on which it consumes, default the retrier's; `cancelled`: called where the broker ends
   * the consumer, as it does when the queue is deleted (amqplib gives null for a message then), and a warning is given;
   * what it throws is an uncaughtException
   */
  wrap (
    handle: (message: Message) => unknown,
    options?: { channel?: Channel | undefined, cancelled?: (() => void) | undefined }
  ): (incoming: Incoming | null) => Promise<void> | void
  /**
   * What a framework calls with a message whose handler threw, as the `errorHandler` of NestJS integrations; the
   * framework acknowledges what went well. The poison guard is not asked. Of what goes well nothing is told; of what failed
   * neither how long it took nor how late it came is known, and there is no span.
   */
  errorHandler (): (channel: Channel, incoming: Incoming, error: unknown) => void
  /**
   * The message as a handler gets it, for who calls the handler himself; hand it to `settle` in the end. It is `delivered` with
   * that. The poison guard is not asked.
   *
   * @param channel that it came by; default: the retrier's
   */
  read (incoming: Incoming, channel?: Channel): Message
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
