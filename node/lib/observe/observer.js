'use strict'
// Observers: metrics and traces that are given to `onEvent`. backhop/prom-client and
//   backhop/opentelemetry make them.
//
// An observer has a function under the key ATTACH. It is called with the source of events, and
// returns any of
//
//   counts                                     the core's metrics, which count each event
//   observe(native, { queue, error, trace })   is called with each event: the core's object, which
//                                              is valid during the call
//   trace(message, queue)                      begins the span of an attempt; returns { run(call),
//                                              succeeded(), failed(thrown) }; `run` calls the
//                                              handler
//   waits(message)                             returns the trace of a message that no handler got
//
// Exceptions of these functions become warnings.
//
// The source is a retrier or a worker. It has copies(), the number of unconfirmed copies, and
// consumers(), which returns their queue and states, as { queue, states: ['ready'] }. A worker
// also has countFor(metrics): its thread counts then into these metrics, for all observers; the
// result adds these counts to other metrics.

const ATTACH = Symbol('attach')
const TRACE = Symbol('trace') // of a message: its tracing's data for its copy, { traceparent, ... }

module.exports = { ATTACH, TRACE }
