'use strict'

const assert = require('node:assert/strict')
const { describe, it } = require('node:test')

const {
  AccessError, BackhopError, BrokerError, ChannelClosedError, ClashError, MissingError, Policy, Topology
} = require('backhop')

const { inside } = require('./internals')

const { Declared, checkBroker, creating, takeAll, verifying } = inside('declaring')

const policy = new Policy({ initial: 100, jitter: 'none', max: 200, maxRetryAfter: '1s' })
const TOPOLOGY = { queue: 'work', namespace: 'space' }
const topology = new Topology({ ...TOPOLOGY, policy })
const CLASH = "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'work.parked' in vhost '/': received " +
  "the value 'quorum' of type 'longstr' but current is the value 'classic' of type 'longstr'"
const ON_DEMAND = topology.declarations.filter(({ onDemand }) => onDemand)
const FORBIDDEN = { code: 403, text: 'ACCESS_REFUSED' }
const NOT_FOUND = { code: 404, text: 'NOT_FOUND' }

/** Takes the steps, and refuses what the function refuses. */
function take (steps, refuse = () => undefined) {
  const taken = []
  let refusal
  for (;;) {
    const { value: step, done } = steps.next(refusal)
    if (done) return taken
    taken.push(step)
    refusal = refuse(step)
  }
}

describe('creating', () => {
  it('declares all that is not for demand alone', () => {
    const taken = take(creating(topology)).map(({ declaration }) => declaration)
    assert.deepEqual(taken, topology.declarations.filter(each => !each.onDemand))
    assert.ok(taken.length < topology.declarations.length)
  })

  it('declares what it is given', () => {
    const rung = topology.declarations.filter(({ wait }) => wait === 1000)
    assert.ok(rung.length)
    assert.deepEqual(take(creating(topology, rung)).map(({ declaration }) => declaration), rung)
  })

  const refused = (name, refusal) => () => {
    take(creating(topology), ({ declaration }) => declaration.name === name && refusal)
  }

  it('tells what differs, and what to do', () => {
    assert.throws(refused('work.parked', { code: 406, text: CLASH }), error => {
      assert.ok(error instanceof ClashError)
      assert.equal(error.message, [
        'queue "work.parked" exists with x-queue-type = classic, and quorum is needed (once it is empty and unused,',
        'delete it and declare again, or choose another name for the work queue)'
      ].join(' '))
      return true
    })
    const text = CLASH.replace('work.parked', 'space.wait.100')
    assert.throws(refused('space.wait.100', { code: 406, text }), /or choose another namespace\)$/)
    assert.throws(refused('space.return', { code: 406, text: 'cut' }), /exists with other arguments \(cut\)/)
  })

  it('tells what is missing and what is forbidden', () => {
    const isBinding = refusal => () => take(creating(topology), ({ declaration }) => {
      return declaration.what === 'binding' && declaration.name === 'work' && refusal
    })
    assert.throws(isBinding({ code: 404, text: 'NOT_FOUND' }), error => {
      assert.ok(error instanceof MissingError)
      assert.match(error.message, /^the work queue "work" does not exist: declare it first/)
      return true
    })
    assert.throws(refused('space.return', { code: 404, text: 'NOT_FOUND' }), MissingError)
    assert.throws(refused('space.return', { code: 403, text: 'ACCESS_REFUSED' }), AccessError)
    assert.throws(refused('space.return', { code: 541, text: 'INTERNAL_ERROR' }), ChannelClosedError)
  })

  it('takes a rung on demand to be there where it may not be declared', () => {
    assert.deepEqual(take(creating(topology, ON_DEMAND), () => FORBIDDEN), [{ declaration: ON_DEMAND[0], passive: false }])
    for (const code of [404, 406, 541]) {
      assert.throws(() => take(creating(topology, ON_DEMAND), () => ({ code, text: '' })), BackhopError)
    }
    assert.throws(() => take(creating(topology, topology.declarations), () => FORBIDDEN), AccessError)
  })

  it('names the plugin that an exchange type needs', () => {
    const delayed = new Topology({ queue: 'work', policy: new Policy(), strategy: 'delayed-exchange' })
    const refusal = { code: 503, text: "COMMAND_INVALID - unknown exchange type 'x-delayed-message'" }
    const refuse = ({ declaration }) => declaration.type === 'x-delayed-message' && refusal
    assert.throws(() => take(creating(delayed), refuse), error => {
      return error instanceof BrokerError && /ladder/.test(error.message)
    })
  })
})

describe('verifying', () => {
  it('makes nothing where all is there', () => {
    const taken = take(verifying(topology))
    const declared = topology.declarations.filter(({ what }) => what !== 'binding')
    assert.equal(taken.length, 2 * declared.length + 1) // looked at and compared, and the work queue looked at
    assert.ok(taken.at(-1).passive && taken.at(-1).declaration.name === 'work')
  })

  it('tells all that is missing and different at once', () => {
    const refuse = ({ declaration: { name }, passive }) => {
      if (name === 'work.parked' && !passive) return { code: 406, text: CLASH }
      const isMissing = name === 'space.return' || name === 'work' || name.startsWith('space.wait')
      if (passive && isMissing) return { code: 404, text: '' }
    }
    assert.throws(() => take(verifying(topology), refuse), error => {
      assert.ok(error instanceof ClashError)
      assert.match(error.message, /^queue "work.parked" exists with .*; missing: .*exchange "space.return"/)
      assert.match(error.message, /, the work queue "work"; declare\(\)/)
      return true
    })
    assert.throws(() => take(verifying(topology), ({ passive }) => passive && NOT_FOUND), MissingError)
  })

  it('takes that something exists for enough, where it may not compare', () => {
    take(verifying(topology), ({ passive }) => !passive && FORBIDDEN)
  })

  it('looks at all rungs on demand, which may be missing', () => {
    const taken = take(verifying(topology), ({ declaration }) => declaration.onDemand && NOT_FOUND)
    const looked = taken.map(({ declaration }) => declaration).filter(({ onDemand }) => onDemand)
    assert.deepEqual(looked, ON_DEMAND.filter(({ what }) => what !== 'binding'))
  })

  it('tells a rung on demand that differs, though another is missing', () => {
    const refuse = ({ declaration, passive }) => {
      if (passive) return declaration === ON_DEMAND[0] && NOT_FOUND
      return declaration === ON_DEMAND.at(-2) && { code: 406, text: 'cut' }
    }
    assert.throws(() => take(verifying(topology), refuse), error => {
      assert.ok(error instanceof ClashError)
      assert.ok(error.message.startsWith(`queue "${ON_DEMAND.at(-2).name}" exists with other arguments (cut)`))
      assert.doesNotMatch(error.message, /missing: /)
      return true
    })
  })

  it('counts the rungs on demand that are missing where nobody makes them', () => {
    const refuse = (...missing) => ({ declaration: { name, onDemand }, passive }) => {
      if (!passive) return FORBIDDEN
      return (onDemand || missing.includes(name)) && NOT_FOUND
    }
    const upTo = maxRetryAfter => {
      return new Topology({ ...TOPOLOGY, policy: new Policy({ initial: 100, jitter: 'none', max: 100, maxRetryAfter }) })
    }
    assert.throws(() => take(verifying(upTo(125)), refuse()), new MissingError(
      'missing: 1 rung that a handler\'s RetryAfter can need; import topology.definitions(), or set maxRetryAfter: 0, ' +
      'which needs none'
    ))
    assert.throws(() => take(verifying(upTo(150)), refuse('work', 'space.return')), new MissingError(
      'missing: exchange "space.return", the work queue "work", 2 rungs that a handler\'s RetryAfter can need; ' +
      'declare() makes what is missing, or import topology.definitions()'
    ))
  })
})

describe('taking steps', () => {
  const step = { declaration: topology.declarations[0], passive: false }

  it('opens a channel for the first step and after each refusal, and closes the last one', async () => {
    const told = []
    const line = {
      openChannel: async () => {
        told.push('open')
        return { take: async ({ refusal }) => refusal, close: async () => told.push('close') }
      }
    }
    function * steps () {
      for (const refusal of [undefined, { code: 404, text: '' }, undefined]) {
        assert.equal(yield { ...step, refusal }, refusal)
      }
    }
    await takeAll(line, steps())
    assert.deepEqual(told, ['open', 'open', 'close'])
  })
})

describe('what is declared', () => {
  it('is made again after a doubt, by who declared it', () => {
    const declared = new Declared()
    declared.doubt()
    assert.ok(declared.isThere) // who declares elsewhere
    assert.match(declared.hint('NOT_FOUND - no exchange'), /await declare\(\) once at the start/)
    declared.restores = true
    declared.doubt()
    assert.ok(!declared.isThere)
    assert.equal(declared.hint('NOT_FOUND - no exchange'), '')
  })
})

describe('a broker', () => {
  it('is refused where it is none that the strategy can use', () => {
    assert.throws(() => checkBroker(topology, undefined), BrokerError)
    checkBroker(topology, { product: 'RabbitMQ', version: '4.3.0' })
    const fixed = new Policy({ kind: 'fixed', jitter: 'none' })
    const native = new Topology({ queue: 'work', policy: fixed, strategy: 'native' })
    assert.throws(() => checkBroker(native, { product: 'RabbitMQ', version: '4.0.5' }), BrokerError)
  })
})
