'use strict'
// What the bridges to metrics libraries share: the core's table of metrics, its counting, and the copies that wait.

const c = require('./addon')
const { ArgumentError, check, made } = require('./errors')
const { range } = require('./history')
const { texts } = require('./options')

const { BH_METRICS_MOST_ERROR_TYPES: MOST_ERROR_TYPES } = c
const INSTRUMENTS = {
  [c.BH_INSTRUMENT_COUNTER]: 'counter', [c.BH_INSTRUMENT_GAUGE]: 'gauge', [c.BH_INSTRUMENT_HISTOGRAM]: 'histogram'
}

/** Each metric there is, by the core's number. */
const METRICS = range(c.BH_METRIC_LAST).map(number => ({
  number,
  name: c.bh_metric_name(number),
  otelName: c.bh_metric_otel_name(number),
  unit: c.bh_metric_unit(number),
  help: c.bh_metric_help(number),
  type: INSTRUMENTS[c.bh_metric_instrument(number)],
  labels: range(c.bh_metric_label_count(number)).map(i => c.bh_metric_label(number, i)),
  otelLabels: range(c.bh_metric_label_count(number)).map(i => c.bh_metric_otel_label(number, i)),
  buckets: range(c.bh_metric_bucket_count(number)).map(i => c.bh_metric_bucket(number, i))
}))

/** The core's metrics; `errorTypes`: the classes of errors that are told apart, where it is not the first that come. */
function counting (errorTypes = []) {
  const names = new Set(texts(errorTypes, 'errorTypes'))
  if (names.size > MOST_ERROR_TYPES) {
    throw new ArgumentError(`errorTypes names ${names.size} classes of errors: give at most ${MOST_ERROR_TYPES}`)
  }
  const metrics = made(c.bh_metrics_new())
  for (const each of names) check(metrics.add_error_type(each))
  return metrics
}

/** How many copies are unconfirmed, of all retriers and workers that are still there. */
class Copies {
  #sources = new Set()

  add (copies) {
    if (copies) this.#sources.add(new WeakRef(copies))
  }

  get count () {
    let sum = 0
    for (const each of this.#sources) {
      const copies = each.deref()
      if (copies) sum += copies()
      else this.#sources.delete(each)
    }
    return sum
  }
}

module.exports = { Copies, METRICS, counting }
