'use strict'
// What callers give: each value is checked here, in their own names and units, before the core or a broker sees it.

const { inspect } = require('node:util')

const { ArgumentError } = require('./errors')

const LONGEST_SHOWN = 100

/** A value as it was given, for an error's text. */
function shown (value) {
  const isFunction = typeof value === 'function'
  const text = isFunction ? `the function ${value.name || '(anonymous)'}` : inspect(value, { depth: 0 })
  return text.length > LONGEST_SHOWN ? `${text.slice(0, LONGEST_SHOWN)}...` : text
}

function refuse (name, value, give) {
  throw new ArgumentError(`${name} is ${shown(value)}: give ${give}`)
}

/** The options, where each is known: a misspelt one would be a default without a word. */
function only (options, known, what) {
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw new ArgumentError(`${what} takes its options as an object, and was given ${shown(options)}`)
  }
  for (const name of Object.keys(options)) {
    if (!known.includes(name)) throw new ArgumentError(`${what} has no option ${name}: give any of ${known.join(', ')}`)
  }
  return options
}

/** The core's number for a name. */
function numberOf (names, name, what) {
  if (typeof name === 'string' && Object.hasOwn(names, name)) return names[name]
  return refuse(what, name, `one of ${Object.keys(names).join(', ')}`)
}

/** Names by the core's numbers. */
function namesOf (numbers) {
  return new Map(Object.entries(numbers).map(([name, number]) => [number, name]))
}

/** A text that is not empty: a string, or the bytes of one. */
function text (value, name, give = 'a string that is not empty') {
  if ((typeof value !== 'string' && !(value instanceof Uint8Array)) || !value.length) refuse(name, value, give)
  return value
}

function flag (value, name) {
  return typeof value === 'boolean' ? value : refuse(name, value, 'true or false')
}

function whole (value, name, least = 0, most = Number.MAX_SAFE_INTEGER) {
  if (Number.isInteger(value) && value >= least && value <= most) return value
  const to = most === Number.MAX_SAFE_INTEGER ? `${least} or more` : `from ${least} to ${most}`
  return refuse(name, value, `a whole number, ${to}`)
}

function callable (value, name, takes = '') {
  return typeof value === 'function' ? value : refuse(name, value, `a function${takes}`)
}

/** A handler: a class would be called without new, so that each message failed. */
function handler (value, what) {
  if (typeof value === 'function' && !/^class\b/.test(Function.prototype.toString.call(value))) return value
  throw new ArgumentError(`${what} takes the function that handles a message, and was given ${shown(value)}`)
}

/** What can be iterated, and is no text. */
function list (value, name, give) {
  if (typeof value !== 'string' && typeof value?.[Symbol.iterator] === 'function') return [...value]
  return refuse(name, value, give)
}

function instance (value, Class, name) {
  return value instanceof Class ? value : refuse(name, value, `a ${Class.name}`)
}

function texts (value, name) {
  return list(value, name, 'an array of strings').map(each => text(each, `one of ${name}`))
}

module.exports = {
  callable, flag, handler, instance, list, namesOf, numberOf, only, refuse, shown, text, texts, whole
}
