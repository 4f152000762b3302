'use strict'
// The base class of all errors. It does not need the core, which may be missing.

class BackhopError extends Error {
  get name () { return this.constructor.name }
}

module.exports = { BackhopError }
