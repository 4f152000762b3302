'use strict'
// The pages show what happens: node/README.md and docs/node.md. BACKHOP_DOCS names the folder docs.

const assert = require('node:assert/strict')
const { execFileSync } = require('node:child_process')
const { readFileSync } = require('node:fs')
const path = require('node:path')
const { test } = require('node:test')

const { Policy, buildInfo, explain } = require('backhop')

const README = path.join(path.dirname(require.resolve('backhop')), '..', 'README.md')
const EXAMPLES = path.join(__dirname, '..', 'examples')
const NEEDS_DOCS = process.env.BACKHOP_DOCS ? {} : { skip: 'BACKHOP_DOCS is not set: node/tools/test sets it' }
const NEEDS_WORKER = buildInfo().worker ? {} : { skip: 'built without librabbitmq' }

test('node/README.md shows the table that its policy prints', () => {
  const policy = new Policy({ initial: '10s', factor: 3, max: '1h', jitter: 0.2, maxAttempts: 8 })
  assert.ok(readFileSync(README, 'utf8').includes(`\n${policy.preview()}\n`))
})

test('docs/node.md shows the story that headers tell', NEEDS_DOCS, () => {
  const story = explain({
    'backhop-attempts': 8,
    'backhop-first-failure': 1794694400000,
    'backhop-delay': 3000000,
    'backhop-error': 'Error: 507 queue is full',
    'backhop-parked': 'exhausted',
    'backhop-exchange': 'cdn',
    'backhop-routing-key': 'purge.image',
    'backhop-id': '5f0c'
  })
  assert.ok(readFileSync(path.join(process.env.BACKHOP_DOCS, 'node.md'), 'utf8').includes(`\n${story.trimEnd()}\n`))
})

test('N4-2, N4-8: docs/node.md has each entry point for bundles, and each way to allow scripts', NEEDS_DOCS, () => {
  const page = readFileSync(path.join(process.env.BACKHOP_DOCS, 'node.md'), 'utf8')
  const [, pattern] = /`externals: \[\/(\S+)\/\], externalsType: "commonjs"`/.exec(page)
  const { exports } = JSON.parse(readFileSync(path.join(path.dirname(README), 'package.json'), 'utf8'))
  const names = Object.keys(exports).map(each => path.posix.join('backhop', each))
  assert.ok(names.includes('backhop/amqplib'))
  for (const name of names) assert.match(name, new RegExp(pattern))
  assert.doesNotMatch('backhops', new RegExp(pattern))
  for (const way of ['pnpm approve-builds', '"dependenciesMeta": { "backhop": { "built": true } }']) {
    assert.ok(page.includes(way), way)
  }
})

test('N4-3, N4-9: the pages have node-amqp\'s order of arguments, and what its post needs today', NEEDS_DOCS, () => {
  const read = name => readFileSync(path.join(process.env.BACKHOP_DOCS, name), 'utf8')
  // As live/interface.test.js calls it.
  assert.ok(read('node.md').includes('`(payload, headers, deliveryInfo, message)`'))
  for (const row of ['appId: messageObject.appId', 'expiration: 10000']) assert.ok(read('posts.md').includes(row), row)
})

test('the outcomes are as their comments have them', NEEDS_WORKER, () => {
  const output = execFileSync(process.execPath, [path.join(EXAMPLES, 'outcomes.js')], { encoding: 'utf8' })
  assert.deepEqual(output.trim().split('\n').slice(1),
    ['429: acked after 2', '503: acked after 2', '404: parked after 1', '410: dropped after 1', '500: acked after 2'])
})

test('the rehearsal of the guide passes', () => {
  const { NODE_TEST_CONTEXT, ...env } = process.env // so that it is no part of this run
  execFileSync(process.execPath, ['--test', path.join(EXAMPLES, 'rehearsal.js')], { env })
})
