'use strict'
// What is not public, of the package that is installed.

const path = require('node:path')

const lib = path.dirname(require.resolve('backhop'))

/** A module of lib/, by its name. */
const inside = name => require(path.join(lib, name))

module.exports = { c: inside('core'), errors: inside('errors'), inside, lib, outcomes: inside('outcomes') }
