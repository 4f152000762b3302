'use strict'
// A model of RabbitMQ for tests, in a process of its own: `backhop model`. testing.d.ts is the
// manual.

const { spawn } = require('node:child_process')
const { join } = require('node:path')
const { createInterface } = require('node:readline')

const { BackhopError } = require('./backhop-error')
const { StateError } = require('./errors')
const { only, refuse } = require('./checks')

const COMMAND = join(__dirname, '..', 'bin', 'backhop')
const UNAVAILABLE = 69 // of sysexits

class Broker {
  #process
  #lines
  #problem = ''
  #last = Promise.resolve()

  static async _start (options = {}) {
    only(options, ['version', 'clock'], 'startBroker')
    const broker = new Broker()
    await broker.#begin(options)
    return broker
  }

  async #begin ({ version = '4.3', clock = 'skip' }) {
    const words = ['model', '--control', '-', '--version', String(version), '--clock', String(clock)]
    this.#process = spawn(COMMAND, words, { stdio: 'pipe' })
    this.#process.once('error', error => { this.#problem += error.message })
    this.#process.stdin.on('error', () => {}) // it has ended; the missing answer says so
    this.#process.stderr.setEncoding('utf8').on('data', text => { this.#problem += text })
    this.ended = new Promise(resolve => this.#process.once('close', resolve))
    this.#lines = createInterface({ input: this.#process.stdout })[Symbol.asyncIterator]()
    const { value, done } = await this.#lines.next()
    if (done) throw await this.#failed()
    this.url = value
  }

  async #failed () {
    const status = await this.ended
    const Class = status === UNAVAILABLE ? StateError : BackhopError
    return new Class(this.#problem.trim() || `backhop model ended with status ${status}`)
  }

  /** One command after the other: answers have no number. */
  control (...words) {
    const answer = this.#last.then(() => this.#control(words))
    this.#last = answer.catch(() => {})
    return answer
  }

  async #control (words) {
    if (this.#process.exitCode !== null || this.#process.stdin.writableEnded) {
      throw new StateError('the broker is closed; start another one')
    }
    const line = words.join(' ')
    if (/[\n\0]/.test(line)) refuse('a word', line, 'words without a line feed or a zero byte')
    this.#process.stdin.write(words.map(word => `'${String(word).replaceAll("'", "'\\''")}'`).join(' ') + '\n')
    const answer = []
    for (;;) {
      const { value, done } = await this.#lines.next()
      if (done) throw await this.#failed()
      if (value === 'ok') return answer
      if (value.startsWith('error: ')) throw new BackhopError(value.slice('error: '.length))
      answer.push(value)
    }
  }

  async close () {
    this.#process.stdin.end() // at the end of its input the model ends
    await this.ended
  }

  async [Symbol.asyncDispose ?? Symbol('asyncDispose')] () {
    await this.close()
  }
}

/** Starts a broker. With a test's context, ends it after that test. */
async function startBroker (...given) {
  const test = typeof given[0]?.after === 'function' ? given.shift() : undefined
  const broker = await Broker._start(given[0])
  test?.after(() => broker.close())
  return broker
}

module.exports = { Broker, startBroker }
