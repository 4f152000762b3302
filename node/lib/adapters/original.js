'use strict'
// The key under which a message of an adapter has its original, see retrier.js.

const ORIGINAL = Symbol('original')

module.exports = { ORIGINAL }
