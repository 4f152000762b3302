'use strict'
// The C interface of the playground's WebAssembly, for the vectors: numbers are integers as BigInt, texts are Buffers.

const { readFileSync } = require('node:fs')

const SIZE_OF_BYTES = 8 // of a bh_bytes
const c = load()
let used = [] // memory of this case

function load () {
  const none = () => 0
  const module = new WebAssembly.Module(readFileSync(process.env.BACKHOP_PLAYGROUND))
  const imports = WebAssembly.Module.imports(module)
  const given = {}
  for (const { module: from, name } of imports) (given[from] ??= {})[name] = none
  const { exports } = new WebAssembly.Instance(module, given)
  exports._initialize()
  return exports
}

/** Zeroed memory until the end of the case. */
function room (size) {
  const at = c.malloc(size || 1)
  new Uint8Array(c.memory.buffer, at, size).fill(0)
  used.push(at)
  return at
}

function release () {
  for (const each of used) c.free(each)
  used = []
}

const view = () => new DataView(c.memory.buffer)
const pointer = at => view().getUint32(at, true)
const number = at => view().getInt32(at, true)
const integer = at => view().getBigInt64(at, true)
const writeNumber = (at, value) => view().setInt32(at, value, true)
const writeInteger = (at, value) => view().setBigInt64(at, value, true)
const writeFraction = (at, value) => view().setFloat64(at, value, true)
const bytesAt = at => Buffer.from(new Uint8Array(c.memory.buffer, pointer(at), pointer(at + 4)))

/** Writes a bh_bytes at `at`. Returns it. */
function write (bytes, at = room(SIZE_OF_BYTES)) {
  const data = room(bytes.length + 1)
  new Uint8Array(c.memory.buffer, data, bytes.length).set(bytes)
  view().setUint32(at, data, true)
  view().setUint32(at + 4, bytes.length, true)
  return at
}

/** Calls a function that returns a bh_bytes. */
function textOf (name, ...given) {
  const at = room(SIZE_OF_BYTES)
  c[name](at, ...given)
  return bytesAt(at)
}

/** Calls a function that fills a struct of this size. Returns its address. */
function filled (name, size, ...given) {
  const at = room(size)
  c[name](...given, at)
  return at
}

/** Makes an object. Its memory is freed at the end of the case. Throws the status as a Refusal. */
function made (name, ...given) {
  const at = room(4)
  check(c[`${name}_new`](at, ...given))
  const self = pointer(at)
  objects.push([name, self])
  return self
}

let objects = []

/** Ends a case. */
function end () {
  for (const [name, self] of objects) c[`${name}_free`](self)
  objects = []
  release()
}

class Refusal extends Error {
  constructor (status) {
    super(textOf('bh_status_name', status).toString())
    this.status = this.message
  }
}

function check (status) {
  if (status !== 0) throw new Refusal(status)
}

/** A bh_value. */
function value ({ type, name, content }) {
  const at = room(48)
  const is = (...types) => types.includes(type)
  view().setInt32(at, TYPES[type].charCodeAt(0), true)
  write(name, at + 4)
  write(is('string', 'bytes') ? content : Buffer.alloc(0), at + 12)
  if (is('float', 'double')) view().setFloat64(at + 32, content, true)
  else if (is('decimal')) {
    view().setBigInt64(at + 24, BigInt(content.digits), true)
    view().setInt32(at + 40, content.places, true)
  } else if (['number', 'bigint', 'boolean'].includes(typeof content)) {
    view().setBigInt64(at + 24, BigInt(content), true)
  }
  return at
}

const TYPES = {
  boolean: 't', int8: 'b', uint8: 'B', int16: 's', uint16: 'u', int32: 'I', uint32: 'i', int64: 'l', uint64: 'L',
  float: 'f', double: 'd', decimal: 'D', string: 'S', bytes: 'x', timestamp: 'T', void: 'V', array: 'A', table: 'F'
}

/** A bh_argument. */
function argument (name, content) {
  const at = room(32)
  const isNumber = typeof content === 'number'
  write(name, at)
  view().setInt32(at + 8, (isNumber ? 'l' : 'S').charCodeAt(0), true)
  write(isNumber ? Buffer.alloc(0) : content, at + 12)
  if (isNumber) view().setBigInt64(at + 24, BigInt(content), true)
  return at
}

module.exports = {
  Refusal, TYPES, argument, bytesAt, c, check, end, filled, integer, made, number, pointer, room, textOf, value, write,
  writeFraction, writeInteger, writeNumber
}
