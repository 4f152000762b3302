'use strict'
// Retries over node-amqp (the package amqp). index.d.ts is the manual.

const { Message } = require('./message')
const { Retrier } = require('./retrier')

module.exports = { Message, Retrier }
