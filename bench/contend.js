'use strict'
// A contender of the benchmark: does a task with the messages of the queue, and prints a JSON object.
//
//     node contend.js CONTENDER TASK MESSAGES [TURNS]
//
// Contenders:
//
// - amqplib: a loop of one's own on a confirm channel, which acknowledges in the callbacks of the confirms
// - adapter: backhop/amqplib
// - worker: Worker
// - worker-metrics: with backhop/prom-client
// - worker-breaker, adapter-breaker: with a breaker, which stays closed
//
// Tasks:
//
// - consume: acknowledge each message
// - retry: each message fails; a copy waits, confirmed, then the original is acknowledged
// - seen, of adapter: retry, by retriers that take the TURNS, batch by batch, over and over. TURNS has commas between
//   them: silent, as if it had no events; off, without a listener; on, with backhop/prom-client; breaker, as off, with
//   a breaker
// - decision: no broker; the adapter's decision for a message with ten headers, one of them an x-death of five records
//
// AMQP_URL names the broker; bench-broker declares the queues and publishes the messages, as bench/bench.h has
// them. The object has these numbers:
//
// - "messages"
// - "seconds": from the first message to the end of the connections
// - "cpu_seconds": this process's processor time meanwhile
// - "peak_kib": the peak memory
// - "max_block_ms": the longest time that the event loop took for one turn
// - "max_block_cpu_ms": the longest processor time of one turn; other programs had the rest
// - "cpu_us", for seen: the processor time a message in each batch
// - "took_us", for seen: the time that a message took in each batch
// - "microseconds", for decision: the median of one

const fs = require('node:fs')
const path = require('node:path')

const amqplib = require('amqplib')

const backhop = require('backhop')
const { Retrier } = require('backhop/amqplib')

const { Policy, Topology, Worker } = backhop
const { Decider } = require(path.join(path.dirname(require.resolve('backhop')), 'decider')) // not public

const QUEUE = 'backhop.bench.work' // as bench/bench.h has them
const NAMESPACE = 'backhop.bench'
const PREFETCH = 1000
const [SEEN_PREFETCH, SEEN_BATCH] = [100, 1000] // messages: those in hand at a batch's end count in the next one
const ERROR = '507 queue is full'
const URL = process.env.AMQP_URL
const FRAME_MAX = 65536 // as the adapter has it
const LONG = { integer: value => ({ '!': 'long', value }) }
const SCHEDULE = '/proc/thread-self/schedstat'
const LOOK_AFTER = 5 // ms: how often a timer checks that the event loop is not blocked

const policy = (Class = Policy) => new Class({ initial: '10m', max: '10m', jitter: 'none', maxRetryAfter: 0 })

/** The longest turns of the event loop, in milliseconds. */
class Turns {
  wall = 0
  cpu = 0
  #start = performance.now()
  #used = usedCpu()
  #timer = setTimeout(() => this.#look(), LOOK_AFTER)

  #look () {
    const now = performance.now()
    const used = usedCpu()
    this.wall = Math.max(this.wall, now - this.#start - LOOK_AFTER)
    this.cpu = Math.max(this.cpu, used - this.#used)
    this.#start = now
    this.#used = used
    this.#timer.refresh()
  }

  end () {
    clearTimeout(this.#timer)
  }
}

const schedule = fs.existsSync(SCHEDULE) ? fs.openSync(SCHEDULE) : undefined
const line = Buffer.alloc(100)

/** Returns the processor time of this thread, in milliseconds; of the process if Linux does not report the thread's. */
function usedCpu () {
  const { user, system } = process.cpuUsage() // Linux brings the thread's up to date by it
  if (schedule === undefined) return (user + system) / 1000
  return Number(line.toString('latin1', 0, fs.readSync(schedule, line, 0, line.length, 0)).split(' ')[0]) / 1e6
}

/** Processor time of the process, in microseconds. */
function cpuNow () {
  const { user, system } = process.cpuUsage()
  return user + system
}

/** The handler's work, and how long it took from the first message on. */
class Task {
  done = 0
  batches = [] // processor time at their beginnings, in microseconds
  moments = [] // what a clock showed then, likewise

  constructor (name, messages) {
    this.fails = name === 'retry' || name === 'seen'
    this.messages = messages
    this.isDone = new Promise(resolve => { this.end = resolve })
  }

  handle () {
    if (!this.done) {
      this.start = performance.now()
      this.turns = new Turns()
    }
    if (this.done % SEEN_BATCH === 0) {
      this.batches.push(cpuNow())
      this.moments.push(performance.now() * 1000)
    }
    if (++this.done === this.messages) this.end()
    if (this.fails) throw new Error(ERROR)
  }
}

/** The loop that users write: publish, and acknowledge when the broker confirms it. */
async function runAmqplib (task) {
  const connection = await amqplib.connect(URL)
  const channel = await connection.createConfirmChannel()
  await channel.prefetch(PREFETCH)
  await channel.consume(QUEUE, message => {
    try {
      task.handle(message)
      channel.ack(message)
    } catch (error) {
      const { headers, messageId, contentType } = message.properties
      const copy = {
        mandatory: true,
        persistent: true,
        messageId,
        contentType,
        headers: {
          ...headers,
          'backhop-attempts': headers['backhop-attempts'] + 1,
          'backhop-error': error.message,
          BCC: [`backhop:${QUEUE}`]
        }
      }
      channel.publish(`${NAMESPACE}.wait.600000`, message.fields.routingKey, message.content, copy, refused => {
        if (refused) throw refused
        channel.ack(message)
      })
    }
  })
  await task.isDone
  await channel.waitForConfirms()
  await channel.get(QUEUE) // a channel that ends loses the acknowledgements that it has not handed to the queue
  await connection.close()
}

function metrics () {
  const { Registry } = require('prom-client')
  const { prometheus } = require('backhop/prom-client')
  return prometheus({ register: new Registry() })
}

/** Measures the time of a message, in microseconds, in batches of retriers that take turns. */
async function runSeen (task, turns) {
  const lib = path.dirname(require.resolve('backhop'))
  const contenders = [...new Set(turns)].map(seen => {
    // Each has the package's code for itself: what V8 learns of one makes no other slower.
    for (const file of Object.keys(require.cache)) if (file.startsWith(lib)) delete require.cache[file]
    const { Retrier } = require('backhop/amqplib')
    if (seen === 'silent') silence(require(path.join(lib, 'observe', 'emitter')))
    const own = require('backhop')
    const options = seen === 'on' ? { onEvent: metrics() } : seen === 'breaker' ? { breaker: breaker(own) } : {}
    return { seen, Retrier, Policy: own.Policy, options }
  })
  await runAdapter(task, { contenders, turns, prefetch: SEEN_PREFETCH })
  const [spent, took] = [task.batches, task.moments].map(all =>
    all.slice(1).map((end, i) => (end - all[i]) / SEEN_BATCH))
  return { cpu_us: spent, took_us: took }
}

/** Returns a breaker that the failures leave closed. */
const breaker = ({ Breaker }) => new Breaker('bench', { errors: [TypeError] })

/** As if there were no events at all. */
function silence ({ Emitter }) {
  for (const name of ['isObserved', 'hasListeners']) Object.defineProperty(Emitter.prototype, name, { value: false })
  Emitter.prototype.emit = () => undefined
}

/** The way of one retrier with these options. */
function alone (options) {
  return { contenders: [{ seen: 'off', Retrier, Policy, options }], turns: ['off'], prefetch: PREFETCH }
}

async function runAdapter (task, { contenders, turns, prefetch }) {
  const connection = await amqplib.connect(URL)
  const channel = await connection.createChannel()
  await channel.prefetch(prefetch)
  const retriers = contenders.map(({ Retrier, Policy, options }) =>
    new Retrier(channel, { queue: QUEUE, policy: policy(Policy), namespace: NAMESPACE, ...options }))
  const wrapped = new Map(retriers.map((each, i) => [contenders[i].seen, each.wrap(message => task.handle(message))]))
  const callbacks = turns.map(seen => wrapped.get(seen))
  await channel.consume(QUEUE, message => callbacks[Math.floor(task.done / SEEN_BATCH) % callbacks.length](message))
  await task.isDone
  await Promise.all(retriers.map(each => each.drain()))
  await channel.get(QUEUE) // as above
  await connection.close()
}

async function runWorker (task, options = {}) {
  const topology = new Topology({ queue: QUEUE, policy: policy(), namespace: NAMESPACE, workQueue: 'quorum' })
  const worker = new Worker(URL, { topology, concurrency: PREFETCH, prefetch: PREFETCH, mode: 'none', ...options })
  task.isDone.then(() => worker.stop())
  await worker.run(message => task.handle(message))
}

/** The median time of a decision, in microseconds: amqplib's properties in, amqplib's properties for the copy out. */
function decide (count) {
  const time = { '!': 'timestamp', value: 1_767_225_600 }
  const deaths = [1, 2, 3, 4, 5].map(i => ({
    count: 2,
    reason: 'expired',
    queue: `backhop.wait.${1000 * i}`,
    time,
    exchange: `backhop.wait.${1000 * i}`,
    'routing-keys': ['order.created', 'backhop:orders']
  }))
  const texts = Object.fromEntries([0, 1, 2, 3, 4, 5, 6].map(i => [`header-${i}`, `value ${i}`]))
  const headers = { ...texts, number: 7, moment: time, 'x-death': deaths }
  const properties = { contentType: 'text/plain', headers, messageId: '42', deliveryMode: 2 }
  const decider = new Decider(new Topology({ queue: 'orders' }), { frameMax: FRAME_MAX })
  const times = []
  for (let i = 0; i < count; i++) {
    const start = process.hrtime.bigint()
    const history = decider.read({ exchange: 'orders', routingKey: 'order.created', properties })
    const plan = decider.plan(history, { outcome: 'failed', error: ERROR, retryAfter: 0 })
    plan.copyProperties(properties, LONG)
    times.push(Number(process.hrtime.bigint() - start))
  }
  return times.sort((a, b) => a - b)[count >> 1] / 1000
}

const CONTENDERS = {
  amqplib: runAmqplib,
  adapter: task => runAdapter(task, alone({})),
  worker: task => runWorker(task),
  'adapter-breaker': task => runAdapter(task, alone({ breaker: breaker(backhop) })),
  'worker-breaker': task => runWorker(task, { breaker: breaker(backhop) }),
  'worker-metrics': task => runWorker(task, { onEvent: metrics() })
}

async function main () {
  const [contender, name, digits, turns] = process.argv.slice(2)
  const messages = Number(digits)
  if (name === 'decision') {
    console.log(JSON.stringify({ messages, microseconds: decide(messages) }))
    return
  }
  const task = new Task(name, messages)
  if (name === 'seen') {
    console.log(JSON.stringify({ messages, ...await runSeen(task, turns.split(',')) }))
    task.turns.end()
    return
  }
  await CONTENDERS[contender](task)
  const seconds = (performance.now() - task.start) / 1000
  const used = cpuNow() - task.batches[0]
  task.turns.end()
  const { wall, cpu } = task.turns
  console.log(JSON.stringify({
    messages,
    seconds,
    cpu_seconds: used / 1e6,
    peak_kib: process.resourceUsage().maxRSS,
    max_block_ms: Number(wall.toFixed(1)),
    max_block_cpu_ms: Number(cpu.toFixed(1))
  }))
}

main()
