'use strict'
// Under this key a bridge, as of backhop/prom-client, has what is called with where events come from, and gives any of
//
//   counts                                     the core's metrics: each event is counted as it is made
//   observe(native, { queue, error, trace })   is told each event: the core's object, which is another one afterwards
//   trace(message, queue)                      begins the span of an attempt, and gives its end: run(call), in which
//                                              the handler is called; then succeeded() or failed(thrown)
//
// What any of these throws is contained. Events come from a retrier or a worker, which has copies(), how many are not
// confirmed; a worker has countFor(metrics), too: its thread counts then, once for all bridges and beginning as these
// do, the unconfirmed copies as well; what it gives adds all it has counted to others.

const BRIDGE = Symbol('bridge')
const TRACE = Symbol('trace') // of a message: what its tracing keeps for its copy; { traceparent, ... }

module.exports = { BRIDGE, TRACE }
