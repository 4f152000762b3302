'use strict'
// Checks options: each value is checked here, with the user's names and units, before the core or a
// broker gets it.

const { inspect, types } = require('node:util')

const c = require('./core')
const { ArgumentError } = require('./errors')

const LONGEST_SHOWN = 100

/** Returns a value as text, for an error. */
function shown (value) {
  const isFunction = typeof value === 'function'
  const text = isFunction ? `the function ${value.name || '(anonymous)'}` : inspect(value, { depth: 0 })
  return text.length > LONGEST_SHOWN ? `${text.slice(0, LONGEST_SHOWN)}...` : text
}

function refuse (name, value, give) {
  throw new ArgumentError(`${name} is ${shown(value)}: give ${give}`)
}

/**
 * Returns the options. Throws an ArgumentError if one is unknown: a misspelt option would have no
 * effect.
 */
function only (options, known, what) {
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw new ArgumentError(`${what} takes its options as an object, and was given ${shown(options)}`)
  }
  for (const name of Object.keys(options)) {
    if (!known.includes(name)) throw new ArgumentError(`${what} has no option ${name}: give any of ${known.join(', ')}`)
  }
  return options
}

/** Returns an object of those options that are given. */
function pick (options, names) {
  return Object.fromEntries(names.filter(name => options[name] !== undefined).map(name => [name, options[name]]))
}

/**
 * Returns an enumeration of the core: BH_QUEUE_CLASSIC is `classic` of BH_QUEUE_.
 *
 * @param others enumerators to leave out, besides LAST, which only counts
 */
function numbers (prefix, ...others) {
  const names = Object.getOwnPropertyNames(c).filter(name => name.startsWith(prefix))
  const kept = names.filter(name => ![...others, 'LAST'].includes(name.slice(prefix.length)))
  return Object.fromEntries(kept.map(name => [name.slice(prefix.length).toLowerCase().replaceAll('_', '-'), c[name]]))
}

/** Returns the core's number of a name. */
function numberOf (names, name, what) {
  if (typeof name === 'string' && Object.hasOwn(names, name)) return names[name]
  return refuse(what, name, `one of ${Object.keys(names).join(', ')}`)
}

/** Returns a Map of names by the core's numbers. */
function namesOf (numbers) {
  return new Map(Object.entries(numbers).map(([name, number]) => [number, name]))
}

/** Returns a text that is not empty: a string, or bytes. */
function text (value, name, give = 'a string that is not empty') {
  if ((typeof value !== 'string' && !(value instanceof Uint8Array)) || !value.length) refuse(name, value, give)
  return value
}

function flag (value, name) {
  return typeof value === 'boolean' ? value : refuse(name, value, 'true or false')
}

function whole (value, name, least = 0, most = Number.MAX_SAFE_INTEGER) {
  if (Number.isInteger(value) && value >= least && value <= most) return value
  if (least === -Infinity) return refuse(name, value, 'a whole number')
  const to = most === Number.MAX_SAFE_INTEGER ? `${least} or more` : `from ${least} to ${most}`
  return refuse(name, value, `a whole number, ${to}`)
}

function callable (value, name, takes = '') {
  return typeof value === 'function' ? value : refuse(name, value, `a function${takes}`)
}

/**
 * Returns a handler. Refuses a class: every call without `new` would fail. Refuses a generator
 * function, also an async one: its body would never run.
 */
function handler (value, what) {
  if (types.isGeneratorFunction(value)) {
    const given = `was given the generator function ${value.name || '(anonymous)'}`
    throw new ArgumentError(
      `${what} takes the function that handles a message, and ${given}, whose body would not run: write it without *`
    )
  }
  if (typeof value === 'function' && !/^class\b/.test(Function.prototype.toString.call(value))) return value
  throw new ArgumentError(`${what} takes the function that handles a message, and was given ${shown(value)}`)
}

/** Returns an array of an iterable that is no string. */
function list (value, name, give) {
  if (typeof value !== 'string' && typeof value?.[Symbol.iterator] === 'function') return [...value]
  return refuse(name, value, give)
}

function instance (value, Class, name) {
  if (value instanceof Class) return value
  if (value?.constructor?.name !== Class.name) return refuse(name, value, `a ${Class.name}`)
  throw new ArgumentError(
    `${name} is a ${Class.name} of another copy of Backhop, or of another realm: load one copy, see "npm ls backhop"`
  )
}

function texts (value, name) {
  return list(value, name, 'an array of strings').map(each => text(each, `one of ${name}`))
}

module.exports = {
  callable, flag, handler, instance, list, namesOf, numbers, numberOf, only, pick, refuse, shown, text, texts, whole
}
