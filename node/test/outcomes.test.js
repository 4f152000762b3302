'use strict'

const assert = require('node:assert/strict')
const { test } = require('node:test')
const vm = require('node:vm')

const { Drop, Park, Policy, RetryAfter, Throttled } = require('backhop')
const { outcomes: { Choice, isAbort } } = require('./internals')
const warnings = require('./warnings')

const resultOf = (thrown, never) => new Choice({ never }).result(thrown)

/** As a test runner that loads each module anew has it. */
function anotherCopy () {
  const name = require.resolve('backhop')
  const path = name.replace(/index\.js$/, 'outcomes.js')
  const before = require.cache[path]
  delete require.cache[path]
  try {
    return require(path)
  } finally {
    require.cache[path] = before
  }
}

const failed = (error, retryAfter = 0) => ({ outcome: 'failed', error, retryAfter })
const permanent = error => ({ outcome: 'permanent', error, retryAfter: 0 })

test('an error is a failure with its name and text', () => {
  assert.deepEqual(resultOf(new TypeError('507 queue is full')), failed('TypeError: 507 queue is full'))
  assert.deepEqual(resultOf(new RangeError()), failed('RangeError'))
  assert.deepEqual(resultOf(new Error('507')), failed('Error: 507'))
})

test('an error of a class without a name of its own is named by its class', () => {
  class QueueFull extends Error {}
  assert.deepEqual(resultOf(new QueueFull('507')), failed('QueueFull: 507'))
})

test('an error that says no more than its code is told by it, as of a refused connection', () => {
  assert.deepEqual(resultOf(Object.assign(new AggregateError([]), { code: 'ECONNREFUSED' })),
    failed('AggregateError: ECONNREFUSED'))
})

test('a class in never parks, and so do its children', () => {
  class BadInput extends SyntaxError {}
  assert.equal(resultOf(new BadInput('bad'), [SyntaxError]).outcome, 'permanent')
  assert.equal(resultOf(new Error('bad'), [SyntaxError]).outcome, 'failed')
})

test('retry after is a floor', () => {
  assert.deepEqual(resultOf(new RetryAfter('30s')), failed('', 30000))
  assert.deepEqual(resultOf(new RetryAfter(500, 'busy')), failed('busy', 500))
})

test('Throttled is a floor and no failure', () => {
  const throttled = (error, retryAfter = 0) => ({ outcome: 'throttled', error, retryAfter })
  assert.deepEqual(resultOf(new Throttled('30s')), throttled('', 30000))
  assert.deepEqual(resultOf(new Throttled('7', '429')), throttled('429', 7000))
  assert.deepEqual(resultOf(new Throttled(null, new Error('busy'))), throttled('Error: busy'))
  assert.throws(() => new Throttled(-1), /the delay of RetryAfter is -1: give/)
  const busy = error => error.message === '429' && new Throttled(7000)
  assert.deepEqual(new Choice({ never: busy }).result(new Error('429')), throttled('Error: 429', 7000))
  assert.deepEqual(new Choice({ only: busy }).result(new Error('429')), throttled('Error: 429', 7000))
  assert.equal(new Choice({ only: busy }).result(new Error('500')).outcome, 'permanent')
})

test('a wrong delay of RetryAfter fails when it is made', () => {
  assert.throws(() => new RetryAfter(-1), /the delay of RetryAfter is -1: give/)
  assert.throws(() => new RetryAfter({}), /the delay of RetryAfter is {}: give milliseconds, a string as "30s"/)
})

test('NT2: a Retry-After that is missing or cannot be read leaves the decision to the error', () => {
  const unavailable = Object.assign(new Error('503'), { status: 503 })
  const missing = Object.assign(new Error('404'), { status: 404 })
  const slow = new Policy({ initial: '1m' })
  const choice = new Choice({
    only: error => error.status >= 500, policies: [[error => error.status === 503, slow]]
  })
  for (const header of [
    null, undefined, '', 'garbage', '1.5', '-1', '0', NaN, new Date(NaN), 'Fri, 99 Nov 2026 99:99:99 GMT',
    'Sun, 06 Nov 1994 08:49:37 GMT'
  ]) {
    assert.deepEqual(choice.result(new RetryAfter(header, unavailable)), { ...failed('Error: 503'), policy: slow })
    assert.deepEqual(choice.result(new RetryAfter(header, missing)), permanent('Error: 404'))
    assert.deepEqual(choice.result(new RetryAfter(header, 'busy')), failed('busy'))
  }
  assert.deepEqual(choice.result(new RetryAfter('7', missing)), failed('Error: 404', 7000))
})

test('NT5: an error is an abort if the signal is aborted, and it is its reason or says so', () => {
  const controller = new AbortController()
  const { signal } = controller
  const abort = Object.assign(new Error('aborted'), { name: 'AbortError' })
  assert.ok(!isAbort(abort, signal))
  controller.abort()
  for (const thrown of [signal.reason, abort, Object.assign(new Error(), { name: 'CanceledError' }),
    new RetryAfter(null, abort)]) {
    assert.ok(isAbort(thrown, signal), String(thrown))
  }
  const unreadable = new Proxy({}, { get () { throw new Error('no') } })
  for (const thrown of [new Error('503'), undefined, null, 'AbortError', unreadable, new RetryAfter('1s', abort),
    new Park(abort)]) {
    assert.ok(!isAbort(thrown, signal))
  }
})

test('NT19.5: a cause or a member that is the error itself is not repeated', () => {
  const cyclic = new Error('c')
  cyclic.cause = cyclic
  assert.equal(resultOf(cyclic).error, 'Error: c')
  const outer = new Error('outer', { cause: new Error('inner') })
  outer.cause.cause = outer
  assert.equal(resultOf(outer).error, 'Error: outer; caused by Error: inner')
  const all = new AggregateError([new Error('one')], 'all')
  all.errors.push(all)
  assert.equal(resultOf(all).error, 'AggregateError: all (Error: one)')
})

test('park and drop say what they mean', () => {
  assert.deepEqual(resultOf(new Park('no such file')), permanent('no such file'))
  assert.deepEqual(resultOf(new Drop()), { outcome: 'dropped', error: '', retryAfter: 0 })
})

test('what an outcome was caused by is the error', () => {
  assert.deepEqual(resultOf(new Park('', { cause: new RangeError('gone') })), permanent('RangeError: gone'))
  assert.deepEqual(resultOf(new Park(new RangeError('gone'))), permanent('RangeError: gone'))
  assert.deepEqual(resultOf(new RetryAfter('5s', new Error('busy'))), failed('Error: busy', 5000))
  assert.equal(new Park(new RangeError('gone')).cause.message, 'gone')
})

test('what is no error can be thrown too', () => {
  assert.deepEqual(resultOf('507'), failed('507'))
  for (const nothing of [undefined, null, '', false, 0]) {
    assert.deepEqual(resultOf(nothing), failed('the handler rejected without an error'))
  }
  assert.deepEqual(resultOf({ status: 507 }), failed('{ status: 507 }'))
  assert.deepEqual(resultOf(Object.create(null)), failed('[Object: null prototype] {}'))
})

test('N6: what an error says of itself is kept: its causes, its code, its members', () => {
  const refused = Object.assign(new Error('connect refused'), { code: 'ECONNREFUSED' })
  assert.equal(resultOf(new TypeError('fetch failed', { cause: refused })).error,
    'TypeError: fetch failed; caused by Error: connect refused [ECONNREFUSED]')
  assert.equal(resultOf(new AggregateError([new Error('one'), refused], 'all failed')).error,
    'AggregateError: all failed (Error: one | Error: connect refused [ECONNREFUSED])')
  assert.equal(resultOf(new Park('no such file', { cause: refused })).error,
    'no such file; caused by Error: connect refused [ECONNREFUSED]')
  assert.equal(resultOf(new Park(new TypeError('fetch failed', { cause: refused }))).error,
    'TypeError: fetch failed; caused by Error: connect refused [ECONNREFUSED]')
  assert.equal(resultOf(Object.assign(new Error('ENOENT: no such file'), { code: 'ENOENT' })).error,
    'Error: ENOENT: no such file')
  assert.equal(resultOf(new globalThis.DOMException('stopped', 'AbortError')).error, 'AbortError: stopped')
})

test('N6: causes in a circle, thousands of members and long texts are bounded', () => {
  let chain = new Error('round')
  for (let i = 0; i < 20; i++) chain = new Error('round', { cause: chain })
  assert.match(resultOf(chain).error, /^Error: round(; caused by Error: round){8}$/)
  let bushy = new Error('leaf')
  for (let i = 0; i < 20; i++) bushy = new AggregateError(Array(1000).fill(bushy), 'many', { cause: bushy })
  const start = performance.now()
  const { error } = resultOf(bushy)
  assert.ok(error.length <= 2000 && error.includes('and 995 more'), error)
  assert.ok(performance.now() - start < 1000)
  assert.equal(resultOf(new Error('x'.repeat(1e7))).error.length, 2000)
})

test('N6: errors of another realm, as Node\'s own are under Jest, say and mean the same', () => {
  const foreign = code => vm.runInNewContext(code)
  assert.equal(resultOf(foreign('new TypeError("fetch failed")')).error, 'TypeError: fetch failed')
  assert.equal(resultOf(foreign('new TypeError("fetch failed")'), [TypeError]).outcome, 'permanent')
  assert.equal(resultOf(foreign('new RangeError("x")'), [TypeError]).outcome, 'failed')
  assert.equal(resultOf(foreign('new RangeError("x")'), [Error]).outcome, 'permanent')
  assert.equal(resultOf(foreign('new (class TypeError extends Error {})("mine")'), [TypeError]).outcome, 'failed')
  const { Park: Other } = anotherCopy()
  assert.notEqual(Other, Park)
  assert.deepEqual(resultOf(new Other('why')), permanent('why'))
})

test('N7: RetryAfter takes what the header Retry-After holds: seconds, or a date', () => {
  assert.equal(new RetryAfter('120').delay, 120_000)
  assert.equal(new RetryAfter(120).delay, 120)
  const later = new Date(Date.now() + 90_000)
  for (const date of [later, later.toUTCString()]) {
    const { delay } = new RetryAfter(date)
    assert.ok(delay > 80_000 && delay <= 90_000, String(delay))
  }
  for (const none of ['Sun, 06 Nov 1994 08:49:37 GMT', '0']) assert.equal(new RetryAfter(none).delay, undefined)
  assert.equal(new RetryAfter(' 120 ').delay, 120_000)
  assert.equal(new RetryAfter('1 min 30 s').delay, 90_000)
})

test('N7: a delay that is none keeps the error that was met', () => {
  const met = new Error('429')
  assert.throws(() => new RetryAfter(-1, met), error => error.cause === met)
  assert.throws(() => new RetryAfter({}, 'busy'), error => error.cause.message === 'busy')
})

test('S4-8: a warning has no control characters of an error', () => {
  const text = '\x1b]0;PWN\x07\x9b31m\u202eevil\u2028\r\n\x85\u2066'
  resultOf(new Error(text), () => { throw new TypeError(text) })
  return new Promise(resolve => setImmediate(resolve)).then(() => {
    const { message } = warnings.at(-1)
    assert.match(message,
      /^a function of never failed to decide on a retry: TypeError: \?\]0;PWN\?\?31m\?evil\?{5}: it/)
    assert.match(message, /called with Error: \?\]0;PWN\?\?31m\?evil\?{5}$/)
  })
})

test('never and only take classes, predicates, or lists of them', () => {
  class Mine extends Error {}
  function Old () {}
  Old.prototype = Object.create(Error.prototype, { constructor: { value: Old } })
  const outcome = (thrown, options) => new Choice(options).result(thrown).outcome
  assert.equal(outcome(new Mine(), { never: Mine }), 'permanent')
  assert.equal(outcome(Object.create(Old.prototype), { never: Old }), 'permanent')
  assert.equal(outcome(new Error('400'), { never: ({ message }) => message === '400' }), 'permanent')
  assert.equal(outcome(new Error('500'), { never: [Mine, function (error) { return error.message === '400' }] }),
    'failed')
  assert.equal(outcome(new Mine(), { only: [Mine] }), 'failed')
  assert.equal(outcome(new Error('x'), { only: [Mine] }), 'permanent')
  assert.equal(outcome('text', { never: thrown => thrown === 'text' }), 'permanent')
  assert.equal(outcome(new Mine(), { only: [Error], never: [Mine] }), 'permanent')
  assert.equal(outcome(new RetryAfter(5), { only: [Mine] }), 'failed')
})

test('a predicate may answer a delay, as RetryAfter', () => {
  const busy = error => error.status === 503 && '2s'
  for (const options of [{ never: busy }, { only: busy }]) {
    assert.deepEqual(new Choice(options).result(Object.assign(new Error('busy'), { status: 503 })),
      { outcome: 'failed', error: 'Error: busy', retryAfter: 2000 })
  }
  assert.equal(new Choice({ only: busy }).result(new Error('x')).outcome, 'permanent')
})

test('a predicate that throws, or answers what it cannot, parks nothing', () => {
  for (const wrong of [() => { throw new Error('bug') }, () => 0, () => -1, () => NaN, () => Promise.resolve(true),
    () => ({})]) {
    for (const name of ['never', 'only']) {
      assert.deepEqual(new Choice({ [name]: wrong }).result(new Error('x')), failed('Error: x'))
    }
  }
})

test('an error that cannot be printed is a failure all the same', () => {
  const mute = Object.defineProperty(new Error('x'), 'message', { get () { throw new TypeError('no') } })
  assert.equal(resultOf(mute).outcome, 'failed')
  const refuse = () => { throw new TypeError('no') }
  assert.equal(resultOf(new Proxy({}, { get: refuse, getPrototypeOf: refuse })).outcome, 'failed')
})

// P4-2

test('a subclass of Park parks, whatever it did to what it inherits', () => {
  class Bare extends Park {
    constructor () { // without super()
      return Object.create(Bare.prototype)
    }
  }
  function Old () {}
  Object.setPrototypeOf(Old.prototype, Park.prototype)
  const nameless = Object.create(Park.prototype, { constructor: { value: undefined } })
  for (const thrown of [new Bare(), new Old(), nameless]) assert.deepEqual(resultOf(thrown), permanent(''))
  for (const name of ['message', 'cause']) {
    const thrown = Object.defineProperty(new Park('x'), name, { get () { throw new Error('unreadable') } })
    assert.deepEqual(resultOf(thrown), permanent('the thrown value cannot be printed'))
  }
})

test('a reason that cannot be printed makes an outcome all the same', () => {
  const error = Object.defineProperty(new Error(), 'message', { get () { throw new Error('unreadable') } })
  const proxy = new Proxy({}, { getPrototypeOf () { throw new Error('no') }, get () { throw new Error('no') } })
  for (const reason of [error, Object.create(null), proxy]) {
    assert.equal(resultOf(new Park(reason)).outcome, 'permanent')
    assert.equal(resultOf(new Drop(reason)).outcome, 'dropped')
    assert.equal(resultOf(new Throttled(7, reason)).outcome, 'throttled')
    assert.equal(resultOf(new RetryAfter(7, reason)).retryAfter, 7)
  }
})

test('a delay that was removed, replaced or cannot be read is none, and the outcome and its text stay', () => {
  class Unreadable extends Throttled {
    get wholeQueue () {
      throw new Error('unreadable')
    }

    set wholeQueue (value) {}
  }
  const errors = { failed: () => new RetryAfter(7, 'busy'), throttled: () => new Unreadable(7, 'busy') }
  for (const [outcome, thrown] of Object.entries(errors)) {
    const bare = Object.create(Object.getPrototypeOf(thrown()))
    assert.deepEqual([resultOf(bare).outcome, resultOf(bare).retryAfter], [outcome, 0])
    const deleted = thrown()
    delete deleted.delay
    const unreadable = Object.defineProperty(thrown(), 'delay', { get () { throw new Error('unreadable') } })
    const wrong = [NaN, Infinity, -1, 'soon', {}, Symbol('7'), 7n].map(delay => Object.assign(thrown(), { delay }))
    for (const each of [deleted, unreadable, ...wrong]) {
      assert.deepEqual(resultOf(each), { outcome, error: 'busy', retryAfter: 0 })
    }
    assert.equal(resultOf(Object.assign(thrown(), { delay: 1e300 })).retryAfter, Number.MAX_SAFE_INTEGER)
    assert.equal(resultOf(Object.assign(thrown(), { delay: 1.5 })).retryAfter, 2)
  }
})
