import type { MeterProvider, TracerProvider } from '@opentelemetry/api'

import type { Bridge } from './index.js'

/**
 * Traces attempts: a span `process {queue}` around each handler, which links to that of the attempt before, and `retry {queue}`
 * and `park {queue}` for the copies. Its parent is the span that is active, as of the client's own instrumentation, where that
 * is of the message's trace or the message has none; else the publisher's. A copy's traceparent stays the publisher's. Where the
 * SDK fails, the handler runs without a span, and a warning (BACKHOP_LISTENER) says so.
 *
 *     new Retrier(channel, { queue, policy, onEvent: [tracing(), metrics()] })
 *
 * @param options `tracerProvider`: default: the API's global one. `failureIsError`: whether the span of a failed
 * attempt has the status error; default true
 */
export function tracing (options?: {
  tracerProvider?: Pick<TracerProvider, 'getTracer'> | undefined, failureIsError?: boolean | undefined
}): Bridge

/**
 * Metrics of retriers and workers, of which one serves all. backhop.copies.unconfirmed is a sum over all that metrics of the
 * same provider are given to.
 *
 *     const counted = metrics()
 *     new Retrier(channel, { queue, policy, onEvent: counted })
 *     new Worker(uri, { queue, policy, onEvent: [counted, tracing()] })
 *
 * @param options `meterProvider`: default: the API's global one. `errorTypes`: the classes of errors to tell
 * apart, at most 32 (more are an ArgumentError); any other is "_OTHER"; default: the first 32 that are met
 */
export function metrics (options?: {
  meterProvider?: Pick<MeterProvider, 'getMeter'> | undefined, errorTypes?: Iterable<string> | undefined
}): Bridge
