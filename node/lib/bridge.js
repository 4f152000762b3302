'use strict'
// Under this key a bridge, as of backhop/prom-client, has what is called with where events come from, and gives any of
//
//   counts                                     the core's metrics: each event is counted as it is made
//   observe(native, { queue, error, trace })   is told each event: the core's object, which is another one afterwards
//   around(message, queue, handler)            calls a message's handler and gives its result; a bridge that traces
//
// Events come from a retrier, which has copies(), how many are not confirmed; or from a worker, which has
// countFor(metrics): its thread counts then, once for all bridges and beginning as these do; what it gives
// adds all it has counted to others.

const BRIDGE = Symbol('bridge')
const TRACE = Symbol('trace') // of a message: what its tracing keeps for its copy; { traceparent, ... }

module.exports = { BRIDGE, TRACE }
