'use strict'
// The key under which objects of this package hold those of the core.

module.exports = Symbol('native')
