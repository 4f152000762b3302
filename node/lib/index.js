'use strict'
// Retries for RabbitMQ consumers: later each time, only to the queue that failed, never lost.
// index.d.ts is the manual.

const c = require('./core')
const { Breaker } = require('./breaker')
const { buildInfo } = require('./build-info')
const { Delivery } = require('./delivery')
const { CLASSES, BackhopError } = require('./errors')
const { History, explain } = require('./history')
const { Message } = require('./message')
const { Drop, Park, RetryAfter, Throttled } = require('./outcomes')
const { Plan } = require('./plan')
const { Policy } = require('./policy')
const { Topology } = require('./topology')
const { Worker } = require('./worker')

const errors = Object.fromEntries(Object.values(CLASSES).map(Class => [Class.name, Class]))

module.exports = {
  ...errors,
  BackhopError,
  Breaker,
  Delivery,
  Drop,
  History,
  Message,
  Park,
  Plan,
  Policy,
  RetryAfter,
  Throttled,
  Topology,
  Worker,
  buildInfo,
  explain,
  version: c.bh_version()
}
