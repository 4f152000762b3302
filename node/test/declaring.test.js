'use strict'
// The shared vectors of declaring, over the addon; and how a client takes the steps.

const assert = require('node:assert/strict')
const { describe, it } = require('node:test')

const { BrokerError, MissingError, Policy, Topology } = require('backhop')

const { c, inside } = require('./internals')
const vectors = require('./vectors')

const { Declaring, MODES, stepOf } = inside('declaring')
const { NATIVE } = inside('native')

const DIALECTS = {
  c: c.BH_DIALECT_C, python: c.BH_DIALECT_PYTHON, ruby: c.BH_DIALECT_RUBY, node: c.BH_DIALECT_NODE
}

vectors.cases('topology/declaring', given => {
  vectors.only(given, 'name policy topology dialect mode look rung_ms makes_rungs refusals then expect')
  vectors.only(given.expect, 'status text error steps')
  const topology = vectors.topology(given, vectors.policy(given))
  const {
    dialect = 'c', mode = 'create', look = false, rung_ms: rung = 0, makes_rungs: makesRungs = false, refusals = []
  } = given
  const [status, native] = c.bh_declaring_new(topology[NATIVE], DIALECTS[dialect])
  assert.equal(status, 0)
  assert.equal(native.set_makes_rungs(Number(makesRungs)), 0)
  assert.equal(look ? native.look(MODES[mode]) : native.begin(MODES[mode], rung), 0)
  const taken = []
  for (let step; (step = native.next())[0] !== c.BH_DECLARE_NONE;) {
    const { passive, unbind, declaration: { what, name, arguments: args } } = stepOf(step)
    const does = passive ? 'find' : unbind ? 'unbind' : 'declare'
    taken.push([does, what, name, Object.entries(args)])
    const refusal = refusals.find(each => each[0] === does && each[1] === what && each[2] === name)
    if (!refusal) continue
    native.refuse(refusal[3], refusal[4])
  }
  if (given.then) {
    const [refusal, ...args] = given.then
    native.explain(c[`BH_REFUSAL_${refusal.toUpperCase().replace('-', '_')}`], ...args)
  }
  const { status: end = 'BH_OK', text, error = [], steps } = given.expect
  assert.equal(c.bh_status_name(native.status()), end)
  if (text !== undefined) assert.equal(native.error(), text)
  for (const part of [error].flat()) assert.ok(native.error().includes(part), native.error())
  if (steps) assert.deepEqual(taken.map((row, i) => row.slice(0, steps[i]?.length)), steps)
})

describe('declaring over a client', () => {
  const policy = new Policy({ initial: 100, jitter: 'none', maxRetryAfter: 0 })
  const topology = new Topology({ queue: 'work', policy })

  /** Returns a connection whose broker refuses what `refuse` returns a refusal for. */
  function connectionThat (refuse, serverProperties = { product: 'RabbitMQ', version: '4.3.0' }) {
    const told = []
    return {
      told,
      serverProperties,
      openChannel: async () => {
        told.push('open')
        return { declare: async ({ declaration }) => refuse(declaration), close: async () => told.push('close') }
      }
    }
  }

  it('opens a channel for the first step and after each refusal, and closes the last one', async () => {
    const connection = connectionThat(({ name }) => name === 'work.parked' && { code: 404, text: 'NOT_FOUND' })
    await assert.rejects(new Declaring(topology, 'create').verify(connection), new MissingError(
      'missing: queue "work.parked"; declare with mode: \'create\', or import topology.definitions()'
    ))
    assert.deepEqual(connection.told, ['open', 'open', 'close'])
  })

  it('is of the retrier that declared it', async () => {
    for (const [mode, isOwn] of [['create', true], ['verify', false], ['none', false]]) {
      const declaring = new Declaring(topology, mode)
      assert.equal(declaring.makesRungs, isOwn)
      await declaring.begin(connectionThat(() => undefined))
      assert.equal(declaring.isOwn, isOwn)
      assert.equal(declaring.suggestion, isOwn ? '' : 'declare()')
    }
  })

  it('is refused by a broker that is none that the strategy can use', async () => {
    const fixed = new Policy({ kind: 'fixed', jitter: 'none' })
    const native = new Topology({ queue: 'work', policy: fixed, strategy: 'native' })
    for (const [of, properties] of [[topology, {}], [native, { product: 'RabbitMQ', version: '4.0.5' }]]) {
      await assert.rejects(new Declaring(of, 'create').begin(connectionThat(() => undefined, properties)), BrokerError)
    }
  })
})
