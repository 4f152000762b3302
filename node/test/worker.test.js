'use strict'
// A worker without a broker.

const assert = require('node:assert/strict')
const { execFile, execFileSync } = require('node:child_process')
const { once } = require('node:events')
const { mkdtempSync, readFileSync, readdirSync, rmSync } = require('node:fs')
const os = require('node:os')
const path = require('node:path')
const { test } = require('node:test')
const { promisify } = require('node:util')
const { Worker: Thread } = require('node:worker_threads')

const { Registry } = require('prom-client')

const {
  ArgumentError, Breaker, ConnectionFailedError, NoLibrabbitmqError, Policy, StateError, Topology, URIError, Worker,
  buildInfo
} = require('backhop')

const { prometheus } = require('backhop/prom-client')

const { longTest } = require('./profile')
const warnings = require('./warnings')

const NOWHERE = 'amqp://guest:secret@127.0.0.1:1'
const NEEDS_WORKER = buildInfo().worker ? {} : { skip: 'built without librabbitmq' }
const timeout = 30_000

test('without librabbitmq a worker says what to install', {
  skip: buildInfo().worker && 'built with librabbitmq'
}, () => {
  assert.throws(() => new Worker(NOWHERE, { queue: 'orders' }), error => {
    return error instanceof NoLibrabbitmqError &&
      /librabbitmq-dev libssl-dev pkg-config.*npm rebuild backhop/.test(error.message)
  })
})

for (const uri of ['', 'http://localhost', 'amqp://localhost:99999']) {
  test(`a URI that cannot be read is refused: "${uri}"`, NEEDS_WORKER, () => {
    assert.throws(() => new Worker(uri, { queue: 'orders' }), URIError)
  })
}

test('options that contradict each other, are none or out of range are refused', NEEDS_WORKER, () => {
  const topology = new Topology({ queue: 'orders' })
  assert.throws(() => new Worker(NOWHERE, {}),
    /neither queue nor topology: give the name of the work queue, or a Topology/)
  assert.throws(() => new Worker(NOWHERE, { queue: 'orders', topology }),
    /has its queue from the topology: give either/)
  assert.throws(() => new Worker(NOWHERE, { policy: new Policy(), topology }),
    /has its policy from the topology: give either/)
  assert.throws(() => new Worker(NOWHERE, { queue: 'orders', threads: 8 }),
    /no option threads: give any of .*concurrency/)
  assert.throws(() => new Worker(NOWHERE, { queue: 'orders', mode: 'maybe' }),
    /mode is 'maybe': give one of create, verify, none/)
  for (const concurrency of [0, 1.5, '8']) {
    assert.throws(() => new Worker(NOWHERE, { queue: 'orders', concurrency }), ArgumentError)
  }
  for (const drain of ['2h', -1]) assert.throws(() => new Worker(NOWHERE, { queue: 'orders', drain }), ArgumentError)
  assert.throws(() => new Worker(NOWHERE, { queue: 'orders', prefetch: 65536 }), ArgumentError)
})

test('metrics that tell different errors apart are refused, as a worker counts once for all', NEEDS_WORKER, () => {
  const counted = errorTypes => prometheus({ register: new Registry(), errorTypes })
  const same = [counted(['TypeError', 'RangeError']), counted(['RangeError', 'TypeError'])]
  assert.ok(new Worker(NOWHERE, { queue: 'orders', onEvent: same }))
  assert.throws(() => new Worker(NOWHERE, { queue: 'orders', onEvent: [...same, counted()] }),
    { name: 'ArgumentError', message: /give each the same error types/ })
})

test('a broker that is not there is an event, and stopping works', { ...NEEDS_WORKER, timeout }, async () => {
  const worker = new Worker(NOWHERE, { queue: 'orders' })
  const failed = once(worker, 'unavailable')
  const running = worker.run(() => assert.fail())
  const [event] = await failed
  assert.ok(event.error instanceof ConnectionFailedError)
  assert.ok(event.delay > 0)
  assert.ok(!String(event).includes('secret'))
  await worker.stop()
  await running
})

test('a worker can run again, but not twice at once', { ...NEEDS_WORKER, timeout }, async () => {
  const worker = new Worker(NOWHERE, { queue: 'orders' })
  for (let i = 0; i < 3; i++) {
    const events = Promise.all([once(worker, 'unavailable'), once(worker, 'drained')])
    const running = worker.run(() => {})
    await assert.rejects(worker.run(() => {}), StateError)
    await once(worker, 'unavailable')
    await worker.stop()
    await Promise.all([events, running])
  }
})

test('F13: workers that ended hold no descriptors', { ...NEEDS_WORKER, timeout }, async () => {
  const round = async workers => {
    for (const worker of workers) {
      const running = worker.run(() => {})
      await once(worker, 'unavailable')
      await worker.stop()
      await running
    }
  }
  const workers = () => Array.from({ length: 4 }, () => new Worker(NOWHERE, { queue: 'orders' }))
  await round(workers()) // the runtime opens some descriptors at its first run
  const before = held()
  const made = workers() // not collected before the look
  await round(made)
  await settledAt({ ...before, threads: Infinity })
  await round(made)
})

test('an aborted signal stops the worker, also one that was aborted before', { ...NEEDS_WORKER, timeout }, async () => {
  const worker = new Worker(NOWHERE, { queue: 'orders' })
  const controller = new AbortController()
  worker.once('unavailable', () => controller.abort())
  await worker.run(() => {}, { signal: controller.signal })
  await worker.run(() => {}, { signal: AbortSignal.abort() })
})

test('stopping what does not run does nothing, and replaying it is refused', { ...NEEDS_WORKER, timeout }, async () => {
  const worker = new Worker(NOWHERE, { queue: 'orders' })
  await worker.stop()
  await worker.run(() => assert.fail()) // a stop before the first start counts
  await assert.rejects(worker.replay(1), { name: 'StateError', message: /the worker does not run/ })
})

test('what run, stop and replay cannot take is refused before anything starts', {
  ...NEEDS_WORKER, timeout
}, async () => {
  const worker = new Worker(NOWHERE, { queue: 'orders' })
  await assert.rejects(worker.run('handle'), /run takes the function that handles a message, and was given 'handle'/)
  await assert.rejects(worker.run(() => {}, { signla: AbortSignal.abort() }),
    /run has no option signla: give any of signal/)
  for (const signal of [null, {}, 'abort']) {
    await assert.rejects(worker.run(() => {}, { signal }), /give a.* AbortSignal/)
  }
  await assert.rejects(worker.stop({ timout: 1 }), /stop has no option timout: give any of timeout/)
  for (const most of [null, -1, 1.5, '3']) {
    await assert.rejects(worker.replay(most), /most is .*: give a whole number, 0 or more/)
  }
  await worker.run(() => {}, { signal: AbortSignal.abort() }) // it can still run
})

test('an event without a listener that is worth it becomes a warning', { ...NEEDS_WORKER, timeout }, async () => {
  const worker = new Worker(NOWHERE, { queue: 'not-listened-to' })
  const running = worker.run(() => {})
  while (!warnings.some(({ message }) => message.includes('not-listened-to'))) await once(process, 'warning')
  const warning = warnings.find(({ message }) => message.includes('not-listened-to'))
  assert.deepEqual([warning.name, warning.code], ['BackhopWarning', 'BACKHOP_UNAVAILABLE'])
  await worker.stop()
  await running
})

test('what a listener throws is uncaught, as of any emitter, and the worker goes on', {
  ...NEEDS_WORKER, timeout
}, () => {
  const output = run(`
    process.on('uncaughtException', error => { console.log('uncaught', error.message); worker.stop() })
    worker.once('unavailable', () => { throw new Error('no') })
    worker.run(() => {}).then(() => console.log('ran'))`)
  assert.deepEqual(output, ['uncaught no', 'ran'])
})

test('a process whose worker has drained ends by itself, and so does one that never ran it', {
  ...NEEDS_WORKER, timeout
}, () => {
  assert.deepEqual(run('console.log("made")'), ['made'])
  const stopping = 'worker.on("unavailable", () => worker.stop())'
  assert.deepEqual(run(`${stopping}; worker.run(() => {}).then(() => console.log("ran"))`), ['ran'])
})

test('a process may exit while its worker runs', { ...NEEDS_WORKER, timeout }, () => {
  const leaving = 'worker.on("unavailable", () => { console.log("bye"); process.exit(0) })'
  assert.deepEqual(run(`${leaving}; worker.run(() => {})`), ['bye'])
})

test('NODE_DEBUG=backhop tells what it met', { ...NEEDS_WORKER, timeout }, () => {
  const code = 'worker.on("unavailable", () => worker.stop()); worker.run(() => {})'
  const output =
    run(`process.stderr.write = text => { console.log(text.trim()); return true }; ${code}`, { NODE_DEBUG: 'backhop' })
  assert.ok(output.some(line => /^BACKHOP \d+: unavailable: /.test(line)), output.join('\n'))
})

/**
 * Runs code in a process of its own, beside a worker; its lines. It has to end by itself, in order.
 */
function run (code, env = {}) {
  const script = `const worker = new (require('backhop').Worker)('${NOWHERE}', { queue: 'orders' }); ${code}`
  const output =
    execFileSync(process.execPath, ['-e', script], { cwd: __dirname, env: { ...process.env, ...env }, timeout })
  return output.toString().trim().split('\n')
}

const IN_A_THREAD = `
  const { Worker } = require('backhop')
  const { parentPort } = require('node:worker_threads')
  const worker = new Worker('${NOWHERE}', { queue: 'orders' })
  worker.on('unavailable', () => parentPort.postMessage('unavailable'))
  worker.run(() => {})
  parentPort.on('message', async () => { await worker.stop(); parentPort.close() })`

/** The descriptors and threads of this process. */
function held () {
  const threads = readdirSync('/proc/self/task').map(id => {
    try {
      return readFileSync(`/proc/self/task/${id}/comm`, 'utf8').trim()
    } catch {
      return ''
    }
  })
  return { descriptors: readdirSync('/proc/self/fd').length, threads: threads.filter(Boolean).length }
}

async function settledAt ({ descriptors, threads }) {
  for (const end = Date.now() + timeout; Date.now() < end;) {
    const now = held()
    if (now.descriptors <= descriptors && now.threads <= threads) return
    await new Promise(resolve => setTimeout(resolve, 20))
  }
  assert.deepEqual(held(), { descriptors, threads })
}

for (const end of ['terminate', 'stop']) {
  const needs = { ...NEEDS_WORKER, timeout: 2 * timeout }
  longTest(`worker_threads: many at once, and nothing is left of them after ${end}`, needs, async () => {
    const round = async (isMidway = false) => {
      const threads = Array.from({ length: 4 }, () => new Thread(IN_A_THREAD, { eval: true }))
      if (isMidway) await new Promise(resolve => setTimeout(resolve, 150 * Math.random())) // wherever they are
      else await Promise.all(threads.map(thread => once(thread, 'message')))
      await Promise.all(threads.map(thread => {
        const exit = once(thread, 'exit')
        if (end === 'stop') thread.postMessage('stop')
        else thread.terminate()
        return exit
      }))
    }
    await round() // the runtime keeps some of the handles that it begins
    const before = held()
    for (let i = 0; i < 6; i++) await round(end === 'terminate' && i % 2 === 1)
    await settledAt(before)
  })
}

/**
 * Runs in a process that has the addon in this thread alone. The C library reads HOSTALIASES for a
 * name without dots: a pipe without a writer keeps the look-up waiting.
 */
const LOOKS_UP = `
  const fs = require('node:fs')
  const { Worker: Thread } = require('node:worker_threads')
  const threads = () => fs.readdirSync('/proc/self/task').length
  const thread = new Thread(\`
    const { Worker } = require('backhop')
    const worker = new Worker('amqp://nosuchhost', { queue: 'orders', connectTimeout: 100 })
    worker.on('unavailable', () => require('node:worker_threads').parentPort.postMessage('unavailable'))
    worker.run(() => {})\`, { eval: true })
  thread.once('message', async () => {
    await thread.terminate()
    const waiting = threads()
    const look = setInterval(() => {
      try {
        const flags = fs.constants.O_WRONLY | fs.constants.O_NONBLOCK
        fs.closeSync(fs.openSync(process.env.HOSTALIASES, flags)) // they go on
      } catch { // nobody waits
        if (threads() >= waiting) return
        console.log('ended')
        clearInterval(look)
      }
    }, 10)
  })`

test('a thread may end while a name is looked up', { ...NEEDS_WORKER, timeout }, async () => {
  const directory = mkdtempSync(path.join(os.tmpdir(), 'backhop-'))
  const HOSTALIASES = path.join(directory, 'aliases')
  try {
    execFileSync('mkfifo', [HOSTALIASES])
    const env = { ...process.env, HOSTALIASES }
    const { stdout } = await promisify(execFile)(process.execPath, ['-e', LOOKS_UP], { cwd: __dirname, env, timeout })
    assert.equal(stdout, 'ended\n')
  } finally {
    rmSync(directory, { recursive: true })
  }
})

test('a worker that is garbage leaves no descriptor and no thread', { ...NEEDS_WORKER, timeout }, async () => {
  const before = held()
  for (let i = 0; i < 20; i++) { // each breaker is garbage too
    new Worker(NOWHERE, { queue: 'orders', breaker: new Breaker('api') })
  }
  for (const end = Date.now() + timeout; held().descriptors > before.descriptors && Date.now() < end;) {
    global.gc()
    await new Promise(resolve => setImmediate(resolve))
  }
  await settledAt(before)
})
