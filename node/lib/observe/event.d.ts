import type { Text } from '../types.js'

/**
 * An event of a message or a connection. Events are the same over each client and from a
 * worker.
 */
export interface Event {
  readonly name: EventName
  /** Level of the log line. Warnings and errors become warnings of the process. */
  readonly level: 'debug' | 'info' | 'warning' | 'error'
  /** A sentence with the reason and the remedy. It never holds a password. */
  readonly text: string
  /**
   * The error. For failed, retried and parked it is the value that the handler threw.
   *
   * It is undefined for a message that is parked as poison: no handler had it. A worker omits it
   * for a message that is parked as oversized, if retried had no listener when the run began;
   * `errorText` has its text.
   */
  readonly error: any
  /** Class of the value that the handler threw; "" for none. */
  readonly errorClass: string
  /** Text of the value that the handler threw; "" for none. */
  readonly errorText: string
  /** The message's id, the same for all its attempts; "" for none. */
  readonly id: Text
  /** The work queue. */
  readonly queue: string
  /**
   * "consume" or "publish" if the event is about one of them, or about this connection of a worker;
   * else "".
   */
  readonly connection: string
  /** "host:port" of this connection; else "". */
  readonly host: string
  /** Number of the attempt, 1 for the first; 0 if the event is about none. */
  readonly attempt: number
  /** Number of failed attempts of the message. */
  readonly attempts: number
  /** Deferred: how often the message waited without an attempt. */
  readonly deferrals: number
  /** Delay until the next attempt, in milliseconds. */
  readonly delay: number
  /** Arrival time of a retry minus its due time, in milliseconds; undefined if it is unknown. */
  readonly lateness: number | undefined
  /** Duration of the handler in milliseconds; for a copy, from its publish to its confirm. */
  readonly duration: number | undefined
  /** Time from the first failure to the success, in milliseconds. */
  readonly recovery: number | undefined
  /** Why the message is parked: exhausted, permanent, too-old, oversized or poison; else "". */
  readonly reason: string
  /** Name of the breaker; "" if the event is about none. `text` has the reason of its state. */
  readonly breaker: string
  /** Number of messages that the event is about. */
  readonly count: number
  /**
   * True for the levels warning and error. A worker's event becomes a warning of the process if it
   * has no listener.
   */
  readonly isWarning: boolean
  /** Returns the event as one line of text. */
  toString (): string
  /** Returns the fields for JSON, without fields that are empty or 0. `error` is a text. */
  toJSON (): { [name: string]: unknown }
}

/**
 *     delivered      a handler gets a message
 *     succeeded      its handler succeeded
 *     failed         an attempt failed
 *     retried        a message waits for its next attempt: its copy is confirmed
 *     throttled      its handler threw Throttled: this was no attempt
 *     deferred       such a message waits: its copy is confirmed
 *     parked         a message went to the parked queue
 *     dropped        its handler threw Drop
 *     replayed       a replay ended; `count` messages were moved
 *     returned       no queue accepted the copy; it is published again
 *     nacked         a queue was full or missing; the copy is published again
 *     unconfirmed    no confirm came in time; one copy is published again, the others after its
 *                    confirm
 *     refused        no copy can be made; the original stays unacknowledged for ten minutes
 *     stale          a message was settled after its channel closed, or its copy was not confirmed
 *                    after that, or a stop aborted its handler; the broker delivers it again
 *     connected      a worker has its connections and the topology; or the broker confirmed the
 *                    consumer of `consume`
 *     unavailable    connecting, declaring or consuming failed, or the broker closed the channel
 *                    that publishes; the next try comes after `delay`, and `count` copies wait
 *     disconnected   a connection was lost; `count` messages will be redelivered. From a retrier
 *                    only if it consumes itself (`consume`) or had unconfirmed copies
 *     blocked        the broker accepts no publishes: its memory or disk runs low
 *     unblocked      the broker accepts publishes again
 *     cancelled      the broker cancelled the consumer; it consumes again. From a retrier only
 *                    after `consume`
 *     busy           all `count` handlers were busy for longer than their time limit; `duration`
 *                    since one of them was free
 *     breaker_opened     the breaker opened: messages are held, and the first probe comes after
 *                        `delay`
 *     breaker_half_open  the breaker probes: one message at a time
 *     breaker_closed     the breaker closed, or was disabled
 *     early          `count` retries came back up to `duration` before their time (worker only)
 *     missed         `count` events were not taken in time and are lost (worker only)
 *     drained        the worker has stopped; the last event (worker only)
 *
 * The events delivered, succeeded, failed and dropped are made if there is a listener when they
 * happen: `onEvent`, the channel backhop:event of node:diagnostics_channel, or `worker.on`. A
 * worker makes retried if there was a listener when its run began, or with its option retryEvents.
 */
export type EventName =
  | 'delivered' | 'succeeded' | 'failed' | 'retried' | 'throttled' | 'deferred' | 'parked' | 'dropped' | 'replayed'
  | 'returned' | 'nacked' | 'unconfirmed' | 'refused' | 'stale' | 'connected' | 'unavailable' | 'disconnected'
  | 'blocked' | 'unblocked'
  | 'cancelled' | 'busy' | 'breaker_opened' | 'breaker_half_open' | 'breaker_closed' | 'early' | 'missed' | 'drained'

/** Metrics or traces of `backhop/prom-client` or `backhop/opentelemetry`, for `onEvent`. */
export interface Bridge {
  /** @internal */
  readonly bridges: true
}

/**
 * A function that is called with each event, and may be async; a bridge; or an array of these. An
 * empty array counts as no listener.
 */
export type Listener = ((event: Event) => unknown) | Bridge | ReadonlyArray<((event: Event) => unknown) | Bridge>
