'use strict'
// Lists of values.

/** Returns the integers from 0 to `count` - 1. */
function range (count) {
  return Array.from({ length: count }, (_, i) => i)
}

/** Returns its arguments as an array: the core calls it with the fields of an object. */
const listed = (...values) => values

module.exports = { listed, range }
