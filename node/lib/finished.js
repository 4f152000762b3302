'use strict'
// Checks what a handler returned: a message is not handled by work that nothing runs or awaits.

const { Stream } = require('node:stream')
const { types } = require('node:util')

const { ArgumentError } = require('./errors')

/**
 * Returns what a handler returned, or what its promise resolved to. Throws an ArgumentError if it
 * is work that has not run or has not ended.
 */
function finished (result) {
  if (result === null || (typeof result !== 'object' && typeof result !== 'function')) return result
  const work = workIn(result)
  if (work) throw new ArgumentError(`the handler returned ${work}`)
  return result
}

/** Returns what `result` is, and what to do; undefined if it is no work. */
function workIn (result) {
  if (typeof result === 'function') return 'a function, which nothing calls: call it in the handler'
  if (types.isGeneratorObject(result)) return 'a generator, whose body has not run: loop over it in the handler'
  if (isIterator(result)) return 'an iterator, which nothing reads: loop over it in the handler'
  if (Array.isArray(result) && result.some(each => typeof each?.then === 'function')) {
    return 'an array with promises, which nothing awaits: return Promise.all of it'
  }
  if (result instanceof Stream && !hasEnded(result)) {
    return 'a stream that has not ended: await finished(stream) of node:stream/promises in the handler'
  }
  return undefined
}

function isIterator (result) {
  return typeof result.next === 'function' &&
    (typeof result[Symbol.iterator] === 'function' || typeof result[Symbol.asyncIterator] === 'function')
}

/** Returns whether a stream has ended. A client's response is often a stream that was read. */
function hasEnded ({ destroyed, readableEnded, writableFinished }) {
  return destroyed === true || (readableEnded !== false && writableFinished !== false)
}

module.exports = { finished }
