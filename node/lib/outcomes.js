'use strict'
// What a handler throws to say more than "it failed".

const { inspect } = require('node:util')

const { milliseconds } = require('./time')

/** What RetryAfter, Park and Drop are; `reason` is a text, or the error that was met. */
class Outcome extends Error {
  constructor (reason = '', options = undefined) {
    if (reason instanceof Error) super(textOf(reason), { cause: reason })
    else super(String(reason), options)
  }

  get name () {
    return this.constructor.name
  }
}

class RetryAfter extends Outcome {
  constructor (delay, reason, options) {
    super(reason, options)
    this.delay = milliseconds(delay) // what is no duration is the handler's mistake, and thrown there
  }
}

class Park extends Outcome {}

class Drop extends Outcome {}

const UNPRINTABLE = 'what was thrown cannot be printed'
const OK = Object.freeze({ outcome: 'ok', error: '', retryAfter: 0 })

/** What became of a message, by what its handler threw; errors of a class in `never` park. */
function resultOf (thrown, never = []) {
  try {
    const error = textOf(thrown)
    if (thrown instanceof RetryAfter) return { outcome: 'failed', error, retryAfter: thrown.delay }
    return { outcome: outcomeOf(thrown, never), error, retryAfter: 0 }
  } catch { // a proxy that throws is no reason to lose a message
    return { outcome: 'failed', error: UNPRINTABLE, retryAfter: 0 }
  }
}

function outcomeOf (thrown, never) {
  if (thrown instanceof Park) return 'permanent'
  if (thrown instanceof Drop) return 'dropped'
  return never.some(Class => thrown instanceof Class) ? 'permanent' : 'failed'
}

/** What was said, else what it was thrown for. */
function wordsOf ({ message, cause }) {
  return message || (cause === undefined ? '' : textOf(cause))
}

/** What was thrown, in words. */
function textOf (thrown) {
  try {
    if (thrown instanceof Outcome) return wordsOf(thrown)
    if (!(thrown instanceof Error)) return typeof thrown === 'string' ? thrown : inspect(thrown, { depth: 1 })
    const name = String(thrown.name === 'Error' ? thrown.constructor.name : thrown.name)
    const text = String(thrown.message || thrown.code || '')
    return text ? `${name}: ${text}` : name
  } catch {
    return UNPRINTABLE
  }
}

module.exports = { Drop, OK, Park, RetryAfter, resultOf, textOf }
