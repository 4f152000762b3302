import type { Message } from './message.js'
import type { Policy } from './policy.js'
import type { Duration, Errors, Text } from './types.js'

/** Options of a Breaker. A duration is from 1 ms to 24 h. */
export interface BreakerOptions {
  /**
   * Failures that are the downstream's: classes, predicates, or several of these. Other failures
   * count as nothing. Default: every failure but a permanent one.
   *
   * The time limit of handlers, and a RetryAfter or Throttled that was made without an error, are
   * always the downstream's.
   */
  errors?: Errors | undefined
  /**
   * Returns the key of a message: the host that it is for, or a tenant. Each key then has a breaker
   * of its own. A message whose key is open waits without an attempt, and its handler is not
   * called. The messages of other keys flow.
   *
   * At most 10,000 keys have a breaker: a further key replaces the one that was used least
   * recently. If the function throws, or returns another value, the attempt of the message has
   * failed.
   */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  key?: ((message: any) => Text | number | bigint) | undefined
  /** The window of calls, from 6 ms; default 1 min. */
  window?: Duration | undefined
  /** Number of calls in the window before a share of them counts; default 20. */
  leastCalls?: number | undefined
  /** Share of failures that opens it, 1 to 100; default 50. */
  failurePercent?: number | undefined
  /** Failures in a row that open it; 0: off; default 10. */
  rowFailures?: number | undefined
  /** A call that takes longer is slow; 0: off, the default. */
  slow?: Duration | undefined
  /** Share of slow calls that opens it, 1 to 100; default 100. */
  slowPercent?: number | undefined
  /** Successes in a row that close it, 1 to 1000; default 3. */
  probeSuccesses?: number | undefined
  /** A call that takes longer is lost; default 1 min. */
  probeTimeout?: Duration | undefined
  /**
   * Number of calls at once that ends the ramp after it closed, 1 to 65536; default 1024, or 64
   * with a key.
   */
  rampCalls?: number | undefined
  /** Makes each Throttled open it, as with `wholeQueue`; default false. */
  throttledOpens?: boolean | undefined
  /**
   * The pauses: how long it stays open. Its maxRetryAfter limits what a RetryAfter adds; other
   * limits are ignored. Default: 10 s, doubled up to 5 min, with a spread of 0.2.
   */
  pauses?: Policy | undefined
}

/** The state of a Breaker. */
export type BreakerState = 'closed' | 'open' | 'half-open' | 'disabled'

/**
 * A circuit breaker: spares a downstream that is down.
 *
 *     const api = new Breaker("api", {
 *       errors: [FetchError], pauses: new Policy({ initial: "5s", max: "2m" })
 *     })
 *     const worker = new Worker(url, { queue: "cdn-purge", breaker: api })
 *
 * It opens if enough calls of handlers failed. While it is open, no handler is called, and messages
 * wait without an attempt. After a pause one message at a time probes the downstream. After enough
 * successes it closes, and the number of calls at once grows again.
 *
 * Give one breaker to all retriers and workers of the process that call the same downstream.
 *
 * While the breaker is open, a consumer holds its messages. After 30 s it cancels its consumer, and
 * each held message waits in a wait queue. With the strategies reject and native it holds messages
 * until the breaker closes: the pauses must be shorter than the broker's consumer timeout.
 */
export class Breaker {
  /**
   * @param name of the downstream, for events, metrics and logs: 1 to 64 bytes
   * @throws {@link ArgumentError} if an option is unknown or out of its range
   */
  constructor (name: string, options?: BreakerOptions)
  readonly name: string
  /** True if each key has a breaker of its own. */
  readonly hasKey: boolean
  /**
   * The state. A pause that is over stays open until the next message.
   *
   * @throws {@link StateError} if the breaker has a key
   */
  readonly state: BreakerState
  /**
   * The reason of the state: `"14 of 20 failed in 60 s: TimeoutError"`.
   *
   * @throws {@link StateError} if the breaker has a key
   */
  readonly reason: string
  /** Returns the state of a key. A key that no message had is closed. */
  stateOf (key: Text | number | bigint): BreakerState
  /** Returns the reason of the state of a key. */
  reasonOf (key: Text | number | bigint): string
  /**
   * Opens it by hand. Failures and successes do not change this.
   *
   * @param options `duration`: how long, before it probes; default: until `close`. `key`: the key,
   *   if the breaker has one
   * @throws {@link StateError} if the key is missing, or the breaker has none
   */
  open (options?: { duration?: Duration | undefined, key?: Text | number | bigint | undefined }): void
  /**
   * Closes it by hand. The number of calls at once then grows from one.
   *
   * @throws {@link StateError} if the key is missing, or the breaker has none
   */
  close (options?: { key?: Text | number | bigint | undefined }): void
  /**
   * Disables it until `close` or `open`: each message reaches its handler, and no call counts.
   *
   * @throws {@link StateError} if the breaker has a key
   */
  disable (): void
}
