import type { Duration } from './types.js'

/**
 * Throw this to retry the message after `delay` at the earliest. The policy's delay may be longer,
 * and its maxRetryAfter is the upper bound.
 *
 *     throw new RetryAfter(response.headers.get("retry-after"), error)   // "120", a date, or null
 *
 * If the delay is missing, or is a text that is malformed, "0" or a date that is over, the policy's
 * delay counts. `only`, `never` and `policies` then see the error itself.
 */
export class RetryAfter extends Error {
  /**
   * @param delay the shortest delay: a duration, a Date, or the value of HTTP's header Retry-After.
   *   null, undefined and NaN mean no delay.
   * @param reason the reason for the message's history: a text, or the error
   * @throws {@link ArgumentError} if `delay` is negative or of another type; its cause is the
   *   reason
   */
  constructor (delay: Duration | Date | null | undefined, reason?: string | Error, options?: { cause?: unknown })
  /** In milliseconds; undefined if there is none. */
  readonly delay: number | undefined
}

/**
 * Throw this if the downstream is busy: the message waits, and this is no attempt. After
 * maxDeferrals of the policy, and with the strategies reject and native, it is a failed attempt, as
 * RetryAfter.
 *
 *     throw new Throttled(response.headers.get("retry-after"), "429")
 */
export class Throttled extends RetryAfter {
  /**
   * @param options `wholeQueue`: also opens the breaker of the consumer for this delay; default
   *   false
   */
  constructor (
    delay: Duration | Date | null | undefined, reason?: string | Error,
    options?: { cause?: unknown, wholeQueue?: boolean | undefined }
  )
  readonly wholeQueue: boolean
}

/** Throw this to park the message now: no attempt can succeed. */
export class Park extends Error {
  /** @param reason a text, or the error */
  constructor (reason?: string | Error, options?: { cause?: unknown })
}

/** Throw this to acknowledge the message and to keep no copy: it is not needed any more. */
export class Drop extends Error {
  constructor (reason?: string | Error, options?: { cause?: unknown })
}
