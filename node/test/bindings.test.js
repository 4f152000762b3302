'use strict'
// Every function of the core's headers is in bindings/.

const assert = require('node:assert/strict')
const { readFileSync, readdirSync } = require('node:fs')
const path = require('node:path')
const { test } = require('node:test')

const { c } = require('./internals')

const HEADERS = process.env.BACKHOP_HEADERS
const NOUNS = [
  'delivery', 'history', 'successes', 'policy', 'breaker', 'flow', 'subscription', 'silence', 'calls', 'plan',
  'topology', 'declared', 'declaring', 'ledger', 'message', 'worker', 'event', 'log', 'metrics', 'health'
]
// push_int, exchange, add_work_queue_int and set call these; the last one blocks, and calls back.
const LEFT_OUT = [
  'bh_delivery_push', 'bh_delivery_read', 'bh_silence_read', 'bh_topology_add_work_queue_argument',
  'bh_topology_defaults', 'bh_worker_defaults', 'bh_worker_run'
]

function * matches (pattern) {
  const headers = readdirSync(HEADERS, { recursive: true }).filter(name => name.endsWith('.h'))
  for (const name of headers) {
    const text = readFileSync(path.join(HEADERS, name), 'utf8').replace(/\/\*.*?\*\//gs, '')
    for (const [, found] of text.matchAll(pattern)) yield found
  }
}

const functions = () => [...matches(/BH_API [\w\s*]*?(bh_\w+)\(/g)]

function enumerators () {
  return [...matches(/typedef enum bh_\w+ \{([^()]*?)\}/g)].flatMap(body => body.match(/\bBH_\w+/g) ?? [])
}

/**
 * Returns true if the addon has it: bh_policy_check is Policy's method check; an object frees
 * itself.
 */
function isBound (name) {
  const [, noun, verb] = name.match(/^bh_([a-z]+)_?(.*)$/)
  if (name in c || verb === 'free') return true
  return NOUNS.includes(noun) && verb in c[noun[0].toUpperCase() + noun.slice(1)].prototype
}

test('the headers are read', () => {
  for (const name of ['bh_version', 'bh_plan_make', 'bh_worker_librabbitmq']) assert.ok(functions().includes(name))
  for (const name of ['BH_KIND_STEPS', 'BH_MODE_NONE']) assert.ok(enumerators().includes(name))
})

test('every public function is in the table', () => {
  assert.deepEqual(functions().filter(name => !isBound(name)).sort(), LEFT_OUT)
})

test('every enumerator is in the table', () => {
  const ofCommand = ['BH_DIALECT_COMMAND', 'BH_DIALECT_RELAY']
  assert.deepEqual(enumerators().filter(name => !(name in c)), ofCommand)
})
