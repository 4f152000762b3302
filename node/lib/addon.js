'use strict'
// The C core as SWIG wraps it, compiled here or prebuilt.

const path = require('node:path')

module.exports = require('node-gyp-build')(path.join(__dirname, '..'))
