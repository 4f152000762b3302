'use strict'
// Versions that this Backhop was built with.

const { inspect } = require('node:util')

const c = require('./core')

class BuildInfo {
  version = c.bh_version()

  constructor () {
    [this.librabbitmqCompiled, this.librabbitmqLoaded] = c.bh_worker_librabbitmq()
  }

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
