'use strict'
// Leaves tests out: a word of BACKHOP_EXCLUDE leaves out each test and each suite that has it as an
// option. `long` marks tests outside the fast profile: they take over a second, stop or block the
// broker, or use further clients. `real` marks tests that only a real broker can show: a model of
// RabbitMQ leaves them out.
//
// A test that is left out is not registered. --test-skip-pattern needs Node 22, and reports a skip.

const { test } = require('node:test')

const WORDS = (process.env.BACKHOP_EXCLUDE ?? '').split(/[\s,]+/).filter(Boolean)
if (process.env.BACKHOP_MODEL_URL) WORDS.push('real')

/** Returns whether the profile leaves out a test or a suite with these options. */
const isLeftOut = options => WORDS.some(word => options[word])

/** Registers a test with the option `long`. */
const longTest = isLeftOut({ long: true }) ? () => {} : test

module.exports = { isLeftOut, longTest }
