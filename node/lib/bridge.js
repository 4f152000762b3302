'use strict'
// Under this key a bridge, as of backhop/prom-client, has what is called with a function that tells how many copies are
// unconfirmed, and gives
//
//   observe(native, { queue, error, trace })   is told each event: the core's object, which is another one afterwards
//   around(message, queue, handler)            calls a message's handler and gives its result; a bridge that traces

const BRIDGE = Symbol('bridge')
const TRACE = Symbol('trace') // of a message: what its tracing keeps for its copy; { traceparent, ... }

module.exports = { BRIDGE, TRACE }
