'use strict'
// What is told without being asked: warnings as the process's, which print to stderr; the rest with NODE_DEBUG=backhop.

const { debuglog } = require('node:util')

module.exports = {
  debug: debuglog('backhop'),

  /** A warning of type BackhopWarning; `code` says what it is about. */
  warn (text, code) {
    process.emitWarning(text, 'BackhopWarning', code)
  }
}
