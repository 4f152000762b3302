import type { MeterProvider, TracerProvider } from '@opentelemetry/api'

import type { Bridge } from '../index.js'

/**
 * Returns a bridge that traces attempts.
 *
 *     new Retrier(channel, { queue, policy, onEvent: [tracing(), metrics()] })
 *
 * Each handler runs in a span `process {queue}`, which links to the span of the attempt before.
 * Copies have the spans `retry {queue}` and `park {queue}`. The parent is the active span, for
 * example of the client's own instrumentation, if it belongs to the message's trace or the message
 * has none. Otherwise the parent is the publisher's span. A copy keeps the traceparent of the
 * publisher.
 *
 * If the SDK throws, the handler runs without a span, and the process gets a warning
 * (BACKHOP_LISTENER).
 *
 * @param options `tracerProvider`: default: the API's global one. `failureIsError`: sets the status
 *   of a failed attempt's span to error; default true
 */
export function tracing (options?: {
  tracerProvider?: Pick<TracerProvider, 'getTracer'> | undefined, failureIsError?: boolean | undefined
}): Bridge

/**
 * Returns a bridge that counts events. One bridge can serve all retriers and workers.
 * backhop.copies.unconfirmed is a sum over all bridges of one provider.
 *
 *     const counted = metrics()
 *     new Retrier(channel, { queue, policy, onEvent: counted })
 *     new Worker(uri, { queue, policy, onEvent: [counted, tracing()] })
 *
 * @param options `meterProvider`: default: the API's global one. `errorTypes`: classes of errors
 *   with a label of their own, at most 32; any other class is "_OTHER"; default: the first 32 that
 *   occur
 * @throws {@link ArgumentError} if there are more than 32
 */
export function metrics (options?: {
  meterProvider?: Pick<MeterProvider, 'getMeter'> | undefined, errorTypes?: Iterable<string> | undefined
}): Bridge
