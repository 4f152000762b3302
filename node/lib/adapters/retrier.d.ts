import type { BackhopError, CommonOptions, Duration, Health, Policy, Topology } from '../index.js'

/** Options of a retrier. */
export interface RetrierOptions extends CommonOptions {
  /** Returns milliseconds since the epoch; default: the system's clock. */
  clock?: (() => number) | undefined
  /** Returns `count` random bytes; default: the system's. */
  random?: ((count: number) => Uint8Array) | undefined
}

/** Options of `consume`. */
export interface ConsumeOptions {
  /** Highest number of messages in hand, 1 to 65535; default 100. */
  prefetch?: number | undefined
  /**
   * Longest time of a handler, at most 24 h; default: no limit. At the limit the consumer aborts
   * `message.signal`, and the attempt has failed. A handler that blocks the event loop fails when
   * it returns.
   */
  timeout?: Duration | undefined
}

/**
 * A consumer that `consume` made. Once a minute it looks for the exchange that retries come back
 * by, and binds the work queue to it again. If the exchange is missing, it declares the topology
 * again, with mode create, and emits `unavailable`.
 */
export interface Consumption extends Health {
  /**
   * Stops consuming. No further message reaches a handler from now on. Handlers that run may
   * finish, and their `message.signal` is aborted. `drain` waits for them.
   *
   * Resolves when the broker has cancelled the consumer. Resolves at once if the broker blocks the
   * connection: during a memory or disk alarm the broker does not answer.
   */
  cancel (): Promise<void>
  /**
   * Resolves when it consumes no more: to the error that ended it, or to undefined if it was
   * cancelled.
   */
  readonly closed: Promise<BackhopError | undefined>
  /** Cancels and drains at the end of an `await using` block. */
  [Symbol.asyncDispose] (): Promise<void>
}

/**
 * The part of a retrier that is the same over each client.
 *
 * A success whose acknowledgement was lost holds for the next delivery to this process, if the
 * message has an id. Backhop acknowledges that delivery without a call of the handler.
 */
export abstract class BaseRetrier {
  /** The exchanges, queues and bindings of the work queue. */
  readonly topology: Topology
  /** The policy of the topology. */
  readonly policy: Policy
  /** Number of unconfirmed copies. Their originals are unacknowledged. */
  readonly pending: number
  /**
   * Treats the topology as the option `mode` says, on channels of its own. By default it declares
   * the topology, and declares it again if copies are returned later.
   *
   * @throws {@link ClashError} if an exchange or queue exists with other arguments
   * @throws {@link MissingError} if the work queue does not exist; with mode verify, if anything is
   *   missing
   * @throws {@link AccessError} if the user lacks a permission
   * @throws {@link BrokerError} if the broker cannot serve the strategy
   * @throws {@link ConnectionFailedError} if the connection is lost
   */
  declare (): Promise<void>
  /**
   * Checks the topology and declares nothing, in every mode. Rejects with an error that lists each
   * missing or different part. AMQP cannot check bindings.
   *
   * With mode create, a rung that only a RetryAfter can need may be missing, if the user may
   * declare it.
   */
  verify (): Promise<void>
  /**
   * Cancels the consumers of `consume`. Resolves when no handler runs, all copies are confirmed and
   * all acknowledgements have reached the broker. Then you can close the connection. Cancel your
   * own consumers before. The channels that the retrier opened are closed; it opens others if you
   * use it again.
   *
   * It does not wait for a handler that calls it, as this handler may await it. After 20 s a
   * warning reports the handlers that still run.
   *
   * @param options `timeout`: longest time to wait; default: no limit
   * @throws {@link WaitTimeoutError} if the time is over; unconfirmed messages will be redelivered
   */
  drain (options?: { timeout?: Duration | undefined }): Promise<void>
  /** Drains at the end of an `await using` block. */
  [Symbol.asyncDispose] (): Promise<void>
  /**
   * Moves parked messages back to their work queue, with a new count of attempts. Afterwards it
   * moves messages of this work queue from the namespace's unroutable queue: copies that returned
   * while the work queue was missing.
   *
   * @param most highest number of messages; default: all that are there when the replay begins
   * @returns the number of messages that were moved
   * @throws {@link PublishError} if a message could not be published, or the topology was never
   *   declared; the message stays parked
   * @throws {@link MissingError} if there is no parked queue
   * @throws {@link FrameError}, {@link ContentError} or {@link ChannelClosedError} if the broker
   *   refused a message because of its content. It stays parked; the messages behind it were moved
   */
  replay (most?: number): Promise<number>
}
