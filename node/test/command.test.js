'use strict'
// The operator's command, as the package carries it.

const assert = require('node:assert/strict')
const { spawn, spawnSync } = require('node:child_process')
const { once } = require('node:events')
const { readlinkSync } = require('node:fs')
const { createServer } = require('node:net')
const path = require('node:path')
const { test } = require('node:test')
const { buildInfo } = require('backhop')

const PROGRAM = path.resolve('node_modules/.bin/backhop')
const isThere = buildInfo().worker
const run = (...words) => spawnSync(PROGRAM, words, { encoding: 'utf8' })

test('the command is carried where the worker is', () => {
  const { stdout, stderr, status } = run('--version')
  if (isThere) {
    assert.strictEqual(status, 0, stderr)
    assert(stdout.startsWith(`backhop ${buildInfo().version} `))
  } else {
    assert.strictEqual(status, 69)
    assert.match(stderr, /built without the command/)
  }
})

test('its exit codes and messages are its own', { skip: !isThere }, () => {
  const { stderr, status } = run('parked', 'list')
  assert.strictEqual(status, 64)
  assert.match(stderr, /which work queue\?/)
})

test('it is one process, so that signals are its own', { skip: !isThere }, async t => {
  const silent = createServer().listen(0, '127.0.0.1') // a broker that says nothing
  t.after(() => silent.close())
  await once(silent, 'listening')
  const program = spawn(PROGRAM, ['parked', 'list', 'orders', '--uri', `amqp://127.0.0.1:${silent.address().port}/`])
  const [socket] = await once(silent, 'connection')
  assert.strictEqual(path.basename(readlinkSync(`/proc/${program.pid}/exe`)), 'backhop')
  await once(socket, 'data')
  program.kill('SIGINT')
  assert.deepStrictEqual(await once(program, 'exit'), [130, null])
})
