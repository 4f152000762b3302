'use strict'
// A message's story, in words.

const { Delivery } = require('./delivery')
const { History } = require('./history')
const NATIVE = require('./native')

function explain (headers, options) {
  return new History(new Delivery({ headers: headers ?? {} }), options)[NATIVE].explanation()
}

module.exports = { explain }
