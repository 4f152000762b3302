'use strict'
// The notation of the shared vectors, for any runner in JavaScript; tests/vectors/README.md has the
// format.

const assert = require('node:assert/strict')
const { readFileSync, readdirSync } = require('node:fs')
const path = require('node:path')
const { test } = require('node:test')
const { inspect } = require('node:util')

const DIRECTORY = process.env.BACKHOP_VECTORS
const TYPES = new Set([
  'boolean', 'int8', 'uint8', 'int16', 'uint16', 'int32', 'uint32', 'int64', 'uint64', 'float', 'double', 'decimal',
  'string', 'bytes', 'timestamp', 'void', 'array', 'table'
])
const INTEGERS = new Set(['int8', 'uint8', 'int16', 'uint16', 'int32', 'uint32', 'int64', 'uint64', 'timestamp'])

/** A test of every case of a noun. */
function cases (noun, run) {
  const directory = path.join(DIRECTORY, noun)
  const files = readdirSync(directory).filter(name => name.endsWith('.json')).sort()
  assert.ok(files.length, `there are no vectors in ${directory}`)
  for (const file of files) {
    const { cases: given, defaults = {}, ...rest } = parse(readFileSync(path.join(directory, file), 'utf8'))
    only(rest, 'about')
    only(defaults, 'case headers')
    const cases = given.map(each => merged(each, defaults))
    assert.ok(cases.length, `${file} has no cases`)
    assert.equal(new Set(cases.map(({ name }) => name)).size, cases.length, `${file} has two cases of one name`)
    for (const each of cases) test(`${noun}/${file}: ${each.name}`, () => run(each))
  }
}

/** A case with the defaults of its file. */
function merged (given, { case: common = {}, headers: lists }) {
  const headers = given.expect.headers
  if (!headers || !lists) return { ...common, ...given }
  return { ...common, ...given, expect: { ...given.expect, headers: mergedHeaders(headers, lists) } }
}

function mergedHeaders (entries, lists) {
  const merged = []
  for (const entry of entries) {
    if (typeof entry === 'string') {
      merged.push(...lists[entry])
      continue
    }
    const at = merged.findIndex(([name]) => inspect(name) === inspect(entry[0]))
    merged[at < 0 ? merged.length : at] = entry
  }
  return merged
}

/** JSON whose fractions stay fractions: 2.0 is a double. */
function parse (text) {
  const isFraction = /(?<=[\s:,[])(-?\d+(?:\.\d+(?:[eE][+-]?\d+)?|[eE][+-]?\d+))(?=[\s,\]}])/g
  const strings = /"(?:[^"\\]|\\.)*"/g
  const marked = text.split(strings)
  const kept = text.match(strings)
  const joined = marked.map((part, i) => part.replace(isFraction, '{"fraction":$1}') + (kept[i] ?? '')).join('')
  return JSON.parse(joined, unique)
}

function unique (key, value) {
  return isFractionOf(value) ? new Fraction(value.fraction) : value
}

function isFractionOf (value) {
  return typeof value === 'object' && value !== null && 'fraction' in value
}

/** A number that was written with a fraction. */
class Fraction {
  constructor (value) {
    this.value = value
  }
}

/** An unknown key fails the case. */
function only (given, known) {
  const names = known.split(' ')
  for (const key of Object.keys(given)) assert.ok(names.includes(key), `unknown key: ${key}`)
}

/** Runs the comparison of each key that is expected; no comparison at all fails the case. */
function compare (expect, comparisons) {
  let compared = 0
  for (const [key, expected] of Object.entries(expect)) {
    if (key === 'status') continue
    assert.ok(Object.hasOwn(comparisons, key), `unknown key: ${key}`)
    comparisons[key](expected)
    compared++
  }
  assert.ok(compared || 'status' in expect, 'the case compares nothing')
}

/** A comparison by equality with what `convert` makes of the expected value. */
function is (get, convert = value => value) {
  return expected => assert.deepEqual(get(), convert(expected))
}

function status ({ expect }) {
  return expect.status ?? 'BH_OK'
}

// --- Values --------------------------------------------------------------------------------------

/** Returns a Number, or a BigInt if a Number would not be exact. */
function integer (value) {
  const exact = BigInt(value)
  return Number.isSafeInteger(Number(exact)) ? Number(exact) : exact
}

function fraction (value) {
  const words = { nan: NaN, inf: Infinity, '-inf': -Infinity }
  if (value instanceof Fraction) return value.value
  return typeof value === 'string' ? words[value] : value
}

/** Bytes in the vectors' notation. */
function raw (value) {
  if (typeof value === 'string') return Buffer.from(value)
  if ('hex' in value) {
    only(value, 'hex')
    return Buffer.from(value.hex, 'hex')
  }
  if ('times' in value) {
    only(value, 'times text')
    return Buffer.concat(Array(integer(value.times)).fill(raw(value.text)))
  }
  only(value, 'join')
  return Buffer.concat(value.join.map(raw))
}

/** Bytes as the package gives texts. */
function text (value) {
  const bytes = raw(value)
  return Buffer.from(bytes.toString()).equals(bytes) ? bytes.toString() : bytes
}

/** The AMQP type of a value, and its content. */
function typed (value) {
  if (value === null) return ['void', null]
  if (value instanceof Fraction) return ['double', value]
  const short = { string: 'string', boolean: 'boolean', number: 'int64' }
  if (typeof value in short) return [short[typeof value], value]
  const [[type, content], ...more] = Object.entries(value)
  assert.ok(TYPES.has(type) && !more.length, `${type} is no type`)
  return [type, content]
}

/** A typed value as the package takes it. */
function value (given) {
  if (typeof given === 'object' && given !== null && 'nest' in given) return nest(given)
  const [type, content] = typed(given)
  return { '!': type, value: contentOf(type, content) }
}

function contentOf (type, content) {
  if (INTEGERS.has(type)) return integer(content)
  if (type === 'string' || type === 'bytes') return raw(content)
  if (type === 'float' || type === 'double') return fraction(content)
  if (type === 'decimal') {
    only(content, 'places value')
    return { places: content.places, digits: integer(content.value) }
  }
  if (type === 'array') return content.flatMap(elements)
  return type === 'table' ? [...entries(content)] : content
}

function nest (given) {
  only(given, 'nest of')
  const isTable = given.of === 'table'
  let inner = { '!': given.of, value: [] }
  for (let i = 1; i < given.nest; i++) inner = { '!': given.of, value: isTable ? [['n', inner]] : [inner] }
  return inner
}

function elements (given) {
  if (typeof given !== 'object' || given === null || !('times' in given)) return [value(given)]
  only(given, 'times value')
  return Array(integer(given.times)).fill(value(given.value))
}

/** Headers, or the entries of a table. */
function * entries (given) {
  for (const entry of given) {
    if (Array.isArray(entry)) {
      yield [raw(entry[0]), value(entry[1])]
      continue
    }
    only(entry, 'times entry')
    const [name, content] = [raw(entry.entry[0]), value(entry.entry[1])]
    for (let i = 0; i < integer(entry.times); i++) yield [Buffer.concat([name, Buffer.from(String(i))]), content]
  }
}

/** A step of a policy, or many. */
function steps (given) {
  if (typeof given !== 'object') return [integer(given)]
  only(given, 'times value')
  return Array(integer(given.times)).fill(integer(given.value))
}

module.exports = {
  INTEGERS, cases, compare, contentOf, entries, fraction, integer, is, only, raw, status, steps, text, typed
}
