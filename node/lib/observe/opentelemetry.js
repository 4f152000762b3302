'use strict'
// Traces and metrics for OpenTelemetry, by its API alone: the application brings the SDK.

const {
  SpanKind, SpanStatusCode, TraceFlags, context, isSpanContextValid, metrics: meters, propagation, trace
} = require('@opentelemetry/api')

const c = require('../core')
const { ATTACH, TRACE } = require('./observer')
const { check } = require('../errors')
const { Gauges, METRICS, counting } = require('./metrics')
const { flag, only, refuse } = require('../checks')
const { classOf, isDrop, textOf } = require('../outcomes')

const SCOPE = 'backhop'
const COPIES = { [c.BH_EVENT_RETRIED]: 'retry', [c.BH_EVENT_DEFERRED]: 'defer', [c.BH_EVENT_PARKED]: 'park' }
const TRACEPARENT = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/
const NOWHERE = /^0+$/
const US = 1000 // in a millisecond
const MS = 1000 // in a second

// --- Traces --------------------------------------------------------------------------------------

function tracing (options = {}) {
  const { tracerProvider = trace, failureIsError = true } = only(
    options, ['tracerProvider', 'failureIsError'], 'tracing'
  )
  if (typeof tracerProvider?.getTracer !== 'function') refuse('tracerProvider', tracerProvider, 'a TracerProvider')
  return new Tracing(tracerProvider, flag(failureIsError, 'failureIsError'))
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

  [ATTACH] () {
    return {
      observe: (native, about) => this.#copied(native, about),
      trace: (message, queue) => this.#attempt(message, queue),
      waits: ({ headers }) => ({ context: parentOf(headers) })
    }
  }

  /** Begins the span of an attempt. It links to the span of the attempt before. */
  #attempt (message, queue) {
    const { id, attempt, routingKey, history, headers } = message
    const attributes = { ...attributesOf(queue, 'process', id), 'backhop.attempt': attempt }
    if (routingKey) attributes['messaging.rabbitmq.destination.routing_key'] = routingKey
    const before = contextOf(String(history.traceparent))
    const options = { kind: SpanKind.CONSUMER, attributes, links: before ? [{ context: before, attributes: {} }] : [] }
    const parent = parentOf(headers)
    const span = this.#tracer.startSpan(`process ${queue}`, options, parent)
    const within = trace.setSpan(parent, span)
    message[TRACE] = { context: within, traceparent: traceparentOf(span.spanContext()) }
    return {
      run: call => context.with(within, call),
      succeeded: () => span.end(),
      failed: thrown => this.#failed(span, thrown)
    }
  }

  #failed (span, thrown) {
    try {
      if (isDrop(thrown)) return
      const [name, message] = [classOf(thrown), textOf(thrown)]
      span.setAttribute('error.type', name)
      span.recordException({ name, message, stack: stackOf(thrown) })
      if (this.#failureIsError) span.setStatus({ code: SpanStatusCode.ERROR, message })
    } finally {
      span.end()
    }
  }

  /** Makes the span of a confirmed copy. It lasts from the publish to the confirm. */
  #copied (native, { queue, trace: attempt }) {
    const operation = attempt && COPIES[native.what()]
    if (!operation) return
    const text = field => String(native.string(field))
    const attributes = {
      ...attributesOf(queue, operation, text(c.BH_FIELD_ID)),
      'backhop.attempts': c.bh_event_int(native, c.BH_FIELD_ATTEMPTS)
    }
    if (operation === 'retry') attributes['backhop.delay'] = c.bh_event_int(native, c.BH_FIELD_DELAY) / MS
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

/**
 * Returns the parent of a span. It is the active span if the message has no trace or is of the same
 * trace; otherwise the publisher's. A span that was active at start-up belongs to no message.
 */
function parentOf (headers) {
  const active = context.active()
  const current = trace.getSpanContext(active)
  const theirs = propagation.extract(trace.deleteSpan(active), headers, HEADERS)
  const publisher = trace.getSpanContext(theirs)
  if (!isValid(current)) return theirs
  return isValid(publisher) && publisher.traceId !== current.traceId ? theirs : active
}

function isValid (spanContext) {
  return spanContext !== undefined && isSpanContextValid(spanContext)
}

/**
 * Reads headers for a propagator. Headers are untrusted: values that are not strings are left out.
 */
const HEADERS = {
  keys: headers => Object.keys(headers).filter(name => typeof headers[name] === 'string'),
  get: (headers, name) => {
    const value = Object.hasOwn(headers, name) ? headers[name] : undefined
    return typeof value === 'string' ? value : undefined
  }
}

function stackOf (thrown) {
  try {
    const { stack } = Object(thrown)
    return typeof stack === 'string' ? stack : undefined
  } catch {
    return undefined
  }
}

function contextOf (traceparent) {
  const [, traceId, spanId, flags] = TRACEPARENT.exec(traceparent) ?? []
  return traceId && { traceId, spanId, traceFlags: parseInt(flags, 16), isRemote: true }
}

/** Returns W3C's traceparent; "" if no SDK made the span. */
function traceparentOf ({ traceId, spanId, traceFlags = TraceFlags.NONE }) {
  if (NOWHERE.test(traceId)) return ''
  return `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, '0')}`
}

// --- Metrics -------------------------------------------------------------------------------------

function metrics (options = {}) {
  const { meterProvider = meters, errorTypes } = only(options, ['meterProvider', 'errorTypes'], 'metrics')
  if (typeof meterProvider?.getMeter !== 'function') refuse('meterProvider', meterProvider, 'a MeterProvider')
  const counted = counting(errorTypes)
  const meter = meterProvider.getMeter(SCOPE, String(c.bh_version()))
  return new Metrics(meter, counted, gaugesOf(meterProvider, meter))
}

const known = new WeakMap() // Gauges by provider: an SDK

function gaugesOf (provider, meter) {
  const source = provider.getMeterProvider?.() ?? provider // the provider behind the API's global one
  let gauges = known.get(source)
  if (!gauges) {
    gauges = new Gauges()
    makeGauge(meter, c.BH_METRIC_COPIES_UNCONFIRMED, result => result.observe(gauges.copies))
    makeGauge(meter, c.BH_METRIC_CONSUMERS_READY, result => observeConsumers(gauges, result))
    known.set(source, gauges)
  }
  return gauges
}

function makeGauge (meter, metric, callback) {
  const { otelName: name, unit, help: description } = METRICS[metric]
  meter.createObservableGauge(name, { unit, description }).addCallback(callback)
}

/** Observes the number of ready consumers of each queue. */
function observeConsumers (gauges, result) {
  const metrics = counting()
  const sums = new Map() // by queue; a later sample has the sum
  gauges.addConsumersTo(metrics, () => {
    const [, value, queue] = metrics.sample(0)
    sums.set(queue, value)
  })
  const [name] = METRICS[c.BH_METRIC_CONSUMERS_READY].otelLabels
  for (const [queue, value] of sums) result.observe(value, { [name]: queue })
}

class Metrics {
  #metrics
  #instruments
  #gauges

  constructor (meter, counted, gauges) {
    this.#metrics = counted
    this.#gauges = gauges
    this.#instruments = METRICS.map(each => this.#instrument(meter, each))
  }

  /** Returns a function that records a value and its attributes. */
  #instrument (meter, { otelName: name, unit, help: description, type, buckets }) {
    if (type === 'counter') {
      const counter = meter.createCounter(name, { unit, description })
      return (value, attributes) => counter.add(value, attributes)
    }
    if (type === 'gauge') return this.#gauge(meter, { name, unit, description })
    const advice = { explicitBucketBoundaries: buckets }
    const histogram = meter.createHistogram(name, { unit, description, advice })
    return (value, attributes) => histogram.record(value, attributes)
  }

  /** Returns a function that keeps the last value of each set of attributes for the next export. */
  #gauge (meter, { name, ...options }) {
    if (name !== METRICS[c.BH_METRIC_BREAKER_STATE].otelName) return undefined // see gaugesOf
    const last = new Map()
    meter.createObservableGauge(name, options).addCallback(result => {
      for (const { value, attributes } of last.values()) result.observe(value, attributes)
    })
    return (value, attributes) => last.set(JSON.stringify(attributes), { value, attributes })
  }

  [ATTACH] (source) {
    this.#gauges.add(source)
    return { observe: native => this.#observe(native) }
  }

  #observe (native) {
    const counted = this.#metrics
    check(counted.observe(native))
    for (let i = 0, count = counted.sample_count(); i < count; i++) {
      const [metric, value, ...labels] = counted.sample(i)
      const attributes = {}
      METRICS[metric].otelLabels.forEach((name, index) => {
        if (labels[index] !== '') attributes[name] = labels[index]
      })
      this.#instruments[metric]?.(value, attributes)
    }
  }
}

module.exports = { metrics, tracing }
