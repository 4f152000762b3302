import type { Duration } from './types.js'

/** The formula of the delays. */
export type Kind = 'exponential' | 'linear' | 'fixed' | 'steps'
/** The random part of the delays. */
export type Jitter = 'none' | 'spread' | 'equal' | 'full' | 'decorrelated'

/**
 * Options of a Policy. Durations are milliseconds or strings like `"10s"`, from 1 ms to three
 * years.
 */
export interface PolicyOptions {
  /** Delay after the first failure; default 1 s. Not allowed with `steps`. */
  initial?: Duration | undefined
  /** Factor from one delay to the next, 1 or more; default 2. Only for the kind exponential. */
  factor?: number | undefined
  /** Upper bound of every delay, jitter included; default 5 min, with `steps` none. */
  max?: Duration | undefined
  /**
   * The jitter: a share from 0 to 1, or a kind; default 0.2.
   *
   *     0.2               spreads each delay by 20 % to either side
   *     "none"            no jitter
   *     "equal"           from half the delay up to the delay
   *     "full"            from 0 up to the delay
   *     "decorrelated"    depends on the previous delay
   */
  jitter?: number | Jitter | undefined
  /**
   * Number of attempts, the first one included; 0: no limit. Default 10; with `steps` one more than
   * there are steps.
   */
  maxAttempts?: number | undefined
  /**
   * The formula of the nth delay; default `"exponential"`, with `steps` `"steps"`.
   *
   *     "exponential"     initial * factor^(n-1)
   *     "linear"          initial * n
   *     "fixed"           initial
   *     "steps"           the nth of `steps`
   */
  kind?: Kind | undefined
  /** The delays in order; implies the kind steps. */
  steps?: readonly Duration[] | undefined
  /**
   * Age, from the first failure, after which no retry starts: the message is parked. 0 (default):
   * no limit.
   */
  maxAge?: Duration | undefined
  /** Upper bound of the delay of a RetryAfter; 0 ignores RetryAfter; default 24 h. */
  maxRetryAfter?: Duration | undefined
  /**
   * Number of lost consumers, as quorum queues count them, after which the message waits before its
   * next delivery. Each further loss makes the delay longer; after 16 of them the message is
   * parked. 0: no limit; default 5.
   */
  maxCrashes?: number | undefined
  /**
   * How often Throttled can defer a message; each later Throttled is a failed attempt. 0: no limit;
   * default 100.
   */
  maxDeferrals?: number | undefined
}

/** The delay after one failure, in milliseconds. */
export interface PreviewRow {
  /** Number of the failure: 1, 2, ... */
  attempt: number
  lowest: number
  mean: number
  highest: number
  /** Sum of the means up to this attempt. */
  total: number
  /**
   * Number of wait queues of the ladder over which messages are spread that fail together; 0
   * without a ladder.
   */
  rungs: number
}

/** The delays of a policy: an array of rows that prints as a table. */
export interface Preview extends ReadonlyArray<PreviewRow> {
  toString (): string
}

/**
 * The rules for delays and limits. A policy never changes.
 *
 *     > new Policy({ initial: "10s", factor: 3, max: "1h", jitter: 0.2, maxAttempts: 8 }).preview()
 *     failure       lowest         mean      highest        total  rungs
 *           1          8 s         10 s       12.5 s         10 s      3
 *           2         20 s         30 s         40 s         40 s      4
 *           3    1 min 3 s   1 min 30 s    2 min 5 s   2 min 10 s      4
 *           4   3 min 20 s   4 min 30 s   6 min 40 s   6 min 40 s      4
 *           5  10 min 30 s  13 min 30 s  16 min 40 s  20 min 10 s      3
 *           6  26 min 40 s  40 min 30 s  52 min 30 s     1 h 40 s      4
 *           7  33 min 20 s  48 min 36 s  52 min 30 s   1 h 49 min      3
 */
export class Policy {
  /**
   * @throws {@link PolicyError} if a field is outside its range or contradicts another field
   * @throws {@link ArgumentError} if a field has the wrong type
   */
  constructor (options?: PolicyOptions)
  readonly kind: Kind
  readonly jitter: Jitter
  /** Number of attempts, the first one included; 0: no limit. */
  readonly maxAttempts: number
  /** Upper bound of every delay, in milliseconds. */
  readonly max: number
  /** Age after which no retry starts, in milliseconds from the first failure; 0: no limit. */
  readonly maxAge: number
  /** Upper bound of the delay of a RetryAfter, in milliseconds; 0 ignores RetryAfter. */
  readonly maxRetryAfter: number
  /** Number of lost consumers after which a message waits before its next delivery; 0: no limit. */
  readonly maxCrashes: number
  /** How often Throttled can defer a message; 0: no limit. */
  readonly maxDeferrals: number
  /**
   * Returns the delay after a failure, in milliseconds.
   *
   * @param attempt number of the failure: 1, 2, ...
   * @param options `previous`: the delay before this one, which jitter decorrelated needs;
   *   `random`: a number from 0 to below 1, default 0.5
   */
  delay (attempt: number, options?: { previous?: Duration, random?: number }): number
  /** Returns the delay after a failure by the formula, without the rounding of a topology. */
  row (attempt: number): PreviewRow
  /**
   * Returns the lowest, mean and highest delay after each failure, and the running total of the
   * means.
   *
   * The rows have the delays of a ladder with default settings. For another topology use its own
   * `preview`. If the ladder cannot serve the policy, the rows follow the formula.
   *
   * @param failures number of rows, at most 10,000; default: one per retry, at most 20
   */
  preview (failures?: number): Preview
  /**
   * Returns the options of the policy, for JSON: `new Policy(JSON.parse(text))` makes an equal one.
   */
  toJSON (): PolicyOptions
}
