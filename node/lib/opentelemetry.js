'use strict'
// Traces and metrics for OpenTelemetry, by its API alone: the application brings the SDK.

const {
  SpanKind, SpanStatusCode, TraceFlags, context, metrics: meters, propagation, trace
} = require('@opentelemetry/api')

const c = require('./addon')
const { BRIDGE, TRACE } = require('./bridge')
const { check } = require('./errors')
const { Copies, METRICS, counting } = require('./metrics')
const { flag, only, refuse } = require('./options')
const { classOf, isFailure, textOf } = require('./outcomes')

const SCOPE = 'backhop'
const COPIES = { [c.BH_EVENT_RETRIED]: 'retry', [c.BH_EVENT_PARKED]: 'park' }
const TRACEPARENT = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/
const NOWHERE = /^0+$/
const US = 1000 // in a millisecond

// --- Traces --------------------------------------------------------------------------------------------------------

function tracing (options = {}) {
  const { provider = trace, failureIsError = true } = only(options, ['provider', 'failureIsError'], 'tracing')
  if (typeof provider?.getTracer !== 'function') refuse('provider', provider, 'a TracerProvider')
  return new Tracing(provider, flag(failureIsError, 'failureIsError'))
}

class Tracing {
  #provider
  #failureIsError

  constructor (provider, failureIsError) {
    this.#provider = provider
    this.#failureIsError = failureIsError
  }

  get #tracer () {
    return this.#provider.getTracer(SCOPE, String(c.bh_version()))
  }

  [BRIDGE] () {
    return {
      observe: (native, about) => this.#copied(native, about),
      around: (message, queue, handle) => this.#attempt(message, queue, handle)
    }
  }

  /** Runs a handler within the span of its attempt, which links to that of the attempt before. */
  #attempt (message, queue, handle) {
    const attributes = {
      ...attributesOf(queue, 'process', message.id),
      'backhop.attempt': message.attempt
    }
    const before = contextOf(String(message.history.traceparent))
    const options = { kind: SpanKind.CONSUMER, attributes, links: before ? [{ context: before, attributes: {} }] : [] }
    const span = this.#tracer.startSpan(`process ${queue}`, options, parentOf(message.headers))
    const within = trace.setSpan(context.active(), span)
    message[TRACE] = { context: within, traceparent: traceparentOf(span.spanContext()) }
    const fail = thrown => {
      this.#failed(span, thrown)
      throw thrown
    }
    const end = result => {
      span.end()
      return result
    }
    try {
      const result = context.with(within, () => handle(message))
      return typeof result?.then === 'function' ? Promise.resolve(result).then(end, fail) : end(result)
    } catch (thrown) {
      return fail(thrown)
    }
  }

  #failed (span, thrown) {
    if (isFailure(thrown)) {
      const { stack } = Object(thrown)
      span.setAttribute('error.type', classOf(thrown))
      span.recordException({ name: classOf(thrown), message: textOf(thrown), stack })
      if (this.#failureIsError) span.setStatus({ code: SpanStatusCode.ERROR, message: textOf(thrown) })
    }
    span.end()
  }

  /** A copy is confirmed: from its publish on it took as long as its event says. */
  #copied (native, { queue, trace: attempt }) {
    const operation = attempt && COPIES[native.what()]
    if (!operation) return
    const text = field => String(native.string(field))
    const attributes = {
      ...attributesOf(queue, operation, text(c.BH_FIELD_ID)),
      'backhop.attempts': c.bh_event_int(native, c.BH_FIELD_ATTEMPTS)
    }
    if (operation === 'retry') attributes['backhop.delay_ms'] = c.bh_event_int(native, c.BH_FIELD_DELAY)
    else attributes['backhop.reason'] = text(c.BH_FIELD_REASON)
    const end = Date.now()
    const startTime = end - c.bh_event_int(native, c.BH_FIELD_DURATION) / US
    const options = { kind: SpanKind.PRODUCER, attributes, startTime }
    this.#tracer.startSpan(`${operation} ${queue}`, options, attempt.context).end(end)
  }
}

function attributesOf (queue, operation, id) {
  const attributes = {
    'messaging.system': 'rabbitmq',
    'messaging.operation.name': operation,
    'messaging.operation.type': operation === 'process' ? 'process' : 'send',
    'messaging.destination.name': queue
  }
  if (id) attributes['messaging.message.id'] = id
  return attributes
}

/** The span that is active, as that of the client's own instrumentation, or else the publisher's. */
function parentOf (headers) {
  const active = context.active()
  return trace.getSpan(active) ? active : propagation.extract(active, headers, HEADERS)
}

const HEADERS = {
  keys: headers => Object.keys(headers),
  get: (headers, name) => headers[name] === undefined ? undefined : String(headers[name])
}

function contextOf (traceparent) {
  const [, traceId, spanId, flags] = TRACEPARENT.exec(traceparent) ?? []
  return traceId && { traceId, spanId, traceFlags: parseInt(flags, 16), isRemote: true }
}

/** W3C's; "" for a span that no SDK made. */
function traceparentOf ({ traceId, spanId, traceFlags = TraceFlags.NONE }) {
  if (NOWHERE.test(traceId)) return ''
  return `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, '0')}`
}

// --- Metrics -------------------------------------------------------------------------------------------------------

function metrics (options = {}) {
  const { provider = meters, errorTypes } = only(options, ['provider', 'errorTypes'], 'metrics')
  if (typeof provider?.getMeter !== 'function') refuse('provider', provider, 'a MeterProvider')
  const counted = counting(errorTypes)
  const meter = provider.getMeter(SCOPE, String(c.bh_version()))
  return new Metrics(meter, counted, copiesOf(provider, meter))
}

const gauges = new WeakMap() // the copies by provider: an SDK keeps one value of a gauge

function copiesOf (provider, meter) {
  const source = provider.getMeterProvider?.() ?? provider // of the API's global one, the one that it stands for
  let copies = gauges.get(source)
  if (!copies) {
    copies = new Copies()
    const { otelName: name, unit, help: description } = METRICS[c.BH_METRIC_COPIES_UNCONFIRMED]
    meter.createObservableGauge(name, { unit, description }).addCallback(result => result.observe(copies.count))
    gauges.set(source, copies)
  }
  return copies
}

class Metrics {
  #metrics
  #instruments
  #copies

  constructor (meter, counted, copies) {
    this.#metrics = counted
    this.#instruments = METRICS.map(each => this.#instrument(meter, each))
  }

  /** What takes a value and its attributes. */
  #instrument (meter, { otelName: name, unit, help: description, type, buckets }) {
    if (type === 'counter') {
      const counter = meter.createCounter(name, { unit, description })
      return (value, attributes) => counter.add(value, attributes)
    }
    if (type === 'gauge') return undefined
    const advice = { explicitBucketBoundaries: buckets }
    const histogram = meter.createHistogram(name, { unit, description, advice })
    return (value, attributes) => histogram.record(value, attributes)
  }

    this.#copies = copies
  [BRIDGE] ({ copies }) {
    this.#copies.add(copies)
    return { observe: native => this.#observe(native) }
  }

  #observe (native) {
    const counted = this.#metrics
    check(counted.observe(native))
    for (let i = 0, count = counted.sample_count(); i < count; i++) {
      const metric = counted.sample_metric(i)
      const attributes = {}
      METRICS[metric].otelLabels.forEach((name, label) => {
        const value = counted.sample_label(i, label)
        if (value !== '') attributes[name] = value
      })
      this.#instruments[metric]?.(counted.sample_value(i), attributes)
    }
  }
}

module.exports = { metrics, tracing }
