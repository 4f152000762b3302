import type { Delivery, Headers } from './delivery.js'
import type { Topology } from './topology.js'
import type { Text } from './types.js'

/** A record of the header x-death. RabbitMQ keeps one for each queue and reason. */
export interface Death {
  queue: Text
  /** rejected, expired, maxlen or delivery_limit. */
  reason: Text
  /** How many times the message was dead-lettered. */
  times: number
  /** The first time, to the second. */
  time: Date | undefined
  exchange: Text
  routingKeys: Text[]
  /** The message's expiration at that time, in milliseconds as decimal digits. */
  originalExpiration: Text
}

/** The place of a dead-lettering. A field is "" if the headers do not have it. */
export interface DeathPlace {
  queue: Text
  /** rejected, expired, maxlen or delivery_limit. */
  reason: Text
  exchange: Text
}

/** Options of a History. */
export interface HistoryOptions {
  /**
   * Has the strategy and the work queue. Without a topology, the history ignores counts that a
   * strategy defines.
   */
  topology?: Topology | undefined
  /** Name of a header with the count of failures of earlier retry code. */
  legacyCounter?: Text | undefined
  /** Wait queues of earlier retry code: each expiry in one of them counts as a failure. */
  waitQueues?: Iterable<Text> | undefined
}

/**
 * The past of a message, read from its headers. Headers are untrusted: a header that cannot be used
 * is ignored, and `problems` names it.
 */
export class History {
  constructor (delivery: Delivery, options?: HistoryOptions)
  readonly delivery: Delivery
  /** Number of failed attempts. */
  readonly attempts: number
  /** The source of this number. */
  readonly source: 'none' | 'backhop' | 'legacy' | 'x-death' | 'delivery-count'
  /** Time of the first failure; undefined if it is unknown. From x-death it has whole seconds. */
  readonly firstFailure: Date | undefined
  /** The last delay, in milliseconds; undefined if it is unknown. */
  readonly lastDelay: number | undefined
  /** How often Throttled or a breaker deferred it: these were no attempts. */
  readonly deferrals: number
  /** The last error's text; "" if there is none. */
  readonly lastError: Text
  /**
   * The id that all attempts share: the header backhop-id, or else the message-id property.
   *
   * It is "" at the first attempt of a message without message-id. The first copy of this message
   * gets an id.
   */
  readonly id: Text
  /** True if the message has the header backhop-id. */
  readonly hasId: boolean
  /** The exchange of the first publish. It is for display: do not route by it. */
  readonly exchange: Text
  /** The routing key of the first publish. */
  readonly routingKey: Text
  /**
   * Why the message was parked: exhausted, permanent, too-old, oversized or poison; "" if it was
   * not.
   */
  readonly parked: Text
  /** The header x-delivery-count of quorum queues; 0 if it is absent. */
  readonly deliveryCount: number
  /** The header x-acquired-count of quorum queues of RabbitMQ 4.3; 0 if it is absent. */
  readonly acquiredCount: number
  /**
   * Number of deliveries that ended without a settlement, as quorum queues count them. A consumer
   * was lost or requeued the message, while it had this message or one beside it in hand.
   */
  readonly crashes: number
  /** How often the message was replayed, by Backhop or by other tools. */
  readonly replays: number
  /** The records of x-death, the latest first. */
  readonly deaths: Death[]
  /** The first dead-lettering, of the headers x-first-death-*. */
  readonly firstDeath: DeathPlace
  /** The last dead-lettering, of the headers x-last-death-* (RabbitMQ 3.13 and newer). */
  readonly lastDeath: DeathPlace
  /** Headers that were ignored: sentences that begin with the header's name. */
  readonly problems: Text[]
}

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
