'use strict'
// The worker on a broker: AMQP_URL names it, as tests/broker/broker sets it.

const assert = require('node:assert/strict')
const { spawn } = require('node:child_process')
const { once } = require('node:events')
const { after, afterEach, before } = require('node:test')
const { Worker: Thread } = require('node:worker_threads')

const {
  BackhopError, MissingError, Policy, RetryAfter, TLSError, Worker, buildInfo
} = require('backhop')

const { Broker, NEEDS_BROKER, NEEDS_CTL, URL, control, describe, it, until } = require('./broker')
const { Proxy } = require('./proxy')

const FAST = new Policy({ kind: 'fixed', initial: 100, jitter: 'none', maxAttempts: 3 })
const NEEDS_WORKER = buildInfo().worker ? {} : { skip: 'built without librabbitmq' }
const NEEDS_TLS = { real: true, skip: process.env.BACKHOP_CA_FILE ? false : 'there is no broker with TLS' }

require('../warnings') // of events without a listener

/** Returns a handler that keeps its messages, and throws these errors in turn. */
function inbox (...errors) {
  const handle = async message => {
    handle.messages.push(message)
    if (errors.length) throw errors.shift()
  }
  handle.messages = []
  handle.saw = count => until(() => handle.messages.length >= count, `the handler sees ${count}`)
  return handle
}

describe('worker', { ...NEEDS_WORKER, ...NEEDS_BROKER }, () => {
  let broker
  let workers = []

  before(async () => { broker = await Broker.connect() })
  after(() => broker.close())
  afterEach(async () => {
    // Rejected by those whose handlers hang.
    await Promise.allSettled(workers.map(worker => worker.stop({ timeout: 0 })))
    workers = []
  })

  /** A worker, and its run. */
  function start (queue, handle, options = {}) {
    const worker = new Worker(URL, { queue, policy: FAST, ...options })
    workers.push(worker)
    return { worker, running: worker.run(handle) }
  }

  it('takes a result that throws as it is looked at for a failure', async () => {
    const queue = await broker.queue()
    for (const body of ['one', 'two']) await broker.publish(body, queue)
    const seen = []
    start(queue, message => {
      seen.push(String(message.content))
      if (seen.length === 1) return { get then () { throw new Error('no') } }
    }, { concurrency: 1 })
    await until(() => seen.length === 3, 'both are handled, the first one again')
    assert.deepEqual(seen, ['one', 'two', 'one'])
  })

  it('brings back what fails to its queue alone, with its content, routing key, properties and types', async () => {
    const [queue, sibling] = [await broker.queue(), await broker.queue()]
    const exchange = await broker.events('topic', [queue, sibling], 'image.*')
    const handle = inbox(new TypeError('507 queue is full'))
    const headers =
      { tenant: 'acme', n: { '!': 'int8', value: 3 }, when: { '!': 'timestamp', value: 1 }, deep: { a: [1, null] } }
    await broker.publish('body', 'image.purge', { exchange, headers, contentType: 'text/x', priority: 3 })
    start(queue, handle)
    await handle.saw(2)
    const [first, second] = handle.messages
    assert.deepEqual([first.attempt, second.attempt], [1, 2])
    assert.equal(second.lastError, 'TypeError: 507 queue is full')
    assert.equal(second.lastDelay, 100)
    assert.ok(second.firstFailure instanceof Date)
    assert.deepEqual([second.exchange, second.routingKey], [exchange, 'image.purge'])
    assert.deepEqual(second.content, Buffer.from('body'))
    for (const name of Object.keys(headers)) {
      assert.deepEqual(second.headers[name], first.headers[name])
      assert.equal(second.delivery.headerType(name), first.delivery.headerType(name))
    }
    assert.deepEqual([second.delivery.properties.contentType, second.delivery.properties.priority], ['text/x', 3])
    await broker.holds(sibling, 1)
  })

  it('takes a delay that is none for a failure, and tells it with what the handler met', async () => {
    const queue = await broker.queue()
    const seen = []
    await broker.publish('body', queue)
    start(queue, message => {
      seen.push(message.lastError)
      if (seen.length === 1) throw new RetryAfter(-1, new Error('429'))
    })
    await until(() => seen.length === 2)
    assert.match(seen[1], /^ArgumentError: the delay of RetryAfter is -1: give 0 ms or more.*; caused by Error: 429$/)
  })

  it('runs as many handlers at once as its concurrency says', async () => {
    const queue = await broker.queue()
    let [running, most, done] = [0, 0, 0]
    const waiting = []
    for (let i = 0; i < 9; i++) await broker.publish('body', queue)
    start(queue, async () => {
      most = Math.max(most, ++running)
      await new Promise(resolve => waiting.push(resolve))
      running--
      done++
    }, { concurrency: 3 })
    while (done < 9) {
      await until(() => waiting.length === Math.min(3, 9 - done), 'so many run')
      for (const resolve of waiting.splice(0)) resolve()
      await new Promise(setImmediate)
    }
    assert.equal(most, 3)
  })

  it('tells what happens while every handler has a message', async () => {
    const queue = await broker.queue()
    await broker.publish('body', queue)
    const handle = inbox()
    const { worker } = start(queue, async message => {
      await handle(message)
      if (handle.messages.length === 1) await replayed
    }, { concurrency: 1 })
    const replayed = once(worker, 'replayed')
    await handle.saw(1)
    assert.equal(await worker.replay(1), 0)
  })

  it('takes functions that are not asynchronous too, and what is thrown that is no error', async () => {
    const queue = await broker.queue()
    const attempts = []
    await broker.publish('body', queue)
    start(queue, message => {
      attempts.push([message.attempt, message.lastError])
      if (message.attempt === 1) throw '507'
    })
    await until(() => attempts.length === 2)
    assert.deepEqual(attempts, [[1, ''], [2, '507']])
  })

  it('drains: handlers finish, and what they do not settle in time goes back', async () => {
    const queue = await broker.queue()
    let release
    const handle = inbox()
    for (const body of ['quick', 'slow']) await broker.publish(body, queue)
    const { worker, running } = start(queue, async message => {
      await handle(message)
      if (message.content.toString() === 'slow') await new Promise(() => {})
      else await new Promise(resolve => { release = resolve })
    })
    await handle.saw(2)
    const drained = once(worker, 'drained')
    const stopping = worker.stop({ timeout: 1000 })
    release()
    await Promise.all([assert.rejects(stopping, { name: 'WaitTimeoutError' }), running])
    assert.equal((await drained)[0].count, 1)
    assert.deepEqual(await broker.bodies(queue, 1), ['slow'])
  })

  it('stops when its signal is aborted', async () => {
    const queue = await broker.queue()
    const controller = new AbortController()
    const worker = new Worker(URL, { queue, policy: FAST })
    worker.once('connected', () => controller.abort())
    await worker.run(() => {}, { signal: controller.signal })
  })

  it('F2: connects again after the broker was killed, and does not handle again what its handler has', {
    ...NEEDS_CTL, long: true
  }, async () => {
    const queue = await broker.queue({ 'x-queue-type': 'quorum' })
    const handle = inbox()
    let release
    const held = new Promise(resolve => { release = resolve })
    const { worker } = start(queue, async message => {
      await handle(message)
      await held
    })
    await once(worker, 'connected')
    control('save')
    await broker.publish('body', queue, { persistent: true, messageId: 'order 7' })
    await handle.saw(1)
    const disconnected = once(worker, 'disconnected')
    control('kill')
    assert.ok((await disconnected)[0].error instanceof BackhopError)
    const connected = once(worker, 'connected')
    release()
    control('start')
    await connected
    await broker.reconnect()
    await broker.publish('next', queue, { persistent: true })
    await handle.saw(2)
    assert.deepEqual(handle.messages.map(({ body }) => String(body)), ['body', 'next'])
  })

  it('ends its run where it can never work, and says why', async () => {
    const isMissing = { name: 'MissingError', message: /test-no-such-queue/ }
    const worker = new Worker(URL, { queue: 'test-no-such-queue' })
    workers.push(worker)
    await assert.rejects(worker.run(() => {}), isMissing)
    await assert.rejects(worker.run(() => {}), isMissing) // and can be run again
    const stranger = new Worker(URL.replace('guest:guest', 'guest:wrong'), { queue: 'test-no-such-queue' })
    workers.push(stranger)
    await assert.rejects(stranger.run(() => {}), { name: 'AccessError' })
  })

  it('goes on where it can never work, if it is told to', async () => {
    const { worker } = start('test-no-such-queue', () => {}, { failFast: false })
    for (let failures = 0; failures < 2; failures++) {
      const [event] = await once(worker, 'unavailable')
      assert.ok(event.error instanceof MissingError)
      assert.match(event.text, /test-no-such-queue/)
      assert.equal(event.queue, 'test-no-such-queue')
    }
  })

  it('W8: uses a new secret at its next login', async () => {
    const options = { queue: await broker.queue(), policy: FAST, failFast: false }
    const worker = new Worker(URL.replace('guest:guest', 'guest:wrong'), options)
    workers.push(worker)
    const running = worker.run(() => {})
    const [refused] = await once(worker, 'unavailable')
    assert.equal(refused.error.name, 'AccessError')
    assert.throws(() => worker.setCredentials('', 'guest'), { name: 'ArgumentError' })
    assert.throws(() => worker.setCredentials('guest', 42),
      error => error.name === 'ArgumentError' && !/42/.test(error.message))
    worker.setCredentials('guest', 'guest')
    await once(worker, 'connected')
    await worker.stop()
    await running
  })

  it('tells which of its connections was lost, and of which broker', async () => {
    const proxy = await Proxy.to(URL)
    const worker = new Worker(proxy.url, { queue: await broker.queue(), policy: FAST })
    workers.push(worker)
    const running = worker.run(() => {})
    await once(worker, 'connected')
    const lost = once(worker, 'disconnected')
    proxy.cut()
    const [{ connection, host }] = await lost
    assert.match(connection, /^(consume|publish)$/)
    assert.equal(host, new globalThis.URL(proxy.url).host)
    await worker.stop()
    await running
    proxy.close()
  })

  it('verifies the broker over TLS', NEEDS_TLS, async () => {
    const queue = await broker.queue()
    const uri = process.env.AMQPS_URL
    const stranger = new Worker(uri, { queue })
    workers.push(stranger)
    await assert.rejects(stranger.run(() => {}), TLSError)
    const handle = inbox()
    await broker.publish('body', queue)
    const worker = new Worker(uri, { queue, policy: FAST, caFile: process.env.BACKHOP_CA_FILE })
    workers.push(worker)
    worker.run(handle)
    await handle.saw(1)
  })

  it('keeps a message readable when it is gone', async () => {
    const queue = await broker.queue()
    const handle = inbox()
    await broker.publish('body', queue)
    const message = await (async () => {
      const worker = new Worker(URL, { queue, policy: FAST })
      const running = worker.run(handle)
      await handle.saw(1)
      await worker.stop()
      await running
      return handle.messages[0]
    })()
    for (let i = 0; i < 5; i++) {
      global.gc?.()
      await new Promise(setImmediate)
    }
    assert.equal(message.content.toString(), 'body')
    assert.equal(message.attempt, 1)
  })

  it('works in worker_threads, where terminate loses nothing', async () => {
    const queue = await broker.queue()
    const code = `
      const { Worker } = require('backhop')
      const { parentPort } = require('node:worker_threads')
      const worker = new Worker(${JSON.stringify(URL)}, { queue: ${JSON.stringify(queue)} })
      worker.run(async message => {
        const body = message.content.toString()
        if (body === 'hang') await new Promise(setImmediate) // in which the other one is settled
        parentPort.postMessage(body)
        if (body === 'hang') await new Promise(() => {})
      })`
    for (const body of ['settled', 'hang']) await broker.publish(body, queue)
    const thread = new Thread(code, { eval: true })
    const bodies = []
    thread.on('message', body => bodies.push(body))
    await until(() => bodies.length === 2, 'both came').finally(() => thread.terminate())
    assert.deepEqual(await broker.bodies(queue, 1), ['hang'])
  })

  it('ends its process by itself when it has drained, by a signal that the application passes on', async () => {
    const queue = await broker.queue()
    await broker.publish('body', queue)
    const code = `
      const { Worker } = require('backhop')
      const worker = new Worker(${JSON.stringify(URL)}, { queue: ${JSON.stringify(queue)} })
      process.once('SIGTERM', () => worker.stop())
      worker.run(async () => {
        console.log('begun')
        await new Promise(resolve => process.stdin.once('data', resolve))
        process.stdin.destroy()
        console.log('ended')
      }).then(() => console.log('ran'))`
    const child = spawn(process.execPath, ['-e', code], { cwd: __dirname, stdio: ['pipe', 'pipe', 'inherit'] })
    let output = ''
    child.stdout.on('data', data => { output += data })
    const exit = once(child, 'exit')
    try {
      await until(() => output.includes('begun'), 'its handler has begun')
      child.kill('SIGTERM')
      child.stdin.write('go on\n')
      await until(() => child.exitCode !== null || child.signalCode, 'it has ended')
    } finally {
      child.kill('SIGKILL') // if it has not
    }
    assert.deepEqual(await exit, [0, null])
    assert.deepEqual(output.trim().split('\n'), ['begun', 'ended', 'ran'])
    await broker.holds(queue, 0)
  })
})
