import type { Headers } from './delivery.js'
import type { HistoryOptions } from './history.js'

/**
 * Returns the past of a message as text, from its headers.
 *
 *     console.log(explain({
 *       "backhop-attempts": 2, "backhop-delay": 30000, "backhop-error": "507 queue is full"
 *     }))
 *
 *     It failed 2 times.
 *     The last error was: 507 queue is full
 *     Its last wait was 30 s.
 *
 * @param headers the headers as a client gives them
 * @param options as of History; give the topology if its strategy is reject or native
 */
export function explain (headers: Headers | null | undefined, options?: HistoryOptions): string
