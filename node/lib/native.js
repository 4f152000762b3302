'use strict'
// The key under which objects of this package hold objects of the core.

module.exports = Symbol('native')
