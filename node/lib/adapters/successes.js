'use strict'
// Successes whose acknowledgement was lost. They are kept for the whole process, because the message
// may come back by another connection.

const { randomBytes } = require('node:crypto')
const { performance } = require('node:perf_hooks') // the global one is looked up at each use

const c = require('../core')
const { made } = require('../errors')
const { Message } = require('../message')
const NATIVE = require('../native')

const RANDOM_BYTES = 16

const successes = made(c.bh_successes_new(randomBytes(RANDOM_BYTES)))
const now = () => Math.floor(performance.now())

/**
 * Keeps the success of a message that cannot be acknowledged. Does nothing if the message has no id.
 *
 * content: the body as it arrived
 */
function keep (message, content) {
  successes.keep(Message.read(message, 'history')[NATIVE], Message.read(message, 'queue'), content, now())
}

/** Returns whether the message succeeded at an earlier delivery, and forgets this success. */
function take ({ history, queue, redelivered }, content) {
  return redelivered && Boolean(successes.take(history[NATIVE], queue, content, Number(redelivered), now()))
}

module.exports = { keep, take }
