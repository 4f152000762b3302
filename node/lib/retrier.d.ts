import type { BackhopError, CommonOptions, Duration, Policy, Topology } from './index.js'

/** What a retrier needs to know. */
export interface RetrierOptions extends CommonOptions {
  /** Gives milliseconds since the epoch; default: the system's. */
  clock?: (() => number) | undefined
  /** Gives that many random bytes; default: the system's. */
  random?: ((count: number) => Uint8Array) | undefined
}

/** What `consume` began. */
export interface Consumption {
  /** Takes no more; handlers that run go on, and are told by `message.signal`. `drain` waits for them. */
  cancel (): Promise<void>
  /** Resolves once it consumes no more: to the error that ended it, or to undefined where it was cancelled. */
  readonly closed: Promise<BackhopError | undefined>
  /** Cancels and drains, as `await using` does at the end of a block. */
  [Symbol.asyncDispose] (): Promise<void>
}

/** What the retrier over each client has. */
export abstract class BaseRetrier {
  /** The exchanges, queues and bindings that the strategy needs; `topology.definitions()` is their JSON. */
  readonly topology: Topology
  /** How long, how often, how random, when to give up. */
  readonly policy: Policy
  /** How many copies are not confirmed yet; their originals are unacknowledged. */
  readonly pending: number
  /**
   * Does what the option `mode` says, on channels of its own: by default it declares exchanges, queues and bindings, and
   * where copies come back for want of a queue later, it declares again.
   *
   * @throws {@link ClashError} where an exchange or queue exists with other arguments
   * @throws {@link MissingError} where the work queue does not exist; with mode verify, anything
   * @throws {@link AccessError} where the user may not declare
   * @throws {@link BrokerError} where the broker cannot serve the strategy
   * @throws {@link ConnectionFailedError} where the connection is lost
   */
  declare (): Promise<void>
  /**
   * Makes nothing, whatever the mode, and rejects with what is missing or different. A rung that only a handler's
   * RetryAfter can need may be missing with the mode create, as it is made on demand then, unless the user may not declare.
   * AMQP cannot look at bindings.
   */
  verify (): Promise<void>
  /**
   * Resolves when no handler runs, every copy is confirmed and every acknowledgement is with the broker, so that you can
   * close the connection. It cancels what `consume` began; what you consume yourself with `wrap`, cancel before.
   *
   * @param options `timeout`: how long to wait; default: as long as it takes
   * @throws {@link WaitTimeoutError} what is not confirmed in that time is delivered again
   */
  drain (options?: { timeout?: Duration | undefined }): Promise<void>
  /** Drains, as `await using` does at the end of a block. */
  [Symbol.asyncDispose] (): Promise<void>
  /**
   * Sends parked messages back to their work queue, as if they had never failed; then those of this work queue that
   * came back while it was gone, from the namespace's unroutable queue.
   *
   * @param most how many at most; default: all that are there when it begins
   * @returns how many went
   * @throws {@link PublishError} where a message could not be published; it is parked still
   * @throws {@link MissingError} where there is no parked queue, or the topology was never declared
   * @throws {@link FrameError} {@link ContentError} {@link ChannelClosedError} where one was refused for what it is; it
   *   stays where it was, and those behind it went
   */
  replay (most?: number): Promise<number>
}
