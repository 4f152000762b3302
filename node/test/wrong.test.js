'use strict'
// Values that no caller should give, through the public classes. Each gets an error of the
// package's own, in the caller's names and units, before anything is sent.

const assert = require('node:assert/strict')
const { cpSync, mkdtempSync, rmSync } = require('node:fs')
const { tmpdir } = require('node:os')
const path = require('node:path')
const { test } = require('node:test')
const { inspect } = require('node:util')

const backhop = require('backhop')
const { Retrier: AmqpRetrier } = require('backhop/amqp')
const { Retrier } = require('backhop/amqplib')
const { Clock, rehearse } = require('backhop/testing')

const { lib } = require('./internals')

const { BackhopError, Breaker, Delivery, Park, Plan, History, Policy, RetryAfter, Topology, Worker, buildInfo } =
  backhop

const NOWHERE = 'amqp://guest:secret@127.0.0.1:1'
const policy = new Policy()
const topology = new Topology({ queue: 'orders' })
const history = new History(new Delivery())
const retrier = new Retrier(null, { queue: 'orders' })
const NOT_DURATIONS = [null, true, NaN, '', 'soon', '30', [], {}, () => 1]
const NOT_WHOLE = [null, true, 1.5, '3', NaN, Infinity, -1, {}]
const HOLED = Object.assign(Array(2), { 1: 1 }) // a hole, then 1
const NOT_OPTIONS = [null, 'queue', 7, []]
const NOT_TEXTS = [null, '', 7, true, {}, []]
const GENERATORS = [function * () {}, async function * named () {}] // P4-1: their bodies would not run
const NOT_HANDLERS = [undefined, null, 'handle', {}, class Handler {}, Promise.resolve(), ...GENERATORS]
const NOT_CHOICES = [null, 'TypeError', 7, [undefined], ['TypeError'], [null], [Error, 7], async () => true, {}]

const TOPOLOGY = {
  queue: NOT_TEXTS,
  policy: [null, {}, 'slow', { maxAttempts: 3 }],
  strategy: [null, '', 'stairs', 'toString', 7, []],
  queueType: [null, '', 'stream', true],
  workQueue: [null, 'stream', true],
  workQueueArguments: [null, 'x', [], 7, { a: true }, { a: 1.5 }, { a: null }, { a: 2n ** 64n }],
  namespace: [null, '', 7, 'amq.x'],
  series: [null, 3, '10', 10.5, true],
  stripes: [null, 0, 65, '2', 1.5]
}
const SHARED = {
  ...TOPOLOGY,
  topology: [null, {}, 'orders'],
  mode: [null, 'maybe', true, ''],
  never: NOT_CHOICES,
  only: NOT_CHOICES,
  policies: [null, 7, 'slow', {}, [null], [Error], [[Error]], [[Error, null]], [['Error', policy]],
    [[async () => true, policy]]],
  legacyCounter: NOT_TEXTS,
  waitQueues: [null, 'orders.wait', 7, [7], [''], {}],
  confirmTimeout: [...NOT_DURATIONS, 0, -1, '2h'],
  backOff: [null, 100, '1s', {}]
}

/** [name, wrong values, a function that takes one] */
const TABLE = [
  ...Object.entries({
    initial: [...NOT_DURATIONS, 0, -1, Infinity, '900 years'],
    max: [...NOT_DURATIONS, 0, -1],
    factor: [null, true, '2', NaN, Infinity, 0.5, -2],
    jitter: [null, true, 'some', '0.2', NaN, 1.5, -0.1, []],
    maxAttempts: [...NOT_WHOLE, 2 ** 40],
    kind: [null, '', 'cubic', 7, true, 'toString'],
    steps: [null, [], '1s', 7, {}, [null], [undefined], HOLED, ['soon'], [-1], [0], Array(1001).fill(1)],
    maxAge: [...NOT_DURATIONS, -1, -0.5],
    maxRetryAfter: [...NOT_DURATIONS, -1, -0.5],
    maxCrashes: NOT_WHOLE,
    maxAttemps: [3]
  }).map(([name, values]) => [`a Policy's ${name}`, values, value => new Policy({ [name]: value })]),
  ['a Policy\'s options', NOT_OPTIONS, value => new Policy(value)],
  ['what the kind has no use for', [
    { steps: [1], initial: 5 }, { kind: 'linear', factor: 3 }, { kind: 'fixed', factor: 2 }, { steps: [1], factor: 2 },
    { kind: 'fixed', steps: [1] }, { kind: 'steps' }, { initial: '1h', max: '1m' }, { steps: ['1h'], max: '1m' }
  ], value => new Policy(value)],
  ['an attempt of delay', [undefined, null, 0, 1.5, -1, '1', NaN, true], value => policy.delay(value)],
  ['an attempt of row', [undefined, null, 0, 1.5, -1, '1'], value => policy.row(value)],
  ['delay\'s previous', [...NOT_DURATIONS, -1], value => policy.delay(1, { previous: value })],
  ['delay\'s random', [null, '0.5', 1, -0.1, NaN], value => policy.delay(1, { random: value })],
  ['preview\'s failures', [null, 1e9, 10_001, -1, 1.5, '3'], value => policy.preview(value)],

  ...Object.entries(TOPOLOGY).map(([name, values]) => [
    `a Topology's ${name}`, values, value => new Topology({ queue: 'orders', [name]: value })
  ]),
  ['a Topology\'s policies', [null, policy, [null], ['slow'], 7],
    value => new Topology({ queue: 'orders', policies: value })],
  ['a Topology\'s options', [undefined, ...NOT_OPTIONS], value => new Topology(value)],
  ['a queue\'s name', ['amq.x', 'x'.repeat(248), 'a\0b', Buffer.from([255])], value => new Topology({ queue: value })],
  ['what checkBroker is given', [undefined, null, 7], value => topology.checkBroker(value, '4.0.0')],
  ['the vhost of definitions', NOT_TEXTS, value => topology.definitions(value)],

  ['a header', [() => {}, Symbol('x')], value => new Delivery({ headers: { a: value } })],
  ['a property', [{}, true, []], value => new Delivery({ properties: { messageId: value } })],
  ['a priority', ['high', {}], value => new Delivery({ properties: { priority: value } })],
  ['the name of a property', [undefined, 'colour', 'toString'], value => new Delivery().property(value)],
  ['a Plan\'s outcome', [null, 'fine', 7], value => new Plan(history, topology, { outcome: value })],
  ['a Plan\'s policy', [null, 'slow', {}, new Policy({ kind: 'fixed', initial: '3d', max: '3d', jitter: 'none' })],
    value => new Plan(history, topology, { policy: value })],
  ['a Plan\'s retryAfter', NOT_DURATIONS, value => new Plan(history, topology, { retryAfter: value })],

  ...Object.entries(SHARED).map(([name, values]) => [
    `a Retrier's ${name}`, values, value => new Retrier(null, { queue: 'orders', [name]: value })
  ]),
  ['a Retrier\'s clock', [null, 7, new Date()], value => new Retrier(null, { queue: 'orders', clock: value })],
  ['a Retrier\'s onEvent', [null, 7, 'log', {}], value => new Retrier(null, { queue: 'orders', onEvent: value })],
  ['a Retrier\'s random', [null, 7], value => new Retrier(null, { queue: 'orders', random: value })],
  ['a Retrier\'s options', [undefined, ...NOT_OPTIONS, {}, { queue: 'orders', polcy: 1 }, { queue: 'orders', topology },
    { policy, topology }], value => new Retrier(null, value)],
  ['amqplib\'s channel', [undefined, {}, 'amqp://localhost', { addSetup () {} }, { createChannel () {} }],
    value => new Retrier(value, { queue: 'orders' })],
  ['node-amqp\'s connection', [undefined, null, {}, 'amqp://localhost'],
    value => new AmqpRetrier(value, { queue: 'orders' })],
  ['what wrap is given', NOT_HANDLERS, value => retrier.wrap(value)],
  ['what consume is given', NOT_HANDLERS, value => retrier.consume(value)],
  ['consume\'s prefetch', [null, 0, 65536, '10', 1.5], value => retrier.consume(() => {}, { prefetch: value })],
  ['what settle is given', [undefined, null, {}, 'message'], value => retrier.settle(value)],
  ['drain\'s timeout', [...NOT_DURATIONS, -1], value => retrier.drain({ timeout: value })],
  ['drain\'s options', NOT_OPTIONS, value => retrier.drain(value)],
  ['replay\'s most', [...NOT_WHOLE, { limit: 3 }], value => retrier.replay(value)],

  ['the delay of RetryAfter', [true, -1, {}, []],
    value => new RetryAfter(value, new Error('429'))],
  ['what rehearse is given', NOT_HANDLERS, value => rehearse(value)],
  ['the content of a rehearsal', [null, 7, {}], value => rehearse(() => {}, value)],
  ['a rehearsal\'s options',
    [null, 'x', { polcy: policy }, { mostAttempts: 0 }, { clock: Date.now }, { never: [undefined] }],
    value => rehearse(() => {}, '', value)],
  ['what a clock starts at', ['noon', undefined + 1, {}], value => new Clock(value)],
  ['what a clock advances by', [undefined, ...NOT_DURATIONS, -1], value => new Clock().advance(value)]
]

const WORKER_TABLE = [
  ...Object.entries({
    ...SHARED,
    concurrency: [null, 0, -1, 1.5, '8', true, 5n, Symbol('x')],
    prefetch: [null, -1, 65536, '10', 1.5],
    caFile: NOT_TEXTS,
    cert: NOT_TEXTS,
    key: [...NOT_TEXTS, '/key-without-cert.pem'],
    connectTimeout: [...NOT_DURATIONS, 0, -1, '2h'],
    drain: [...NOT_DURATIONS, -1, '2h'],
    retryEvents: [null, 1, 'yes'],
    failFast: [null, 1, 'yes'],
    threads: [8]
  }).map(([name, values]) =>
    [`a Worker's ${name}`, values, value => new Worker(NOWHERE, { queue: 'orders', [name]: value })]),
  ['a Worker\'s options', [undefined, ...NOT_OPTIONS, {}, { queue: 'orders', topology }],
    value => new Worker(NOWHERE, value)],
  ['a Worker\'s URI',
    [undefined, null, '', 7, {}, [], [7], [null], 'localhost', 'http://localhost', NOWHERE.slice(0, 9) + ':99999'],
    value => new Worker(value, { queue: 'orders' })],
  ['what run is given', NOT_HANDLERS, value => new Worker(NOWHERE, { queue: 'orders' }).run(value)],
  ['run\'s options', [
    null, 'x', { signal: {} }, { signal: null }, { signals: ['SIGWRONG'] }, { signals: 'SIGTERM' },
    { signals: ['SIGKILL'] }, { signals: 1 }
  ], value => new Worker(NOWHERE, { queue: 'orders' }).run(() => {}, value)],
  ['stop\'s timeout', [...NOT_DURATIONS, -1, '2h'],
    value => new Worker(NOWHERE, { queue: 'orders' }).stop({ timeout: value })],
  ['the worker\'s replay', [undefined, ...NOT_WHOLE], value => new Worker(NOWHERE, { queue: 'orders' }).replay(value)]
]

const LEAKS =
  /SWIG|bh_|Worker_|argument \d|_ms\b|undefined or null|is not a function|is not iterable|private member|secret/

async function refuses (take, value) {
  let error
  try {
    await take(value)
  } catch (thrown) {
    error = thrown
  }
  return error
}

for (const [what, values, take] of [...TABLE, ...buildInfo().worker ? WORKER_TABLE : []]) {
  test(`${what}: what is wrong is refused, in the package's words`, async () => {
    for (const value of values) {
      const error = await refuses(take, value)
      const shown = inspect(value)
      assert.ok(error, `${shown} was taken`)
      assert.ok(error instanceof BackhopError, `${shown}: ${error.stack}`)
      assert.ok(error.message.length > 10 && error.message.length < 500, `${shown}: ${error.message}`)
      assert.doesNotMatch(error.message, LEAKS, shown)
    }
  })
}

test('N3: what never and only hold is looked at when they are given, and says what to give', () => {
  for (const never of [[SyntaxError, undefined], ['TypeError']]) {
    assert.throws(() => new Retrier(null, { queue: 'orders', never }), {
      name: 'ArgumentError',
      message: /^never holds (undefined|'TypeError'): give a class of errors, a function that is given the error/
    })
  }
})

test('N4: what is no function is no handler', async () => {
  assert.throws(() => retrier.wrap(undefined),
    { message: 'wrap takes the function that handles a message, and was given undefined' })
  await assert.rejects(rehearse(undefined), { message: /^rehearse takes the function/ })
})

test('N8: steps without a step are no policy', () => {
  const message = 'steps is []: give one delay at least, or another kind'
  assert.throws(() => new Policy({ steps: [] }), { name: 'ArgumentError', message })
})

test('a hole in steps is a wrong step', () => {
  assert.throws(() => new Policy({ steps: HOLED }), {
    name: 'ArgumentError',
    message: 'a step is undefined: give milliseconds, or a string with its unit as "30s", "5m", "2h", "1d"'
  })
})

test('a negative fraction of a millisecond is refused like any negative duration', () => {
  for (const name of ['maxAge', 'maxRetryAfter']) {
    const [error, whole] = [-0.5, -1].map(value => {
      try {
        return new Policy({ [name]: value })
      } catch (thrown) {
        return thrown
      }
    })
    assert.equal(error.name, 'PolicyError')
    assert.ok(error.message.startsWith(`${name} is -0.5: give a duration from 0 ms to `), error.message)
    assert.equal(error.message.replace('-0.5', '-1'), whole.message)
  }
  assert.throws(() => new Breaker('api', { slow: -0.4 }), { message: 'slow is -0.4: give a duration from 0 ms to 1 d' })
  assert.throws(() => new Clock().advance(-0.4), { message: 'what advance is given is -0.4: give 0 ms or more' })
})

test('N9: each text is of the caller\'s own names and units', async () => {
  assert.throws(() => new Topology({}), { message: 'queue is undefined: give a string' })
  assert.throws(() => new Policy({ initial: 's' }),
    { message: /^initial is 's': give milliseconds, or a string with its unit as "30s"/ })
  assert.throws(() => new Policy({ initial: -1000 }), {
    name: 'PolicyError', message: 'initial is -1000: give a duration from 1 ms to 1157 d 9 h'
  })
  assert.throws(() => new Policy({ initial: '1h', max: '1m' }), {
    message: 'initial is 1 h, above max 1 min: raise max or lower initial'
  })
  assert.throws(() => new Retrier(null),
    { message: 'a Retrier takes its options as an object, and was given undefined' })
})

test('NT19: an error names the range, and another copy of the package', () => {
  assert.throws(() => new Policy({ maxAttempts: 1.5 }), { message: 'maxAttempts is 1.5: give a whole number' })
  const there = Object.keys(require.cache).filter(name => name.startsWith(lib))
  const before = there.map(name => [name, require.cache[name]])
  for (const name of there) delete require.cache[name]
  const other = new (require('backhop').Policy)()
  for (const [name, module] of before) require.cache[name] = module
  assert.throws(() => new Topology({ queue: 'orders', policy: other }), {
    message: 'policy is a Policy of another copy of Backhop, or of another realm: load one copy, see "npm ls backhop"'
  })
})

test('NT14: a Worker on Bun or Deno is refused with a sentence', { skip: !buildInfo().worker }, () => {
  for (const name of ['Bun', 'Deno']) {
    globalThis[name] = {}
    try {
      assert.throws(() => new Worker(NOWHERE, { queue: 'orders' }), {
        name: 'StateError', message: new RegExp(`^a Worker cannot run on ${name}, .* run this program with Node`)
      })
    } finally {
      delete globalThis[name]
    }
  }
})

test('NT11: a package that was not built says what to do', () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'backhop-'))
  try {
    const at = path.join(folder, 'node_modules', 'backhop')
    cpSync(lib, path.join(at, 'lib'), { recursive: true })
    const from = path.dirname(require.resolve('node-gyp-build/package.json', { paths: [lib] }))
    cpSync(from, path.join(folder, 'node_modules', 'node-gyp-build'), { recursive: true })
    assert.throws(() => require(path.join(at, 'lib')), error => {
      assert.match(`${error}`,
        /^BackhopError: the compiled part of Backhop cannot be loaded from .*No native build was found/)
      for (const advice of ['npm rebuild backhop', 'pnpm approve-builds', 'a C++ compiler',
        'esbuild --external:backhop']) {
        assert.ok(error.message.includes(advice), error.message)
      }
      return error.code === 'BACKHOP_NOT_BUILT' && error.cause instanceof Error
    })
  } finally {
    rmSync(folder, { recursive: true })
  }
})

test('N11: a preview that nobody can read ends no process, and there is no attempt 0 or 1.5', () => {
  assert.throws(() => policy.preview(1e9), { message: 'failures is 1000000000: give a whole number, from 0 to 10000' })
  assert.equal(policy.preview(10_000).length, 10_000)
  for (const attempt of [0, 1.5]) {
    assert.throws(() => policy.delay(attempt), /^ArgumentError: attempt is .*: give a whole number, 1 or more/)
  }
})

test('Park and Drop take any reason', () => {
  for (const reason of [undefined, null, 7, 'why', new Error('why'), {}]) new Park(reason)
})
