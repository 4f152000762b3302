import type { Breaker } from './breaker.js'
import type { Listener } from './observe/event.js'
import type { Policy } from './policy.js'
import type { Topology, TopologyOptions } from './topology.js'
import type { Duration, ErrorClass, ErrorPredicate, Errors, Text } from './types.js'

/** Options that a retrier and a worker have in common. */
export interface CommonOptions extends Omit<Partial<TopologyOptions>, 'policies'> {
  /** Replaces queue, policy and the other options of a topology. */
  topology?: Topology | undefined
  /**
   * How to treat the broker's topology, in `declare` and `consume`, and at each connect of a
   * worker.
   *
   *     "create"   declares what is missing (default)
   *     "verify"   checks that everything exists, and declares nothing
   *     "none"     does nothing
   */
  mode?: 'create' | 'verify' | 'none' | undefined
  /** Errors that park a message at once. */
  never?: Errors | undefined
  /**
   * Errors that are retried: any other error parks the message at once. Default: all errors are
   * retried.
   */
  only?: Errors | undefined
  /**
   * Policies for single errors: pairs of a class or a predicate and its Policy, or a Map. The first
   * match is used. All policies share one count of attempts. If you give a topology, it must serve
   * these policies (its `policies`).
   *
   * @throws {@link ForeignPolicyError} if the topology lacks a rung of one of them
   */
  policies?: Iterable<readonly [ErrorClass | ErrorPredicate, Policy]> | undefined
  /** Name of a header with the count of failures of earlier retry code. */
  legacyCounter?: Text | undefined
  /** Wait queues of earlier retry code: each expiry in one of them counts as a failure. */
  waitQueues?: Iterable<Text> | undefined
  /**
   * Time to wait for a confirm, at most one hour; default 30 s. After it one copy is published
   * again, and the others when the broker confirms that copy.
   */
  confirmTimeout?: Duration | undefined
  /**
   * Delays between attempts to publish, to consume and, for a worker, to connect. Its limits are
   * ignored. Default: 100 ms, doubled up to 10 s; half of each delay is random.
   */
  backOff?: Policy | undefined
  /**
   * The circuit breaker of the downstream that the handlers call. Other retriers and workers may
   * share it.
   *
   * @throws {@link StrategyError} if the breaker has a key, and the strategy is reject or native
   */
  breaker?: Breaker | undefined
  /**
   * Listeners to events. If a listener throws or rejects, that becomes a warning of the process
   * (BACKHOP_LISTENER), at most ten per second and queue.
   */
  onEvent?: Listener | undefined
}
