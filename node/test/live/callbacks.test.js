'use strict'
// The retrier over amqplib's callbacks and confirm channels, on a broker: AMQP_URL names it.

const { testOver } = require('./adapters')

for (const client of ['amqplib, a confirm channel', 'amqplib, callbacks']) testOver(client)
