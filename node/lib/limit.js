'use strict'
// The time limit of a handler: the option timeout of a worker and of consume.

const { performance } = require('node:perf_hooks') // the global one is looked up at each use

const c = require('./core')
const { Overrun, isDrop } = require('./outcomes')
const { OUTCOMES } = require('./plan')
const { milliseconds } = require('./times')

const LONGEST_MS = 86_400_000

/** Returns the limit in ms; undefined for none. */
function limitOf (timeout) {
  return timeout === undefined ? undefined : milliseconds(timeout, 'timeout', { least: 1, most: LONGEST_MS })
}

/**
 * Returns a handler that throws or rejects with an Overrun at the limit. It then aborts the
 * message's signal, and leaves the promise of `handle`.
 *
 * A handler that blocks the event loop fails when it returns, even if it succeeded.
 *
 * limit: in ms; undefined for none
 */
function limited (handle, limit) {
  if (limit === undefined) return handle
  return message => {
    const began = performance.now()
    const check = outcome => {
      const text = c.bh_overrun_text(OUTCOMES[outcome], Math.floor(performance.now() - began), limit)
      if (text) throw new Overrun(text)
    }
    const succeed = result => {
      check('ok')
      return result
    }
    const fail = thrown => {
      if (isDrop(thrown)) check('dropped')
      throw thrown
    }
    const release = message._limit()
    let result
    let isAsync
    try {
      result = handle(message)
      isAsync = typeof result?.then === 'function'
    } catch (thrown) {
      release()
      return fail(thrown)
    }
    if (!isAsync) {
      release()
      return succeed(result)
    }
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        const error = new Overrun(c.bh_overrun_text(OUTCOMES.ok, limit, limit))
        reject(error) // before the abort, whose error the handler may reject with
        release(error)
      }, limit)
      const end = () => {
        clearTimeout(timer)
        release()
      }
      Promise.resolve(result).finally(end).then(succeed, fail).then(resolve, reject)
    })
  }
}

module.exports = { limitOf, limited }
