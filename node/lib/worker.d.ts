import { EventEmitter } from 'node:events'

import type { Health, HealthState } from './health.js'
import type { Message } from './message.js'
import type { Event, EventName } from './observe/event.js'
import type { CommonOptions } from './options.js'
import type { Topology } from './topology.js'
import type { Duration } from './types.js'

/** Options of a Worker. */
export interface WorkerOptions extends CommonOptions {
  /** Highest number of handlers that run at once; default 50. */
  concurrency?: number | undefined
  /**
   * Number of messages that the broker sends ahead, at most 65535. It limits the handlers too.
   * Default: twice the concurrency, at least 100. 0 consumes nothing: for a worker that only
   * replays.
   */
  prefetch?: number | undefined
  /**
   * Longest time of a handler, at most 24 h; default: no limit. At the limit the worker aborts
   * `message.signal`, and the attempt has failed. A handler that blocks the event loop fails when
   * it returns. The event busy reports that all handlers were busy for that time.
   */
  timeout?: Duration | undefined
  /**
   * PEM file of the CAs to trust for amqps://; default: the system's. The peer is always verified.
   */
  caFile?: string | undefined
  /**
   * PEM file of a client certificate and its chain, for amqps://. If the URI has no user, RabbitMQ
   * reads the user from the certificate (SASL EXTERNAL).
   */
  cert?: string | undefined
  /** PEM file of its private key, without a passphrase; default: the file of `cert`. */
  key?: string | undefined
  /** Time to wait for a connection, at most one hour; default 10 s. */
  connectTimeout?: Duration | undefined
  /** Time for handlers to finish when the worker stops, at most one hour; default 20 s. */
  drain?: Duration | undefined
  /** Emits retried for each retry, even without a listener when the run begins. Default false. */
  retryEvents?: boolean | undefined
  /**
   * Makes `run` reject if its first start cannot succeed; default true. With false the worker
   * retries without end.
   *
   * Errors that count: refused password, vhost or permission; missing work queue; queue with other
   * arguments. Two more are a strategy that the broker cannot serve, and a certificate that does
   * not match.
   */
  failFast?: boolean | undefined
}

/**
 * Consumes a queue and handles its messages. A message whose handler fails is retried later, and
 * parked after its last attempt.
 *
 *     const worker = new Worker("amqp://localhost", {
 *       queue: "cdn-purge", policy, concurrency: 50
 *     })
 *     worker.on("disconnected", (event) => console.error(String(event)))
 *     await worker.run(async (message) => purge(message.body), { signals: true })
 *
 * The core's background thread has two connections. It reconnects, publishes copies, waits for
 * confirms and acknowledges. Heartbeats go on while a handler computes for an hour.
 *
 * If a handler resolves or returns, its message is acknowledged. If it throws, the message is
 * retried, unless it throws Park or Drop. The error is written to the message, and with
 * NODE_DEBUG=backhop to stderr.
 *
 * The worker emits its events by name, see {@link EventName}. A warning without a listener becomes
 * a warning of the
 * process: type BackhopWarning, code BACKHOP_ and the name.
 *
 * A worker belongs to its thread. When the thread ends, the worker stops at once; unsettled
 * messages are redelivered.
 */
export class Worker extends EventEmitter implements Health {
  /**
   * @param uris `amqp://user:password@host:port/vhost?heartbeat=seconds`, `amqps://` for TLS; or an
   *   array of URIs, which are tried in turn
   * @throws {@link NoLibrabbitmqError} if this Backhop was built without librabbitmq; the text says
   *   what to install
   * @throws {@link URIError} if a URI cannot be read
   */
  constructor (uris: string | readonly string[], options: WorkerOptions)
  readonly topology: Topology
  readonly state: HealthState
  readonly stateReason: string
  /** See {@link Health.ready}. Call `run` first. */
  ready (options?: { timeout?: Duration | undefined }): Promise<void>
  /**
   * Handles messages until the worker is stopped and drained. Afterwards it can run again.
   *
   * @param handle called with each message
   * @param options `signal`: aborting it stops the worker. `signals`: the first of these signals of
   *   the process stops the worker. A second one has its default effect. true: SIGTERM and SIGINT;
   *   default: none
   * @throws {@link StateError} if the worker runs already
   * @throws {@link AccessError}, {@link MissingError}, {@link ClashError}, {@link BrokerError} or
   *   {@link TLSError} with failFast, if the first start cannot succeed
   */
  run (handle: (message: Message) => unknown, options?: {
    signal?: AbortSignal | undefined, signals?: boolean | readonly NodeJS.Signals[] | undefined
  }): Promise<void>
  /**
   * Drains the worker: it takes no more messages, and handlers may finish. Messages that are not
   * settled in time are requeued. Resolves when the worker has stopped; in a handler of the worker
   * it resolves at once, as the worker waits for this handler. A second call sets the time anew. A
   * call before the first run drains that run at once. After the worker drained, a call has no
   * effect on the next run.
   *
   * @param options `timeout`: time for handlers to finish; default: the worker's `drain`
   * @throws {@link WaitTimeoutError} if handlers still ran at the end of this time; the worker has
   *   stopped, and `run` resolves
   */
  stop (options?: { timeout?: Duration | undefined }): Promise<void>
  /** Stops the worker at the end of an `await using` block. */
  [Symbol.asyncDispose] (): Promise<void>
  /**
   * Sets user and password for a secret that changes. Call it at any time. All URIs
   * have them from the next login on. An open connection stays. If the broker refuses the login,
   * the worker tries again, with its back-off.
   *
   * @param user as it is, without percent-escapes
   * @param password as it is. RabbitMQ takes an OAuth 2 token as the password
   * @throws {@link ArgumentError} if one is no string or has a zero byte, or the user is empty
   */
  setCredentials (user: string, password: string): void
  /**
   * Moves parked messages back to the work queue, with a new count of attempts. The worker must
   * run.
   *
   * @param most highest number of messages; default: all that are parked when the replay begins
   * @returns the number of messages that were moved
   * @throws {@link StateError} if the worker does not run, or if another replay runs
   * @throws {@link MissingError} if there is no parked queue
   */
  replay (most?: number): Promise<number>
  on (name: EventName, listener: (event: Event) => void): this
  once (name: EventName, listener: (event: Event) => void): this
  off (name: EventName, listener: (event: Event) => void): this
}
