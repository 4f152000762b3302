'use strict'

const assert = require('node:assert/strict')
const { test } = require('node:test')

const backhop = require('backhop')
const { c, errors: { CLASSES, errorOf, inWords } } = require('./internals')

/** Every failure of the core, by walking its codes until one has no name. */
function codes () {
  const found = new Map()
  for (let status = -1; status > -1000; status--) {
    const name = c.bh_status_name(status)
    if (!name) return found
    found.set(name, status)
  }
  throw new Error('the codes do not end')
}

test('every code has a class of its own, and every class a code', () => {
  assert.deepEqual(new Set(Object.keys(CLASSES)), new Set(codes().keys()))
  assert.equal(new Set(Object.values(CLASSES)).size, codes().size)
})

test('every class is public, and has its code before an error is made', () => {
  for (const [name, Class] of Object.entries(CLASSES)) {
    assert.equal(backhop[Class.name], Class)
    assert.deepEqual([Class.code, Class.status], [name, codes().get(name)])
  }
})

for (const [name, status] of codes()) {
  test(`${name} has its code, and the sentence of the core in the package's words`, () => {
    const error = errorOf(status)
    assert.equal(error.constructor, CLASSES[name])
    assert.deepEqual([error.code, error.status, error.name], [name, status, CLASSES[name].name])
    assert.equal(error.message, inWords(c.bh_status_text(status)))
    assert.doesNotMatch(error.message, /bh_|SWIG|_ms|function's comment/)
    assert.ok(error instanceof backhop.BackhopError && error instanceof Error)
  })
}

test('what an object has to tell goes before the sentence', () => {
  assert.equal(errorOf(-4, 'initial is 0').message, 'initial is 0')
  assert.equal(errorOf(-4, 'of librabbitmq', backhop.NoLibrabbitmqError).message, inWords(c.bh_status_text(-4)))
})

test('a number that is no code is an error all the same', () => {
  assert.equal(errorOf(-999).constructor, backhop.BackhopError)
  assert.ok(errorOf(-999).message)
})
