import type { Duration, ErrorClass, Policy, Text, Topology, TopologyOptions } from './index.js'

/** What a retrier needs to know; a topology's options among it. */
export interface RetrierOptions extends TopologyOptions {
  /** Classes of errors that park a message at once. */
  never?: Iterable<ErrorClass> | undefined
  /** As History's. */
  legacyCounter?: Text | undefined
  /** As History's. */
  waitQueues?: Iterable<Text> | undefined
  /** After so long without a confirm a copy is published again; default 30 s. */
  confirmTimeout?: Duration | undefined
  /** Gives milliseconds since the epoch; default: the system's. */
  clock?: (() => number) | undefined
  /** Gives that many random bytes; default: the system's. */
  random?: ((count: number) => Uint8Array) | undefined
}

/** What the retriers over each client share. */
export abstract class BaseRetrier {
  /** The exchanges, queues and bindings that the strategy needs; `topology.definitions()` is their JSON. */
  readonly topology: Topology
  /** How long, how often, how random, when to give up. */
  readonly policy: Policy
  /** How many copies are not confirmed yet; their originals are unacknowledged. */
  readonly pending: number
  /**
   * Declares exchanges, queues and bindings, on channels of its own. Where copies come back for want of a queue later,
   * it declares again.
   *
   * @param options `verify`: make nothing, and say what is missing or different. A rung that only a handler's RetryAfter
   * can need may be missing, as it is made on demand, unless the user may not declare. AMQP cannot look at bindings
   * @throws {@link ClashError} where an exchange or queue exists with other arguments
   * @throws {@link MissingError} where the work queue does not exist; with verify, anything
   * @throws {@link AccessError} where the user may not declare
   * @throws {@link BrokerError} where the broker cannot serve the strategy
   * @throws {@link ConnectionFailedError} where the connection is lost
   */
  declare (options?: { verify?: boolean | undefined }): Promise<void>
  /** Makes nothing, and rejects with what is missing or different, as `declare({ verify: true })`. */
  verify (): Promise<void>
  /**
   * Resolves when no handler of `wrap` runs, every copy is confirmed and every acknowledgement is with the broker, so
   * that you can close the connection. Cancel your consumer before.
   *
   * @param options `timeout`: how long to wait; default: as long as it takes
   * @throws {@link WaitTimeoutError} what is not confirmed in that time is delivered again
   */
  drain (options?: { timeout?: Duration | undefined }): Promise<void>
  /**
   * Sends parked messages back to their work queue, as if they had never failed. It ends with the messages that were
   * parked when it began.
   *
   * @param options `limit`: how many at most
   * @returns how many went
   * @throws {@link PublishError} where a message could not be published; it is parked still
   * @throws {@link MissingError} where there is no parked queue
   */
  replay (options?: { limit?: number | undefined }): Promise<number>
}
