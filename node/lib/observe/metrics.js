'use strict'
// Shared by the observers for metrics libraries: the table of metrics, counting, and the gauges of
// unconfirmed copies and ready consumers.

const c = require('../core')
const { ArgumentError, check, made } = require('../errors')
const { range } = require('../native')
const { numbers, texts } = require('../checks')

const { BH_METRICS_MOST_ERROR_TYPES: MOST_ERROR_TYPES } = c
const READY = c.bh_health_name(c.BH_HEALTH_READY)
const INSTRUMENTS = Object.keys(numbers('BH_INSTRUMENT_')) // by the core's numbers

/** All metrics, by the core's numbers. */
const METRICS = range(c.BH_METRIC_LAST).map(number => {
  const [name, otelName, unit, help, instrument, labels, otelLabels, buckets] = c.bh_metric_describe(number)
  return { number, name, otelName, unit, help, type: INSTRUMENTS[instrument], labels, otelLabels, buckets }
})

/**
 * Makes metrics of the core. errorTypes: classes of errors with a label of their own; default: the
 * first ones that occur.
 *
 * Throws an ArgumentError if there are too many.
 */
function counting (errorTypes = []) {
  const names = new Set(texts(errorTypes, 'errorTypes'))
  if (names.size > MOST_ERROR_TYPES) {
    throw new ArgumentError(`errorTypes names ${names.size} classes of errors: give at most ${MOST_ERROR_TYPES}`)
  }
  const metrics = made(c.bh_metrics_new())
  for (const each of names) check(metrics.add_error_type(each))
  return metrics
}

/** The gauges of all sources: retriers and workers, held by weak references. */
class Gauges {
  #sources = new Set() // weak references to { copies, consumers }

  add (source) {
    if (source.copies) this.#sources.add(new WeakRef(source))
  }

  /** The number of unconfirmed copies. */
  get copies () {
    return this.#all().reduce((sum, { copies }) => sum + copies(), 0)
  }

  /** Adds each consumer to metrics of the core. Calls `added` after each one. */
  addConsumersTo (metrics, added = () => {}) {
    for (const { consumers } of this.#all()) {
      const { queue, states } = consumers?.() ?? { states: [] }
      for (const state of states) {
        check(metrics.add_consumer(queue, Number(state === READY)))
        added()
      }
    }
  }

  #all () {
    const found = []
    for (const each of this.#sources) {
      const source = each.deref()
      if (source) found.push(source)
      else this.#sources.delete(each)
    }
    return found
  }
}

module.exports = { Gauges, METRICS, counting }
