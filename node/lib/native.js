'use strict'
// Where an object of this package keeps the core's.

module.exports = Symbol('native')
