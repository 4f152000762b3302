import type { Properties, Tagged } from './delivery.js'
import type { History } from './history.js'
import type { Policy } from './policy.js'
import type { Topology } from './topology.js'
import type { Duration, Text } from './types.js'

/** The outcome of an attempt; deferred: no handler was called. */
export type Outcome = 'ok' | 'failed' | 'permanent' | 'dropped' | 'throttled' | 'deferred'
/** The action of a plan, see {@link Plan}. */
export type Action = 'none' | 'ack' | 'retry' | 'reject' | 'return' | 'park' | 'drop' | 'replay' | 'defer'

/** Options of `Plan.guard`. */
export interface GuardOptions {
  /** frame_max of the connection that publishes, in bytes; 0: no limit; default 131072. */
  frameMax?: number | undefined
  /** A Date, or milliseconds since the epoch; default: the clock. */
  now?: number | Date | undefined
  /** 32 random bytes; default: the system's. */
  random?: Buffer | undefined
}

/** Options of a Plan. */
export interface PlanOptions extends GuardOptions {
  /** A policy that the topology serves; default: `topology.policy`. */
  policy?: Policy | undefined
  /**
   * The outcome of the attempt; default `"failed"`. `"permanent"` parks the message now. After
   * `"throttled"` it waits, and this is no attempt. After `"deferred"` it waits, whatever the
   * limits of the policy.
   */
  outcome?: Outcome | undefined
  /** Text of the error; at most 1 KiB is kept. */
  error?: Text | undefined
  /** Shortest delay that the handler requests. */
  retryAfter?: Duration | undefined
}

/** Options of the functions that make a copy. */
export interface CopyOptions {
  /**
   * Returns the value that the client writes as a 64-bit integer:
   * `value => ({ "!": "long", value })` for amqplib.
   */
  integer?: (value: number) => unknown
}

/**
 * The decision for one delivery. Acknowledge the original after the broker confirmed the copy,
 * never before.
 *
 *     action                 what to do, in this order
 *     ack, drop              basic.ack
 *     none                   hand the message to the handler (guard only)
 *     reject                 basic.nack(requeue=false)
 *     return                 basic.reject(requeue=true)
 *     retry, defer           basic.publish of a copy, wait for its confirm, then basic.ack of the
 *                            original
 *     park, replay           the same
 */
export class Plan {
  /**
   * @param history a history that was read with this topology
   * @throws {@link ForeignPolicyError} if the topology lacks a rung of the policy
   * @throws {@link FrameError} if the message's own headers exceed frameMax
   */
  constructor (history: History, topology: Topology, options?: PlanOptions)
  /**
   * Returns the plan before a handler gets the message.
   *
   * Its action is `"none"`, unless the message has lost as many consumers as the policy's
   * maxCrashes: then it is `"retry"`, and after further losses `"park"`.
   */
  static guard (history: History, topology: Topology, options?: GuardOptions): Plan
  /**
   * Returns the plan that moves a parked message back to its work queue, with a new count of
   * attempts.
   */
  static replay (history: History, topology: Topology, options?: Omit<GuardOptions, 'now'>): Plan
  readonly action: Action
  /** True if the action is retry, defer, park or replay. */
  readonly publishes: boolean
  /** Number of failed attempts, this one included. */
  readonly attempts: number
  /** How often the message was deferred, this time included. */
  readonly deferrals: number
  /** The delay until the next attempt, in milliseconds; 0 if there is none. */
  readonly delay: number
  /** False if the delay is shorter than the requested retryAfter. */
  readonly retryAfterMet: boolean
  /** Why the message is parked: exhausted, permanent, too-old, oversized or poison; else "". */
  readonly reason: string
  /** The id of the copy; "" if none is published. */
  readonly id: Text
  /** The exchange to publish the copy to. */
  readonly exchange: Text
  readonly routingKey: Text
  /**
   * The flag mandatory of the publish. It is false for the delayed exchange, which returns each
   * message that it delays.
   */
  readonly mandatory: boolean
  /** True if the declarations with `wait === plan.delay` must be declared before the publish. */
  readonly onDemand: boolean
  /** The rung to declare before the publish, in milliseconds; 0: none. */
  readonly rung: number
  /** The expiration of the copy, in milliseconds as decimal digits. */
  readonly expiration: string | undefined
  /** Names of properties that the copy keeps. Its deliveryMode is always 2. */
  readonly keptProperties: Array<keyof Properties>
  /** Returns true if the copy keeps the original's header of this name. */
  keepsHeader (name: Text): boolean
  /**
   * Headers that are added to the copy. A void is to be replaced by the original's header that it
   * names.
   */
  readonly headers: Array<[Text, Tagged]>
  /**
   * Returns all properties of the copy, headers included, for a client to publish.
   *
   * @param properties the original's properties, as the client gave them
   */
  copyProperties (
    properties: { readonly [name: string]: any }, options?: CopyOptions
  ): { [name: string]: unknown, headers: { [name: string]: unknown } }
  /**
   * Returns all headers of the copy.
   *
   * @param headers the original's headers, as the client gave them
   */
  copyHeaders (
    headers: { readonly [name: string]: unknown } | null | undefined, options?: CopyOptions
  ): { [name: string]: unknown }
}
