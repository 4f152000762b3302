import type { Registry } from 'prom-client'

import type { Bridge } from './index.js'

/**
 * Counts the events of retrier and worker, for prom-client to tell.
 *
 *     const counted = prometheus()
 *     new Retrier(channel, { queue, policy, onEvent: counted })
 *     new Worker(uri, { queue, policy, onEvent: counted })
 *
 * One, made once, serves all retriers and workers of a process. Labels are bounded: queue, error_type, reason, outcome.
 * It throws an ArgumentError, and registers nothing, where the registry has metrics of these names already.
 *
 * @param options `register`: where the metrics go; default: prom-client's own. `errorTypes`: the classes of errors to tell
 * apart, at most 32 (more are an ArgumentError); any other is "_OTHER"; default: the first 32 that are met
 */
export function prometheus (options?: {
  register?: Pick<Registry, 'registerMetric' | 'getSingleMetric'> | undefined, errorTypes?: Iterable<string> | undefined
}): Bridge
