'use strict'
// The carriers of Node in tests/contract/cases.json, with one face. `settings`: the options of
// consume, or of a worker.

const { Worker } = require('backhop')

const { CLIENTS } = require('./clients')

class Callbacks extends CLIENTS['amqplib, callbacks'] {
  async begin (handle) {
    this.consumer = await this.retrier.consume(handle, this.settings)
  }
}

class Promises extends CLIENTS['amqplib, consume'] {
  async begin (handle) {
    this.consumer = await this.retrier.consume(handle, this.settings)
  }
}

class NodeAmqp extends CLIENTS['node-amqp, consume'] {
  async begin (handle) {
    this.consumer = await this.retrier.consume(handle, this.settings)
  }
}

class OfWorker {
  constructor (url, queue, options) {
    this.open = settings => new Worker(url, { queue, ...options, ...settings })
  }

  static async connect (...args) {
    return new this(...args)
  }

  begin (handle) {
    this.worker = this.open(this.settings)
    this.running = this.worker.run(handle)
  }

  async stop ({ timeout = '20s' } = {}) {
    await this.worker.stop({ timeout }).catch(() => {})
    await this.running
  }
}

const CARRIERS = {
  worker: OfWorker,
  promises: Promises,
  callbacks: Callbacks,
  wrap: CLIENTS['amqplib, promises'],
  'node-amqp': NodeAmqp
}

module.exports = { CARRIERS }
