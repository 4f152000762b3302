/**
 * Retries for RabbitMQ consumers: later each time, only to the queue that failed, never lost.
 *
 *     const policy = new Policy({ initial: "10s", factor: 3, max: "1h", jitter: 0.2, maxAttempts: 8 })
 *     console.log(policy.preview())                    // prints as a table, and is data
 *
 * Over the client that you have, see backhop/amqplib and backhop/amqp; or let the worker do it all:
 *
 *     const worker = new Worker("amqp://localhost", { queue: "cdn-purge", policy, concurrency: 50 })
 *     await worker.run(async (message) => { ... })     // resolves: ack; throws: later
 *
 * A handler that resolves acknowledges its message; one that throws sees it again, later. It may throw
 *
 *     new RetryAfter("30s")     not before 30 seconds
 *     new Park("why")           never again: park it, for a person to look at
 *     new Drop()                nobody needs it any more
 *
 * @packageDocumentation
 */

import { EventEmitter } from 'node:events'

/** A time span: milliseconds, or a string with its unit, as the package ms reads it: `"250ms"`, `"30s"`, `"5m"`, `"2h"`, `"1d"`. */
export type Duration = number | string

/** A text of a message: a string, or a Buffer where its bytes are no UTF-8. */
export type Text = string | Buffer

/** A class of errors, for `never` and `only`. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type ErrorClass = abstract new (...args: any[]) => unknown

/**
 * Looks at what a handler threw: true or false; or a delay, not before which it is tried again. One that throws, or answers
 * anything else, leaves the error one that is tried again, and a warning says so.
 */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type ErrorPredicate = (error: any) => boolean | Duration | null | undefined

/** Which errors: a class, a predicate, or some of these. */
export type Errors = ErrorClass | ErrorPredicate | Iterable<ErrorClass | ErrorPredicate>

/** Versions of the core, which are the package's too. */
export const version: string

// --- Delivery --------------------------------------------------------------------------------------------------------

/** AMQP's basic properties as Node's clients spell them, headers apart. */
export interface Properties {
  contentType?: Text | undefined
  contentEncoding?: Text | undefined
  deliveryMode?: number | undefined
  priority?: number | undefined
  correlationId?: Text | undefined
  replyTo?: Text | undefined
  /** Milliseconds, as the digits that AMQP has. */
  expiration?: Text | number | undefined
  messageId?: Text | undefined
  /** Seconds since the epoch. */
  timestamp?: number | bigint | Date | undefined
  type?: Text | undefined
  userId?: Text | undefined
  appId?: Text | undefined
  clusterId?: Text | undefined
}

/** AMQP's types of header values. */
export type HeaderType =
  | 'boolean' | 'int8' | 'uint8' | 'int16' | 'uint16' | 'int32' | 'uint32' | 'int64' | 'uint64' | 'float' | 'double'
  | 'decimal' | 'string' | 'bytes' | 'timestamp' | 'void' | 'array' | 'table'

/**
 * A header's value with its AMQP type, where JavaScript's does not tell it, in amqplib's notation: `{ "!": "int8", value: 3 }`.
 * A decimal is `{ places, digits }`, a timestamp seconds, a table an object, a Map or pairs of name and value.
 */
export interface Tagged {
  '!': string
  value: unknown
}

/**
 * Headers: an object, a Map, or pairs of name and value.
 *
 * Strings are pushed as AMQP's strings, Buffers as bytes, booleans, numbers and bigints as int64 (fractions as doubles),
 * Dates as timestamps, null as void, objects as tables, arrays as arrays, tagged values as they say; undefined not at all.
 */
export type Headers = { readonly [name: string]: unknown } | ReadonlyMap<Text, unknown> | ReadonlyArray<readonly [Text, unknown]>

/** What a client's message has. */
export interface DeliveryOptions {
  /** Where the message was published, as basic.deliver says. */
  exchange?: Text
  routingKey?: Text
  /** amqplib's `message.properties`, or an object like it; undefined and null are absent. */
  properties?: (Properties & { headers?: Headers | null | undefined }) | { readonly [name: string]: any }
  /** Default: `properties.headers`. */
  headers?: Headers | null | undefined
}

/** What arrived: exchange, routing key, properties, headers. It never changes. */
export class Delivery {
  /**
   * @throws {@link ArgumentError} for a name or a property of more than 255 bytes, and for a value for which AMQP has no type
   */
  constructor (options?: DeliveryOptions)
  /** Where the message was published; of a retry, the exchange that brought it back. */
  readonly exchange: Text
  readonly routingKey: Text
  /** The basic properties that the message has; timestamp in seconds since the epoch. */
  readonly properties: { [name in keyof Properties]?: Text | number | bigint }
  /** A property; undefined where the message has none of this name. */
  property (name: keyof Properties): Text | number | bigint | undefined
  /** Whether the message has headers at all. */
  readonly hasHeaders: boolean
  /**
   * All headers, as a new object each time, in amqplib's shape: timestamps and decimals are tagged, void is null. Of headers
   * with one name the first counts; a name that is no UTF-8 is read as Latin-1; `headerType` tells the AMQP type.
   */
  readonly headers: { [name: string]: unknown }
  /** The AMQP type of a header; undefined where there is none. */
  headerType (name: Text): HeaderType | undefined
  /** The value of a header that is a string, bytes, a boolean, an integer or a timestamp; undefined of any other. */
  header (name: Text): Text | number | bigint | boolean | undefined
  /** Whether headers went beyond the core's limits (32 levels, 65,536 values, 1 MiB), so that some are missing. */
  readonly isTruncated: boolean
  /** Size of properties and headers on the wire. */
  readonly headerBytes: number
}

// --- History ---------------------------------------------------------------------------------------------------------

/** A record of x-death: the broker keeps one for each queue and reason. */
export interface Death {
  queue: Text
  /** rejected, expired, maxlen or delivery_limit. */
  reason: Text
  times: number
  /** The first time, to the second. */
  time: Date | undefined
  exchange: Text
  routingKeys: Text[]
  /** The expiration that the message had, as its digits. */
  originalExpiration: Text
}

/** Where and why a message was dead-lettered; "" for what the headers do not tell. */
export interface DeathPlace {
  queue: Text
  reason: Text
  exchange: Text
}

export interface HistoryOptions {
  /** Tells the strategy and the work queue; without one, no strategy counts. */
  topology?: Topology | undefined
  /** A header in which an earlier retry code of the application counted failures. */
  legacyCounter?: Text | undefined
  /** Wait queues of an earlier, hand-made set-up: each expiry there was a failure. */
  waitQueues?: Iterable<Text> | undefined
}

/** What the headers tell of a message's past. A header that cannot be trusted is ignored, and named in `problems`. */
export class History {
  constructor (delivery: Delivery, options?: HistoryOptions)
  readonly delivery: Delivery
  /** Failed attempts so far. */
  readonly attempts: number
  /** Where the count of attempts comes from. */
  readonly source: 'none' | 'backhop' | 'legacy' | 'x-death' | 'delivery-count'
  /** The first failure; undefined where it is unknown. From a broker's x-death it is whole seconds. */
  readonly firstFailure: Date | undefined
  /** The last delay, in milliseconds; undefined where it is unknown. */
  readonly lastDelay: number | undefined
  /** The last error's text; "" where there is none. */
  readonly lastError: Text
  /**
   * The id that all further attempts share: backhop-id, else the message-id property; "" where there is neither: a first
   * attempt of a message without message-id, whose first copy gets an id.
   */
  readonly id: Text
  /** Whether it has an id of its own yet. */
  readonly hasId: boolean
  /** Where the message was first published. Show it; do not route by it. */
  readonly exchange: Text
  /** The routing key with which it was first published. */
  readonly routingKey: Text
  /** Why the message was parked: exhausted, permanent, too-old, oversized, poison; "" where it was not. */
  readonly parked: Text
  /** What a quorum queue counted in x-delivery-count; 0 where absent. */
  readonly deliveryCount: number
  /** What a quorum queue of RabbitMQ 4.3 counted in x-acquired-count; 0 where absent. */
  readonly acquiredCount: number
  /**
   * Deliveries that ended without being settled, as far as quorum queues count: consumers that were lost, or gave it back,
   * while it, or a message beside it, was in hand.
   */
  readonly crashes: number
  /** How often it was sent back from the parked queue, by replay or by other hands. */
  readonly replays: number
  /** The records of x-death, most recent first. */
  readonly deaths: Death[]
  /** x-first-death-*: the first time that the broker dead-lettered the message. */
  readonly firstDeath: DeathPlace
  /** x-last-death-*: the last time (RabbitMQ 3.13 and newer). */
  readonly lastDeath: DeathPlace
  /** Headers that were ignored: each a sentence that begins with the header's name. */
  readonly problems: Text[]
}

/**
 * A message's story, in words, from its headers alone.
 *
 *     console.log(explain({ "backhop-attempts": 2, "backhop-delay": 30000, "backhop-error": "507 queue is full" }))
 *
 *     It failed 2 times.
 *     The last error was: 507 queue is full
 *     Its last wait was 30 s.
 *
 * @param headers as a client gives them
 * @param options as History's; where the broker alone moves messages (strategies reject and native), the topology tells
 * what to count
 */
export function explain (headers: Headers | null | undefined, options?: HistoryOptions): string

// --- Policy ----------------------------------------------------------------------------------------------------------

export type Kind = 'exponential' | 'linear' | 'fixed' | 'steps'
export type Jitter = 'none' | 'spread' | 'equal' | 'full' | 'decorrelated'

/** Durations are milliseconds or strings as `"10s"`, from 1 ms to three years. */
export interface PolicyOptions {
  /** Delay after the first failure; default 1 s; not with `steps`. */
  initial?: Duration | undefined
  /** Kind exponential only (another refuses it): what each delay is multiplied by, 1 or more; default 2. */
  factor?: number | undefined
  /** No delay is above it, jitter included; default 5 min, with `steps` none. */
  max?: Duration | undefined
  /**
   * 0.2 (the default) spreads each delay by 20 % to either side; or `"none"`, `"equal"` (the upper half), `"full"`
   * (anything below), `"decorrelated"`.
   */
  jitter?: number | Jitter | undefined
  /**
   * How often a handler sees a message in all, the first time included; 0: no limit; default 10, with `steps` one more than
   * steps.
   */
  maxAttempts?: number | undefined
  /**
   * `"exponential"` (the default): initial * factor^(n-1); `"linear"`: initial * n; `"fixed"`: initial; `"steps"`.
   */
  kind?: Kind | undefined
  /** The delays, in order; the kind is `"steps"` then. */
  steps?: readonly Duration[] | undefined
  /** From the first failure; a retry that would start later parks instead; 0 (the default): no limit. */
  maxAge?: Duration | undefined
  /** Cap on what a handler may ask for with RetryAfter; 0: requests are ignored; default 24 h. */
  maxRetryAfter?: Duration | undefined
  /**
   * A message whose consumers were lost this often, as far as quorum queues count, waits before a handler sees it again,
   * longer with each further loss, and is parked after 16 such waits; 0: no limit; default 5.
   */
  maxCrashes?: number | undefined
}

/** The delay after one failure, in milliseconds. */
export interface PreviewRow {
  attempt: number
  lowest: number
  mean: number
  highest: number
  /** Sum of the means up to this attempt. */
  total: number
  /** Over how many of the ladder's wait queues messages that fail together are spread; 0 where there is no ladder. */
  rungs: number
}

/** What a topology will do by its policy: an array of rows that prints as a table. */
export interface Preview extends ReadonlyArray<PreviewRow> {
  toString (): string
}

/**
 * How long to wait, how often to try, how random, when to give up. It never changes.
 *
 *     > new Policy({ initial: "10s", factor: 3, max: "1h", jitter: 0.2, maxAttempts: 8 }).preview()
 *     failure       lowest         mean      highest        total  rungs
 *           1          8 s         10 s       12.5 s         10 s      3
 *           2         20 s         30 s         40 s         40 s      4
 *           3    1 min 3 s   1 min 30 s    2 min 5 s   2 min 10 s      4
 *           4   3 min 20 s   4 min 30 s   6 min 40 s   6 min 40 s      4
 *           5  10 min 30 s  13 min 30 s  16 min 40 s  20 min 10 s      3
 *           6  26 min 40 s  40 min 30 s  52 min 30 s     1 h 40 s      4
 *           7  33 min 20 s  48 min 36 s  52 min 30 s   1 h 49 min      3
 */
export class Policy {
  /**
   * @throws {@link PolicyError} for a field out of its range, or fields that contradict each other; {@link ArgumentError} for
   * what is of no type that the field can have
   */
  constructor (options?: PolicyOptions)
  readonly kind: Kind
  readonly jitter: Jitter
  /** How often a handler sees a message in all; 0: no limit. */
  readonly maxAttempts: number
  /** The cap in force, in milliseconds. */
  readonly max: number
  /** From the first failure, in milliseconds; 0: no limit. */
  readonly maxAge: number
  /** Cap on what a handler may ask for, in milliseconds. */
  readonly maxRetryAfter: number
  /** Crashes at which a message waits, before a handler sees it again; 0: no limit. */
  readonly maxCrashes: number
  /**
   * The delay after the attempt-th failure (1, 2, ...), in milliseconds.
   *
   * @param options `previous`: the delay before this one, for jitter decorrelated; `random`: from 0 to below 1, default 0.5
   */
  delay (attempt: number, options?: { previous?: Duration, random?: number }): number
  /** The delay after the attempt-th failure by the formula alone, before it waits on a rung. */
  row (attempt: number): PreviewRow
  /**
   * The lowest, mean and highest delay after each failure, as the ladder's rungs make them, and their running total. Of
   * another strategy or series, a Topology's preview tells. A policy that the ladder cannot serve is shown by its formula.
   *
   * @param failures how many, 10,000 at most; default: all that are retried, at most 20
   */
  preview (failures?: number): Preview
  /** The options that it was made with: `new Policy(JSON.parse(text))` makes it again, in a worker thread as it may be. */
  toJSON (): PolicyOptions
}

// --- Topology --------------------------------------------------------------------------------------------------------

export type Strategy = 'ladder' | 'message-ttl' | 'reject' | 'delayed-exchange' | 'native'
export type QueueType = 'quorum' | 'classic'

/** An exchange, a queue or a binding to declare: durable, neither auto-deleted nor exclusive nor internal. */
export interface Declaration {
  readonly what: 'exchange' | 'queue' | 'binding'
  /** Of a binding: its destination. */
  readonly name: string
  /** Exchange: fanout, direct, x-delayed-message. Queue: quorum, classic. Binding: queue or exchange. */
  readonly type: string
  /** Binding: the exchange that it begins at. */
  readonly source: string
  readonly routingKey: string
  readonly arguments: { readonly [name: string]: string | number }
  /** The rung that this belongs to, in milliseconds; 0 for none. */
  readonly wait: number
  /** For a rung that only a handler's RetryAfter can need: declaring leaves it out until a plan asks for it. */
  readonly onDemand: boolean
}

export interface TopologyOptions {
  /** The work queue; at most 247 bytes. */
  queue: Text
  /** The delays to serve; default: `new Policy()`. */
  policy?: Policy | undefined
  /** Where a message waits; default `"ladder"`. */
  strategy?: Strategy | undefined
  /** Of the wait, parked and unroutable queues; default `"quorum"`. */
  queueType?: QueueType | undefined
  /** First part of the shared names; default `backhop`, with classic queues `backhop.classic`. */
  namespace?: Text | undefined
  /** Rungs per decade of the ladder; default 10. */
  series?: 5 | 10 | 20 | 40 | undefined
  /** Wait queues of each of the ladder's rungs, 1 to 64, each a share of the load; raising it later redeclares nothing. */
  stripes?: number | undefined
  /**
   * Declare the work queue too, of this type; default: it is there already (reject and native, which live in its arguments,
   * declare it always).
   */
  workQueue?: QueueType | undefined
  /** Its arguments beside those that the strategy sets. */
  workQueueArguments?: { readonly [name: string]: Text | number | bigint } | ReadonlyMap<Text, Text | number | bigint> | undefined
  /** Further policies that it shall serve. */
  policies?: readonly Policy[] | undefined
}

/** The exchanges, queues and bindings that a strategy needs, as data. It never changes. */
export class Topology {
  /**
   * @throws {@link StrategyError} where the strategy cannot serve the policy; the text names one that does
   * @throws {@link InvalidNameError} for a name that cannot be used
   */
  constructor (options: TopologyOptions)
  readonly policy: Policy
  /** In an order in which they can be made. */
  readonly declarations: readonly Declaration[]
  /** The work queue. */
  readonly queue: string
  readonly strategy: Strategy
  /** `<queue>.parked`, where messages go after their last attempt. */
  readonly parkedQueue: string
  /**
   * Strategy message-ttl: how late a message can come back at worst, in milliseconds, because one with a longer delay is
   * before it. Other strategies: 0.
   */
  readonly worstLateness: number
  /** The ladder's rungs that the policy uses, in milliseconds, ascending. */
  readonly rungs: number[]
  /** The preview of the attempt-th failure. */
  row (attempt: number): PreviewRow
  /**
   * The lowest, mean and highest delay after each failure, and their running total, as its wait queues make them of its
   * policy. `failures`: how many; default: all that are retried, at most 20.
   */
  preview (failures?: number): Preview
  /** What share of the messages waits on which of the ladder's rungs (in milliseconds) after the attempt-th failure. */
  shares (attempt: number): Map<number, number>
  /**
   * Refuses a broker that cannot serve the strategy, by `product` and `version` of its server properties.
   *
   * @throws {@link BrokerError} the text names a strategy that it can serve
   */
  checkBroker (product: Text, version: Text): void
  /** All of it as RabbitMQ definitions (JSON), for an administrator: `rabbitmqctl import_definitions`. */
  definitions (vhost?: Text): string
}

// --- Plan ------------------------------------------------------------------------------------------------------------

export type Outcome = 'ok' | 'failed' | 'permanent' | 'dropped'
export type Action = 'none' | 'ack' | 'retry' | 'reject' | 'return' | 'park' | 'drop' | 'replay'

export interface GuardOptions {
  /** What the publishing connection negotiated, in bytes; 0: no limit; default 131072. */
  frameMax?: number | undefined
  /** A Date, or milliseconds since the epoch; default: the clock. */
  now?: number | Date | undefined
  /** 32 random bytes; default: the system's. */
  random?: Buffer | undefined
}

export interface PlanOptions extends GuardOptions {
  /** One of those that the topology serves; default: its own. */
  policy?: Policy | undefined
  /** What the handler did; default `"failed"`. `"permanent"`: park it now. */
  outcome?: Outcome | undefined
  /** Why it failed; at most 1 KiB is kept. */
  error?: Text | undefined
  /** The delay that the handler asks for at least. */
  retryAfter?: Duration | undefined
}

export interface CopyOptions {
  /** What the client writes as a 64-bit integer: `value => ({ "!": "long", value })` for amqplib; default: the number. */
  integer?: (value: number) => unknown
}

/**
 * What to do with a delivery. Whoever carries it out never acknowledges what was not confirmed.
 *
 *     action                 to do, in this order
 *     ack, drop              basic.ack
 *     none                   nothing was decided: hand it to the handler (guard)
 *     reject                 basic.nack(requeue=false)
 *     return                 basic.reject(requeue=true)
 *     retry, park, replay    basic.publish of a copy, wait for its confirm, then basic.ack of the original
 */
export class Plan {
  /**
   * @param history read with this topology
   * @throws {@link ForeignPolicyError} where the topology has not all waits of the policy
   * @throws {@link FrameError} where not even the message's own headers fit frameMax
   */
  constructor (history: History, topology: Topology, options?: PlanOptions)
  /**
   * The plan before a handler sees a message: `"none"`, or, where its consumers were lost as often as the policy's
   * maxCrashes allows, `"retry"`, or in the end `"park"`.
   */
  static guard (history: History, topology: Topology, options?: GuardOptions): Plan
  /** The plan to send a parked message back to its work queue, and to no other, as if it had never failed. */
  static replay (history: History, topology: Topology, options?: Omit<GuardOptions, 'now'>): Plan
  readonly action: Action
  /** Whether a copy is published: retry, park, replay. */
  readonly publishes: boolean
  /** Failed attempts, this one included where it failed. */
  readonly attempts: number
  /** How long the message will wait, in milliseconds; 0 where it does not. */
  readonly delay: number
  /** False where the delay is shorter than the handler asked for. */
  readonly retryAfterMet: boolean
  /** Park: exhausted, permanent, too-old, oversized or poison; else "". */
  readonly reason: string
  /** The id that the copy carries; "" where none is published. */
  readonly id: Text
  /** Where the copy goes. */
  readonly exchange: Text
  readonly routingKey: Text
  /** Whether the publish is mandatory: always, but for the delayed exchange, which returns what it keeps. */
  readonly mandatory: boolean
  /** Whether the topology's declarations with `wait === plan.delay` must be made before the publish. */
  readonly onDemand: boolean
  /** The delay of the rung that must be declared before the publish, in milliseconds; 0: none. */
  readonly rung: number
  /** The copy's expiration, as the digits of its milliseconds. */
  readonly expiration: string | undefined
  /** Properties that the copy keeps as the original has them, if it has. Its deliveryMode is 2. */
  readonly keptProperties: Array<keyof Properties>
  /** Whether the copy keeps the original's header of this name. */
  keepsHeader (name: Text): boolean
  /** Headers that the copy gets besides. A void stands for the value of the original's header that it names. */
  readonly headers: Array<[Text, Tagged]>
  /**
   * All properties of the copy, headers included, for a client to publish.
   *
   * @param properties the original's, as the client gave them
   */
  copyProperties (properties: { readonly [name: string]: any }, options?: CopyOptions): { [name: string]: unknown, headers: { [name: string]: unknown } }
  /**
   * All headers of the copy.
   *
   * @param headers the original's, as the client gave them; those that are kept go out as they are
   */
  copyHeaders (headers: { readonly [name: string]: unknown } | null | undefined, options?: CopyOptions): { [name: string]: unknown }
}

// --- Handlers --------------------------------------------------------------------------------------------------------

/**
 * What a handler gets: the same over each client, from a worker and in a rehearsal. Texts that are no UTF-8 are read as
 * Latin-1. What is not asked for is not read.
 */
export class Message {
  constructor (body: Buffer, history: History, options?: { redelivered?: boolean, topology?: Topology, signal?: AbortSignal })
  /** The body. */
  readonly body: Buffer
  /** The body, by amqplib's name. */
  readonly content: Buffer
  /** All that the headers tell. */
  readonly history: History
  /** What arrived: properties and headers. */
  readonly delivery: Delivery
  /** Its headers, Backhop's own included; read anew each time. */
  readonly headers: { [name: string]: unknown }
  readonly contentType: string | undefined
  readonly contentEncoding: string | undefined
  readonly correlationId: string | undefined
  readonly replyTo: string | undefined
  readonly messageId: string | undefined
  readonly type: string | undefined
  readonly appId: string | undefined
  readonly priority: number | undefined
  /** When it was published, as its publisher says; to the second. */
  readonly timestamp: Date | undefined
  /** The work queue. */
  readonly queue: string
  /** Whether the broker delivered it before, without a settlement. */
  readonly redelivered: boolean
  /** Which attempt this is: 1 for the first. */
  readonly attempt: number
  /** How many the policy allows; 0: no limit. */
  readonly maxAttempts: number
  /** Whether a failure of this attempt parks the message, as the policy allows no more; always false without a limit. */
  readonly lastAttempt: boolean
  /** Where the message was first published, whatever brought it back. */
  readonly exchange: string
  /** The routing key with which it was first published. */
  readonly routingKey: string
  /**
   * The id that all further attempts share: the message-id, else one that the first copy gets; "" before that. Make handlers
   * idempotent by it, and publish with a message-id: two copies of an original without one, as a lost connection can leave
   * them, have two ids.
   */
  readonly id: string
  /** The first failure; undefined where there is none. */
  readonly firstFailure: Date | undefined
  /** How long the message waited before this attempt, in milliseconds; undefined where it did not. */
  readonly lastDelay: number | undefined
  /** The last error's text, as far as it fits 1 KiB: class, message, code, members, causes; "" where there is none. */
  readonly lastError: string
  /** The broker's x-death records, most recent first. */
  readonly deaths: Death[]
  /**
   * Aborted where what handed out the message stops: the worker, the consumer, or the retrier as it drains. The handler may
   * go on, as long as the limit of that lasts, or end; what it throws then is a failure as any.
   */
  readonly signal: AbortSignal
}

/**
 * Try again, and not before `delay`: a floor under the policy's delay, capped by its maxRetryAfter.
 *
 *     const after = response.headers.get("retry-after")       // "120", or a date, or null
 *     throw after ? new RetryAfter(after, error) : error
 */
export class RetryAfter extends Error {
  /**
   * @param delay at least so long: a duration, a Date, or what HTTP's header Retry-After holds, whose digits are seconds
   * @param reason why, for whoever reads the message's story: a text, or the error that was met
   * @throws {@link ArgumentError} for what is no delay; its cause is the reason
   */
  constructor (delay: Duration | Date, reason?: string | Error, options?: { cause?: unknown })
  /** In milliseconds. */
  readonly delay: number
}

/** No attempt can succeed: park the message now, for a person to look at. */
export class Park extends Error {
  /** @param reason why: a text, or the error that was met */
  constructor (reason?: string | Error, options?: { cause?: unknown })
}

/** Nobody needs the message any more: acknowledge it and keep no copy. */
export class Drop extends Error {
  constructor (reason?: string | Error, options?: { cause?: unknown })
}

// --- Worker ----------------------------------------------------------------------------------------------------------

/** What happened to a message, or to a connection: the same over each client, and of a worker. */
export interface Event {
  readonly name: EventName
  /** How loudly it is logged: warnings and errors are warnings of the process. */
  readonly level: 'debug' | 'info' | 'warning' | 'error'
  /** In words, with what to do. It never holds a password. */
  readonly text: string
  /**
   * The reason, where there is one. Of a failed attempt, and of its message that comes again or is parked, what the handler
   * threw: whatever that is. Not of a message that is parked as poison, as no handler had it; nor, of a worker's, of one that is
   * parked as oversized where nobody listened to retried as its run began: it has its errorText alone.
   */
  readonly error: any
  /** The class of what the handler threw; "" for none. */
  readonly errorClass: string
  /** What the handler threw, in words; "" for none. */
  readonly errorText: string
  /** The message's id, the same for all its attempts; "" for none. */
  readonly id: Text
  /** The work queue. */
  readonly queue: string
  /** Of an event about consuming or publishing: "consume" or "publish", of a worker one of its two connections; else "". */
  readonly connection: string
  /** Its "host:port"; else "". */
  readonly host: string
  /** Which attempt it is about, 1 for the first; else 0. */
  readonly attempt: number
  /** Failed attempts of the message so far. */
  readonly attempts: number
  /** Milliseconds until the next attempt; of a retry, how long the message waits. */
  readonly delay: number
  /** Milliseconds that a retry came later than due; undefined where that is unknown. */
  readonly lateness: number | undefined
  /** Milliseconds that the handler took; of a copy, from its publish to its confirm. */
  readonly duration: number | undefined
  /** Milliseconds from the first failure to the success. */
  readonly recovery: number | undefined
  /** Why it is parked: exhausted, permanent, too-old, oversized or poison; else "". */
  readonly reason: string
  /** How many messages it is about. */
  readonly count: number
  /** Whether it is worth a warning: of a worker, it becomes one of the process's where it has no listener. */
  readonly isWarning: boolean
  /** One line, for people. */
  toString (): string
  /** What applies to it, for JSON: level, name, the others without what is empty or 0, and `error` in words. */
  toJSON (): { [name: string]: unknown }
}

/**
 *     delivered      a handler gets a message
 *     succeeded      its handler succeeded
 *     failed         an attempt failed
 *     retried        a message waits for its next attempt: its copy is confirmed
 *     parked         a message went to the parked queue
 *     dropped        its handler says that nobody needs it
 *     replayed       a replay ended; `count` messages went
 *     returned       no queue took the copy; it is published again
 *     nacked         a queue was full or gone; the copy is published again
 *     unconfirmed    no confirm came in time; one copy is published again, and the others when the broker confirms one
 *     refused        no broker would take the copy as it is; the original stays unacknowledged for ten minutes
 *     stale          a message was settled that the broker delivers again
 *     connected      both connections of a worker are open, the topology is there; of a worker alone
 *     unavailable    connecting, declaring or consuming failed; it goes on after `delay`. Or the broker closed the channel that
 *                    publishes: `count` copies wait for the next one
 *     disconnected   a connection was lost, and not closed by the application; `count` messages come again. Of a retrier where it
 *                    consumes itself (`consume`), or copies were not confirmed yet
 *     blocked        the broker takes no publishes: memory or disk run low
 *     unblocked      it takes publishes again
 *     cancelled      the broker ended the consumer; it consumes again. Of a retrier only where it consumes itself
 *     missed         `count` events were not taken in time, and are gone; of a worker alone
 *     drained        the worker has stopped; the last event; of a worker alone
 *
 * delivered, succeeded, failed and dropped are told to whoever listens then, by `onEvent`, the channel backhop:event of
 * node:diagnostics_channel, or `worker.on`. Of a worker retried is told where somebody listened as its run began, or with its
 * option retryEvents.
 */
export type EventName =
  | 'delivered' | 'succeeded' | 'failed' | 'retried' | 'parked' | 'dropped' | 'replayed' | 'returned' | 'nacked'
  | 'unconfirmed' | 'refused' | 'stale' | 'connected' | 'unavailable' | 'disconnected' | 'blocked' | 'unblocked'
  | 'cancelled' | 'missed' | 'drained'

/** What listens to events: of `backhop/prom-client` or `backhop/opentelemetry`. */
export interface Bridge {
  /** @internal */
  readonly bridges: true
}

/** A function that is called with each event, and may be async; a bridge; or an array of these, where an empty one is none. */
export type Listener = ((event: Event) => unknown) | Bridge | ReadonlyArray<((event: Event) => unknown) | Bridge>

/** What a retrier and a worker are told alike. */
export interface CommonOptions extends Omit<Partial<TopologyOptions>, 'policies'> {
  /** Instead of queue, policy and what else a topology is made of. */
  topology?: Topology | undefined
  /**
   * How to treat the broker's topology, at `declare` and `consume`, and at each connect of a worker: `"create"` what is
   * missing (the default), `"verify"` that all is there and change nothing, `"none"`.
   */
  mode?: 'create' | 'verify' | 'none' | undefined
  /** Errors that park a message at once. */
  never?: Errors | undefined
  /** Errors that are tried again; what is none of these parks at once. Default: all. */
  only?: Errors | undefined
  /**
   * Errors that are tried again by a policy of their own: pairs of a class or a predicate and its Policy, or a Map; the first
   * that matches is used. One count of attempts is for all. A topology that is given has to serve them (its `policies`).
   *
   * @throws {@link ForeignPolicyError} for one of which the topology has not all waits
   */
  policies?: Iterable<readonly [ErrorClass | ErrorPredicate, Policy]> | undefined
  /** As History's. */
  legacyCounter?: Text | undefined
  /** As History's. */
  waitQueues?: Iterable<Text> | undefined
  /**
   * After so long without a confirm one copy is published again, and the others when the broker confirms one; an hour at most;
   * default 30 s.
   */
  confirmTimeout?: Duration | undefined
  /**
   * Delays between attempts to publish, to consume and, of a worker, to connect; its limits are ignored; default: 100 ms,
   * doubled up to 10 s, half of it by chance.
   */
  backOff?: Policy | undefined
  /**
   * Is told each event. What it throws, or rejects with, becomes a warning of the process (BACKHOP_LISTENER), at most ten a
   * second for a queue, and nothing else comes of it.
   */
  onEvent?: Listener | undefined
}

export interface WorkerOptions extends CommonOptions {
  /** How many handlers run at once, at most; default 50. */
  concurrency?: number | undefined
  /**
   * Messages that the broker sends ahead, 65535 at most, and so a limit of handlers at once too; default: twice the
   * concurrency, 100 at least. 0 consumes nothing: for a worker that only replays.
   */
  prefetch?: number | undefined
  /** PEM file of the CAs to trust with amqps:// instead of the system's; the peer is always verified. */
  caFile?: string | undefined
  /** For a connection; an hour at most; default 10 s. */
  connectTimeout?: Duration | undefined
  /** How long handlers may take to finish once the worker is told to stop; an hour at most; default 20 s. */
  drain?: Duration | undefined
  /** Whether each retry is an event too. */
  retryEvents?: boolean | undefined
  /**
   * Whether `run` rejects where the worker was never ready and that cannot mend itself: a refused password, vhost or
   * permission, a work queue that is missing, a clash, a strategy that the broker cannot serve, a certificate that does not
   * match. Default true; false tries again without end.
   */
  failFast?: boolean | undefined
}

/**
 * Consumes a queue and handles its messages; what fails comes back later, and is parked after its last attempt.
 *
 * The core's background thread keeps two connections, makes them again where they are lost, publishes copies, awaits their
 * confirms and acknowledges: heartbeats go on while a handler computes for an hour, and no call waits.
 *
 *     const worker = new Worker("amqp://localhost", { queue: "cdn-purge", policy, concurrency: 50 })
 *     worker.on("disconnected", (event) => console.error(String(event)))
 *     await worker.run(async (message) => purge(message.body), { signals: true })
 *
 * A handler that resolves (or returns) acknowledges its message; one that throws sees it again later, unless it throws Park
 * or Drop. What it throws is written to the message, and with NODE_DEBUG=backhop to stderr.
 *
 * Every event has a name, see {@link EventName}. One that is worth a warning and has no listener becomes a warning of the
 * process (type BackhopWarning, code: as BACKHOP_PARKED).
 *
 * A worker belongs to its thread. When the thread ends, the worker stops at once, and what was not settled comes again.
 */
export class Worker extends EventEmitter {
  /**
   * @param uris `amqp://user:password@host:port/vhost?heartbeat=seconds`, `amqps://` for TLS; or an array of them, to try
   * in turn
   * @throws {@link NoLibrabbitmqError} where this Backhop was built without librabbitmq; the text says what to install
   * @throws {@link URIError} for a URI that cannot be read
   */
  constructor (uris: string | readonly string[], options: WorkerOptions)
  readonly topology: Topology
  /**
   * Handles messages until the worker is stopped and drained; then it can run again.
   *
   * @param handle called with each message
   * @param options `signal`: aborting it stops the worker, draining. `signals`: the first of these signals of the process
   * does (true: SIGTERM and SIGINT); a second one is the system's again, and others who listen hear both. Default: none, as
   * signals are the application's
   * @throws {@link StateError} where it runs already
   * @throws {@link AccessError}, {@link MissingError}, {@link ClashError}, {@link BrokerError} or {@link TLSError} with
   * failFast: why the worker can never be ready
   */
  run (handle: (message: Message) => unknown, options?: {
    signal?: AbortSignal | undefined, signals?: boolean | readonly NodeJS.Signals[] | undefined
  }): Promise<void>
  /**
   * Stops, draining: no more messages are taken, handlers may finish, and what they do not settle in time goes back to the
   * queue. Resolves when that is done, so a handler does not await it. Stopping again sets the limit anew.
   *
   * @param options `timeout`: how long handlers may take; default: the worker's `drain`
   */
  stop (options?: { timeout?: Duration | undefined }): Promise<void>
  /** Stops, as `await using` does at the end of a block. */
  [Symbol.asyncDispose] (): Promise<void>
  /**
   * Sends parked messages back to the work queue, as if they had never failed, while the worker runs.
   *
   * @param most how many at most; default: all that are parked when it begins
   * @returns how many went
   * @throws {@link StateError} where the worker does not run, or a replay is under way already
   * @throws {@link MissingError} where there is no parked queue
   */
  replay (most?: number): Promise<number>
  on (name: EventName, listener: (event: Event) => void): this
  once (name: EventName, listener: (event: Event) => void): this
  off (name: EventName, listener: (event: Event) => void): this
}

/** What this Backhop was built of; print it when you report a bug. */
export interface BuildInfo {
  /** Of the core, which is the package's too. */
  readonly version: string
  /** Whether it was built with librabbitmq, so that there is a Worker. */
  readonly worker: boolean
  /** The version of librabbitmq that it was compiled with; "" without. */
  readonly librabbitmqCompiled: string
  /** The version that runs. */
  readonly librabbitmqLoaded: string
  toString (): string
}

/** Versions compiled and loaded, and whether there is a Worker. */
export function buildInfo (): BuildInfo

// --- Errors ----------------------------------------------------------------------------------------------------------

/** What every error of Backhop is. */
export class BackhopError extends Error {
  /** The core's name for it, as `"BH_ERR_POLICY"`. */
  readonly code: string
  /** The core's number for it. */
  readonly status: number
}
/** Memory could not be allocated; nothing was changed. */
export class OutOfMemoryError extends BackhopError {}
/** An argument is missing or out of its range. */
export class ArgumentError extends BackhopError {}
/** Called at the wrong time: before starting, after stopping, or twice. */
export class StateError extends BackhopError {}
/** The policy cannot be used; the text names the field, as the core spells it, and what to do. */
export class PolicyError extends BackhopError {}
/** A name is empty, too long (a work queue's: 247 bytes), not UTF-8, or begins with `amq.`. */
export class InvalidNameError extends BackhopError {}
/** The strategy cannot serve this policy; the text names one that does. */
export class StrategyError extends BackhopError {}
/** The broker cannot serve this strategy; the text names one that it can. */
export class BrokerError extends BackhopError {}
/** The message's own headers do not fit the connection's frame_max; publish over a larger one. */
export class FrameError extends BackhopError {}
/** The URI is not of the form `amqp[s]://user:password@host:port/vhost?heartbeat=seconds`. */
export class URIError extends BackhopError {}
/** This Backhop was built without librabbitmq, which the worker needs; the adapters do not. */
export class NoLibrabbitmqError extends BackhopError {}
/** The broker could not be reached, or the connection was lost. */
export class ConnectionFailedError extends BackhopError {}
/** TLS failed: check the CA file, the certificate's host name and the port. */
export class TLSError extends BackhopError {}
/** The broker refused the user, its password, the vhost or a permission. */
export class AccessError extends BackhopError {}
/** An exchange or queue exists with other arguments; the text tells the way out. */
export class ClashError extends BackhopError {}
/** An exchange or queue does not exist; the text tells which. */
export class MissingError extends BackhopError {}
/** A publish was returned, nacked or not confirmed in time; the original stays unacknowledged. */
export class PublishError extends BackhopError {}
/** The broker cancelled the consumer, as it does when its queue is deleted. */
export class ConsumerCancelledError extends BackhopError {}
/** Nothing arrived in the time given. */
export class WaitTimeoutError extends BackhopError {}
/** The broker closed the channel; the text holds its reply code and text. */
export class ChannelClosedError extends BackhopError {}
/** The process forked after the worker was made: make a new one in the child. */
export class ForkedError extends BackhopError {}
/** The message's own properties are malformed: it stays unacknowledged; move or remove it by hand. */
export class ContentError extends BackhopError {}
/** The topology lacks a wait of this policy: make it for the policy, or with it among its policies. */
export class ForeignPolicyError extends BackhopError {}
