import type { Delivery } from './delivery.js'
import type { Death, History } from './history.js'
import type { Topology } from './topology.js'

/**
 * The message that a handler gets. It is the same over each client, from a worker and in a
 * rehearsal. Headers are parsed on first access. A text that is not UTF-8 is read as Latin-1.
 */
export class Message {
  constructor (body: Buffer, history: History, options?: {
    redelivered?: boolean, topology?: Topology, signal?: AbortSignal
  })
  readonly body: Buffer
  /** The body, under amqplib's name. */
  readonly content: Buffer
  /** The past of the message. */
  readonly history: History
  /** Properties and headers. */
  readonly delivery: Delivery
  /** All headers, also Backhop's own. Each access parses them again. */
  readonly headers: { [name: string]: unknown }
  readonly contentType: string | undefined
  readonly contentEncoding: string | undefined
  readonly correlationId: string | undefined
  readonly replyTo: string | undefined
  readonly messageId: string | undefined
  readonly type: string | undefined
  readonly appId: string | undefined
  readonly priority: number | undefined
  /** Time of the publish, as the publisher wrote it, in whole seconds. */
  readonly timestamp: Date | undefined
  /** The work queue. */
  readonly queue: string
  /** True if the broker delivered the message before, and it was not settled. */
  readonly redelivered: boolean
  /** Number of this attempt: 1 for the first. */
  readonly attempt: number
  /** Number of attempts that the policy allows; 0: no limit. */
  readonly maxAttempts: number
  /** True if a failure of this attempt parks the message. Always false without a limit. */
  readonly lastAttempt: boolean
  /** The exchange of the first publish. */
  readonly exchange: string
  /** The routing key of the first publish. */
  readonly routingKey: string
  /**
   * The id that all attempts share: the message-id, or else the id of the first copy. It is
   * undefined in the first attempt of a message without message-id. Events have an id from the
   * first delivery on.
   *
   * Make handlers idempotent by this id, and publish with a message-id. Without one, a lost
   * connection can leave two copies of one original, with different ids.
   */
  readonly id: string | undefined
  /** Time of the first failure; undefined if there is none. */
  readonly firstFailure: Date | undefined
  /** The delay before this attempt, in milliseconds; undefined if there was none. */
  readonly lastDelay: number | undefined
  /** How often Throttled or a breaker deferred it: these were no attempts. */
  readonly deferrals: number
  /** The last error, at most 1 KiB: class, message, code, members, causes. "" if there is none. */
  readonly lastError: string
  /** The records of x-death, the latest first. */
  readonly deaths: Death[]
  /**
   * Aborted when the worker, the consumer or the retrier drains. The handler may end, or go on
   * within the time limit of the drain.
   *
   * If it then throws the signal's reason or an AbortError (axios: CanceledError), the message goes
   * back to its queue, and this was no attempt. Any other error is a failed attempt.
   */
  readonly signal: AbortSignal
  /** Returns what identifies it, and the size of its body in bytes. Loggers call this. */
  toJSON (): {
    id: string | undefined, attempt: number, queue: string, exchange: string, routingKey: string, size: number
  }
}
