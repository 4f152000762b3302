'use strict'
// Objects of the core: the key under which objects of this package hold them, and their fields and
// items as arrays.

const NATIVE = Symbol('native')

/** Returns its arguments as an array: the core calls it with the fields of an object. */
const listed = (...values) => values

/** Returns the integers from 0 to `count` - 1. */
function range (count) {
  return Array.from({ length: count }, (_, i) => i)
}

module.exports = { NATIVE, listed, range }
