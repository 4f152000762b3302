'use strict'
// Retries over amqplib. index.d.ts is the manual.

const { Message } = require('./message')
const { Retrier } = require('./retrier')

module.exports = { Message, Retrier }
