'use strict'
// W3C's header, as an SDK's propagator reads and writes it; and one that a publisher wrote.

const { trace } = require('@opentelemetry/api')

const PUBLISHER = { traceId: '0af7651916cd43dd8448eb211c80319c', spanId: 'b7ad6b7169203331' }
const TRACEPARENT = `00-${PUBLISHER.traceId}-${PUBLISHER.spanId}-01`

const propagator = {
  inject (of, carrier, setter) {
    const { traceId, spanId } = trace.getSpanContext(of) ?? {}
    if (traceId) setter.set(carrier, 'traceparent', `00-${traceId}-${spanId}-01`)
  },
  extract (of, carrier, getter) {
    const [, traceId, spanId] = String(getter.get(carrier, 'traceparent') ?? '').split('-')
    return traceId ? trace.setSpanContext(of, { traceId, spanId, traceFlags: 1, isRemote: true }) : of
  },
  fields: () => ['traceparent']
}

module.exports = { PUBLISHER, TRACEPARENT, propagator }
