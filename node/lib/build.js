'use strict'
// What this Backhop was built of.

const { inspect } = require('node:util')

const c = require('./addon')

class BuildInfo {
  version = c.bh_version()
  librabbitmqCompiled = c.bh_worker_librabbitmq_compiled()
  librabbitmqLoaded = c.bh_worker_librabbitmq_loaded()

  get worker () {
    return this.librabbitmqCompiled !== ''
  }

  toString () {
    const { version, worker, librabbitmqCompiled, librabbitmqLoaded } = this
    if (!worker) return `backhop ${version}, without librabbitmq: no Worker`
    return `backhop ${version}, compiled with librabbitmq ${librabbitmqCompiled}, running with ${librabbitmqLoaded}`
  }

  [inspect.custom] () {
    return this.toString()
  }
}

function buildInfo () {
  return new BuildInfo()
}

module.exports = { buildInfo }
