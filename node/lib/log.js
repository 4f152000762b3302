'use strict'
// Log lines: warnings are warnings of the process, which print to stderr; the rest prints with
// NODE_DEBUG=backhop.

const { debuglog } = require('node:util')

// Characters that control a terminal, end a line or change the direction of a text, as in the
// core's utf8.h. An error's text may be a message's.
// eslint-disable-next-line no-control-regex
const CONTROLS = /[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g

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
    const warning = Object.assign(new BackhopWarning(text.replace(CONTROLS, '?')), { code })
    if (event) Object.defineProperty(warning, 'event', { value: event })
    process.emitWarning(warning)
  }
}
