/**
 * Retries for RabbitMQ consumers.
 *
 *     const policy = new Policy({
 *       initial: "10s", factor: 3, max: "1h", jitter: 0.2, maxAttempts: 8
 *     })
 *     console.log(policy.preview())                    // prints as a table, and is data
 *
 * To use your client, see backhop/amqplib and backhop/amqp. A worker needs no client:
 *
 *     const worker = new Worker("amqp://localhost", {
 *       queue: "cdn-purge", policy, concurrency: 50
 *     })
 *     await worker.run(async (message) => { ... })     // resolves: ack; throws: retry
 *
 * If a handler resolves, its message is acknowledged. If it throws, the message is retried later.
 * It may throw
 *
 *     new RetryAfter("30s")     retry after 30 seconds at the earliest
 *     new Throttled("30s")      the same, but this was no attempt
 *     new Park("why")           park the message now
 *     new Drop()                acknowledge it and keep no copy
 *
 * @packageDocumentation
 */

export * from './breaker.js'
export * from './build-info.js'
export * from './delivery.js'
export * from './errors.js'
export * from './health.js'
export * from './history.js'
export * from './message.js'
export * from './observe/event.js'
export * from './options.js'
export * from './outcomes.js'
export * from './plan.js'
export * from './policy.js'
export * from './topology.js'
export * from './types.js'
export * from './worker.js'

/** Version of the core and of the package. */
export const version: string
