import type { Registry } from 'prom-client'

import type { Bridge } from './index.js'

/**
 * Counts the events of retrier and worker, for prom-client to tell.
 *
 *     new Retrier(channel, { queue, policy, onEvent: prometheus() })
 *
 * One serves all retriers and workers of a process. Labels are bounded: queue, error_type, reason, outcome.
 *
 * @param options `register`: where the metrics go; default: prom-client's own. `errorTypes`: the classes of errors to tell
 * apart, at most 32; any other is "_OTHER"; default: the first 32 that are met
 */
export function prometheus (options?: {
  register?: Pick<Registry, 'registerMetric'> | undefined, errorTypes?: Iterable<string> | undefined
}): Bridge
