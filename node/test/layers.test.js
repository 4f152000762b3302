'use strict'
// Modules of the package form floors: no circle of requires, and none that points to a higher
// floor.

const assert = require('node:assert/strict')
const { readFileSync, readdirSync } = require('node:fs')
const path = require('node:path')
const { test } = require('node:test')

const { lib } = require('./internals')

const ROOTS = ['index', 'testing'] // these may require every floor
const REQUIRE = /\brequire\('(\.[^']*)'\)/g

/** Returns the modules that each module of lib/ requires, by names such as observe/event. */
function graph () {
  const modules = new Map()
  for (const name of readdirSync(lib, { recursive: true })) {
    if (!name.endsWith('.js')) continue
    const text = readFileSync(path.join(lib, name), 'utf8')
    const required = Array.from(text.matchAll(REQUIRE), ([, to]) => path.join(path.dirname(name), to))
    modules.set(name.slice(0, -'.js'.length), required)
  }
  return modules
}

/** Returns the first circle that a walk finds, as the modules on it; undefined if there is none. */
function circleIn (modules) {
  const done = new Set()
  const walk = (name, trail) => {
    if (trail.includes(name)) return [...trail.slice(trail.indexOf(name)), name]
    if (done.has(name)) return undefined
    for (const next of modules.get(name) ?? []) {
      const circle = walk(next, [...trail, name])
      if (circle) return circle
    }
    done.add(name)
    return undefined
  }
  for (const name of modules.keys()) {
    const circle = walk(name, [])
    if (circle) return circle
  }
  return undefined
}

/**
 * Returns the floor of a module: 0 a noun, 1 observe/, 2 the worker and what clients share, 3 a
 * client.
 */
function floorOf (name) {
  if (name.startsWith('observe/')) return 1
  if (name === 'worker' || name.startsWith('worker/')) return 2
  return name.startsWith('adapters/') ? name.split('/').length : 0
}

test('every module is read', () => {
  const modules = graph()
  assert.equal(modules.get('index').length, 12)
  for (const [name, required] of modules) {
    for (const each of required) assert.ok(modules.has(each), `${name} requires ${each}`)
  }
})

test('no modules require each other in a circle', () => {
  assert.equal(circleIn(graph())?.join(' -> '), undefined)
})

test('a circle is found', () => {
  assert.deepEqual(circleIn(new Map([['a', ['b']], ['b', ['c']], ['c', ['b']]])), ['b', 'c', 'b'])
})

test('no module requires one of a higher floor, or of another client', () => {
  const upward = []
  for (const [name, required] of graph()) {
    if (ROOTS.includes(name)) continue
    for (const each of required) {
      const isOther = floorOf(each) === 3 && path.dirname(each) !== path.dirname(name)
      if (floorOf(each) > floorOf(name) || isOther) upward.push(`${name} -> ${each}`)
    }
  }
  assert.deepEqual(upward, [])
})
