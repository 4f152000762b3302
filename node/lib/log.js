'use strict'
// What is told without being asked: warnings as the process's, which print to stderr; the rest with NODE_DEBUG=backhop.

const { debuglog } = require('node:util')

class BackhopWarning extends Error {
  get name () {
    return 'BackhopWarning'
  }
}

module.exports = {
  debug: debuglog('backhop'),

  /** A warning of type BackhopWarning; `code` says what it is about, and `event` is the Event that it tells. */
  warn (text, code, event) {
    const warning = Object.assign(new BackhopWarning(text), { code })
    if (event) Object.defineProperty(warning, 'event', { value: event })
    process.emitWarning(warning)
  }
}
