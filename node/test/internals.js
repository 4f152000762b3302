'use strict'
// Internals of the installed package.

const path = require('node:path')

const lib = path.dirname(require.resolve('backhop'))

/** A module of lib/, by its name. */
const inside = name => require(path.join(lib, name))

module.exports = { c: inside('core'), errors: inside('errors'), inside, lib, outcomes: inside('outcomes') }
