import type { Registry } from 'prom-client'

import type { Bridge } from '../index.js'

/**
 * Returns a bridge that counts events for prom-client.
 *
 *     const counted = prometheus()
 *     new Retrier(channel, { queue, policy, onEvent: counted })
 *     new Worker(uri, { queue, policy, onEvent: counted })
 *
 * Make one per process: it serves all retriers and workers. The labels are queue, error_type,
 * reason and outcome; their number is bounded.
 *
 * @param options `register`: registry for the metrics; default: prom-client's own. `errorTypes`:
 *   classes of errors with a label of their own, at most 32; any other class is "_OTHER"; default:
 *   the first 32 that occur
 * @throws {@link ArgumentError} if the registry has metrics of these names, or if there are more
 *   than 32 classes
 */
export function prometheus (options?: {
  register?: Pick<Registry, 'registerMetric' | 'getSingleMetric'> | undefined, errorTypes?: Iterable<string> | undefined
}): Bridge
