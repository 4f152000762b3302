import type { Policy, Preview, PreviewRow } from './policy.js'
import type { Text } from './types.js'

/** How messages wait for their next attempt. */
export type Strategy = 'ladder' | 'message-ttl' | 'reject' | 'delayed-exchange' | 'native'
/** RabbitMQ's type of a queue. */
export type QueueType = 'quorum' | 'classic'

/**
 * An exchange, queue or binding to declare. It is durable, and neither auto-deleted nor exclusive
 * nor internal.
 */
export interface Declaration {
  readonly what: 'exchange' | 'queue' | 'binding'
  /** Name of the exchange or queue; destination of a binding. */
  readonly name: string
  /**
   * Exchange: fanout, direct or x-delayed-message. Queue: quorum or classic. Binding: queue or
   * exchange.
   */
  readonly type: string
  /** Source exchange of a binding. */
  readonly source: string
  readonly routingKey: string
  readonly arguments: { readonly [name: string]: string | number }
  /** Delay of the rung that this belongs to, in milliseconds; 0 for none. */
  readonly wait: number
  /** True for a rung that only a RetryAfter can need: it is declared when a plan needs it. */
  readonly onDemand: boolean
}

/** Options of a Topology. */
export interface TopologyOptions {
  /** The work queue; at most 247 bytes. */
  queue: Text
  /** The policy to serve; default: `new Policy()`. */
  policy?: Policy | undefined
  /** How messages wait; default `"ladder"`. */
  strategy?: Strategy | undefined
  /** Type of the wait, parked and unroutable queues; default `"quorum"`. */
  queueType?: QueueType | undefined
  /** First part of the shared names; default `backhop`, with classic queues `backhop.classic`. */
  namespace?: Text | undefined
  /** Rungs of the ladder per decade; default 10. */
  series?: 5 | 10 | 20 | 40 | undefined
  /**
   * Wait queues per rung, 1 to 64, which share the load; default 1. A higher number declares
   * further queues only.
   */
  stripes?: number | undefined
  /**
   * Declares the work queue too, with this type. Default: the work queue exists already.
   *
   * The strategies reject and native always declare it, as they need arguments of the work queue.
   */
  workQueue?: QueueType | undefined
  /** Arguments of the work queue besides the strategy's own. */
  workQueueArguments?: { readonly [name: string]: Text | number | bigint }
    | ReadonlyMap<Text, Text | number | bigint> | undefined
  /** Further policies to serve. */
  policies?: readonly Policy[] | undefined
}

/**
 * The exchanges, queues and bindings that a work queue needs, as data. A topology never changes.
 */
export class Topology {
  /**
   * @throws {@link StrategyError} if the strategy cannot serve the policy; the text names one that
   *   can
   * @throws {@link InvalidNameError} if a name cannot be used
   */
  constructor (options: TopologyOptions)
  readonly policy: Policy
  /** The declarations, in an order that the broker accepts. */
  readonly declarations: readonly Declaration[]
  /** The work queue. */
  readonly queue: string
  readonly strategy: Strategy
  /** The queue for messages after their last attempt: `<queue>.parked`. */
  readonly parkedQueue: string
  /**
   * Highest lateness of a message, in milliseconds. With the strategy message-ttl a message with a
   * longer delay may stand before it. 0 for other strategies.
   */
  readonly worstLateness: number
  /** The ladder's rungs that the policy uses, in milliseconds, ascending. */
  readonly rungs: number[]
  /** Returns the row of the preview after one failure. */
  row (attempt: number): PreviewRow
  /**
   * Returns the lowest, mean and highest delay after each failure, as the wait queues round them,
   * and the running total of the means.
   *
   * @param failures number of rows, at most 10,000; default: one per retry, at most 20
   */
  preview (failures?: number): Preview
  /**
   * Returns the share of messages on each rung after a failure: shares from 0 to 1 by rungs in
   * milliseconds.
   */
  shares (attempt: number): Map<number, number>
  /**
   * Checks that a broker can serve the strategy.
   *
   * @param product product of the broker's server properties
   * @param version version of the broker's server properties
   * @throws {@link BrokerError} if it cannot; the text names a strategy that it can serve
   */
  checkBroker (product: Text, version: Text): void
  /** Returns RabbitMQ definitions (JSON) of the topology, for `rabbitmqctl import_definitions`. */
  definitions (vhost?: Text): string
}
