'use strict'
// A reporter of node:test: writes the duration of each test as a line of JSON. `suite` is the
// outermost one, or the file of a test without a suite.

const path = require('node:path')

const MS = 1000 // in a second
const FILE = '.test.js' // a file without a registered test is reported as a test

module.exports = async function * durations (events) {
  let outermost = ''
  for await (const { type, data } of events) {
    const { name, nesting, skip, file = '', details } = data
    if (type === 'test:start' && nesting === 0) outermost = name
    const isEnd = type === 'test:pass' || type === 'test:fail'
    if (!isEnd || skip !== undefined || details.type === 'suite' || name.endsWith(FILE)) continue
    const suite = `node: ${nesting ? outermost : path.basename(file, FILE)}`
    yield `${JSON.stringify({ suite, test: name, seconds: Math.round(details.duration_ms) / MS })}\n`
  }
}
