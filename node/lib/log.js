'use strict'
// Log lines: warnings are warnings of the process, which print to stderr; the rest prints with
// NODE_DEBUG=backhop.

const { debuglog } = require('node:util')

class BackhopWarning extends Error {
  get name () {
    return 'BackhopWarning'
  }
}

module.exports = {
  debug: debuglog('backhop'),

  /**
   * Emits a process warning of type BackhopWarning, with a code and, if it is about an event, its
   * Event.
   */
  warn (text, code, event) {
    const warning = Object.assign(new BackhopWarning(text), { code })
    if (event) Object.defineProperty(warning, 'event', { value: event })
    process.emitWarning(warning)
  }
}
