'use strict'
// Metrics for prom-client. The core counts: for a worker, its own thread. A scrape reads the
// counts.

const { register: common } = require('prom-client')

const c = require('../core')
const { ATTACH } = require('./observer')
const { ArgumentError, check } = require('../errors')
const { Gauges, METRICS, counting } = require('./metrics')
const { only, refuse } = require('../checks')

const SAMPLE = /^(\w+?)(?:\{(.*)\})? (\S+)$/
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)",?/g
const ESCAPES = { n: '\n' }

function prometheus (options = {}) {
  const { register = common, errorTypes } = only(options, ['register', 'errorTypes'], 'prometheus')
  for (const method of ['registerMetric', 'getSingleMetric']) {
    if (typeof register?.[method] !== 'function') refuse('register', register, 'a Registry of prom-client\'s')
  }
  const clash = METRICS.find(({ name }) => register.getSingleMetric(name))
  if (clash) {
    throw new ArgumentError(
      `the registry has a metric named ${clash.name} already: give one prometheus() to all retriers and workers, or ` +
      'another registry, as { register: new Registry() }'
    )
  }
  return new Prometheus(register, errorTypes)
}

class Prometheus {
  #errorTypes
  #metrics
  #gauges = new Gauges()
  #workers = [] // functions that add the counts of a worker; they also count workers that have stopped
  #samples // of one scrape

  constructor (register, errorTypes) {
    this.#errorTypes = errorTypes
    this.#metrics = counting(errorTypes)
    for (const metric of METRICS) register.registerMetric(new Metric(metric, () => this.#samplesOf(metric)))
  }

  [ATTACH] (source) {
    const { countFor } = source
    if (!countFor) {
      this.#gauges.add(source)
      return { counts: this.#metrics }
    }
    this.#workers.push(countFor(counting(this.#errorTypes)))
    return {}
  }

  /** Returns all counts in Prometheus' text format. */
  #text () {
    const all = counting(this.#errorTypes)
    check(this.#metrics.set(c.BH_METRIC_COPIES_UNCONFIRMED, this.#gauges.copies))
    check(all.add(this.#metrics))
    for (const addTo of this.#workers) addTo(all)
    this.#gauges.addConsumersTo(all)
    return String(all.text())
  }

  #samplesOf ({ name, type }) {
    if (!this.#samples) {
      this.#samples = samplesOf(this.#text())
      setImmediate(() => { this.#samples = undefined })
    }
    const names = type === 'histogram' ? ['bucket', 'sum', 'count'].map(part => `${name}_${part}`) : [name]
    return names.flatMap(each => {
      const samples = this.#samples.get(each) ?? []
      return type === 'histogram' ? samples.map(sample => ({ ...sample, metricName: each })) : samples
    })
  }
}

/** A metric in the shape that prom-client's registries need. */
class Metric {
  #valuesOf

  constructor ({ name, help, type, number }, valuesOf) {
    const aggregator = number === c.BH_METRIC_BREAKER_STATE ? 'max' : 'sum' // of the processes of a cluster
    Object.assign(this, { name, help, type, aggregator })
    this.#valuesOf = valuesOf
  }

  async get () {
    const { name, help, type, aggregator } = this
    return { name, help, type, aggregator, values: this.#valuesOf() }
  }

  reset () {} // counts since the start are kept
}

/** Returns samples `{ labels, value }` by name, of Prometheus' text format. */
function samplesOf (text) {
  const samples = new Map()
  for (const line of text.split('\n')) {
    const [, name, labels = '', value] = SAMPLE.exec(line) ?? []
    if (!name || line.startsWith('#')) continue
    if (!samples.has(name)) samples.set(name, [])
    samples.get(name).push({ labels: labelsOf(labels), value: Number(value) })
  }
  return samples
}

function labelsOf (text) {
  return Object.fromEntries(Array.from(text.matchAll(LABEL), ([, name, value]) => [
    name, value.replace(/\\(.)/g, (_, letter) => ESCAPES[letter] ?? letter)
  ]))
}

module.exports = { prometheus }
