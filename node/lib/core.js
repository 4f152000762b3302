'use strict'
// The C core as SWIG wraps it, compiled here or prebuilt.

const path = require('node:path')

const { BackhopError } = require('./backhop-error')

module.exports = load()

function load () {
  try {
    return require('node-gyp-build')(path.join(__dirname, '..'))
  } catch (cause) {
    const [why] = String(cause?.message).split('\n')
    throw Object.assign(new BackhopError(
      `the compiled part of Backhop cannot be loaded from ${__dirname}: ${why}. If install scripts are off, run ` +
      '"npm rebuild backhop", or "pnpm approve-builds". If that fails, install a C++ compiler and Python first. If a ' +
      'bundler packed this program, keep backhop out of the bundle: esbuild --external:backhop, or ' +
      'webpack\'s externals',
      { cause }
    ), { code: 'BACKHOP_NOT_BUILT' })
  }
}
