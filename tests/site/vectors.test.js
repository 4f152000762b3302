'use strict'
// Runs the shared vectors of policies, topologies and plans through the WebAssembly of the playground.

const assert = require('node:assert/strict')

const notation = require('../../node/test/notation')
const core = require('./core')

const { fraction, only, raw, status } = notation
const { c } = core

const KINDS = ['exponential', 'linear', 'fixed', 'steps']
const JITTERS = ['none', 'spread', 'equal', 'full', 'decorrelated']
const STRATEGIES = ['ladder', 'message-ttl', 'reject', 'delayed-exchange', 'native']
const QUEUE_TYPES = ['quorum', 'classic']
const OUTCOMES = ['ok', 'failed', 'permanent', 'dropped', 'released', 'throttled', 'deferred']
const ACTIONS = ['none', 'ack', 'retry', 'reject', 'return', 'park', 'drop', 'replay', 'defer']
const PROPERTIES = [
  'content-type', 'content-encoding', 'headers', 'delivery-mode', 'priority', 'correlation-id', 'reply-to',
  'expiration', 'message-id', 'timestamp', 'type', 'user-id', 'app-id', 'cluster-id'
]
const NUMBERS = ['delivery-mode', 'priority', 'timestamp']
const LIMITS = ['max_attempts', 'max_ms', 'max_age_ms', 'max_retry_after_ms', 'max_crashes', 'max_deferrals']

const big = value => BigInt(notation.integer(value))
const key = bytes => bytes.toString('latin1')

function indexIn (names, name) {
  assert.ok(names.includes(name), `${name} is none of ${names}`)
  return names.indexOf(name)
}

/** Calls the setters in order. A refusal gets the field. */
function setAll (setters, given) {
  for (const [field, set] of Object.entries(setters)) {
    if (!(field in given)) continue
    try {
      set(given[field])
    } catch (error) {
      if (error instanceof core.Refusal) error.field ??= field === 'jitter' ? 'ratio' : field
      throw error
    }
  }
}

// --- Inputs ----------------------------------------------------------------------------------------------------------

// bh_policy_settings in WebAssembly
const SETTINGS = {
  kind: 0, initial_ms: 8, factor: 16, max_ms: 24, steps_ms: 32, step_count: 36, jitter: 40, ratio: 48, max_attempts: 56,
  max_age_ms: 64, max_retry_after_ms: 72, max_crashes: 80, max_deferrals: 88, size: 104
}

const VIEW = { settings: 48, size: 88 } // of bh_topology_view
const PLANNED_SIZE = 48 // of bh_planned

function policy (given = {}) {
  const self = core.made('bh_policy')
  const change = write => {
    const at = core.filled('bh_policy_read', SETTINGS.size, self)
    write(at)
    core.check(c.bh_policy_set(self, at))
  }
  const setter = name => value => change(at => core.writeInteger(at + SETTINGS[name], big(value)))
  only(given, 'kind initial_ms factor max_ms steps_ms jitter ratio max_attempts max_age_ms max_retry_after_ms ' +
  'max_crashes max_deferrals')
  const setters = {
    kind: value => change(at => core.writeNumber(at + SETTINGS.kind, indexIn(KINDS, value))),
    initial_ms: setter('initial_ms'),
    factor: value => change(at => core.writeFraction(at + SETTINGS.factor, fraction(value))),
    max_ms: setter('max_ms'),
    steps_ms: value => {
      const steps = value.flatMap(notation.steps)
      const room = core.room(8 * steps.length)
      steps.forEach((step, i) => core.writeInteger(room + 8 * i, BigInt(step)))
      change(at => {
        core.writeNumber(at + SETTINGS.steps_ms, room)
        core.writeNumber(at + SETTINGS.step_count, steps.length)
      })
    },
    jitter: value => {
      const ratio = 'ratio' in given ? fraction(given.ratio) : 0.2
      change(at => {
        core.writeNumber(at + SETTINGS.jitter, indexIn(JITTERS, value))
        core.writeFraction(at + SETTINGS.ratio, ratio)
      })
    },
    max_attempts: setter('max_attempts'),
    max_age_ms: setter('max_age_ms'),
    max_retry_after_ms: setter('max_retry_after_ms'),
    max_crashes: setter('max_crashes'),
    max_deferrals: setter('max_deferrals')
  }
  return [self, () => setAll(setters, given)]
}

function rightPolicy (given) {
  const [self, fill] = policy(given)
  fill()
  return self
}

function topology (given = {}) {
  only(given, 'queue strategy queue_type namespace series stripes work_queue_type work_queue_arguments policies')
  let self
  const set = (name, value) => core.check(c[`bh_topology_${name}`](self, value))
  const change = write => {
    const at = core.filled('bh_topology_read', VIEW.size, self) + VIEW.settings
    write(at)
    set('set', at)
  }
  const setters = {
    queue: value => { self = core.made('bh_topology', core.write(raw(value))) },
    strategy: value => change(at => core.writeNumber(at, indexIn(STRATEGIES, value))),
    queue_type: value => change(at => core.writeNumber(at + 4, indexIn(QUEUE_TYPES, value))),
    namespace: value => change(at => core.write(raw(value), at + 8)),
    series: value => change(at => core.writeNumber(at + 16, value)),
    stripes: value => change(at => core.writeInteger(at + 24, big(value))),
    work_queue_type: value => change(at => {
      core.writeNumber(at + 32, 1)
      core.writeNumber(at + 36, indexIn(QUEUE_TYPES, value))
    }),
    work_queue_arguments: list => {
      for (const [name, value] of list) {
        set('add_work_queue_argument', core.argument(raw(name), typeof value === 'number' ? value : raw(value)))
      }
    },
    policies: list => { for (const each of list) set('add_policy', rightPolicy(each)) }
  }
  return [() => self, () => setAll(setters, { queue: 'orders', ...given })]
}

function builtTopology (given, builtFor) {
  const [self, fill] = topology(given)
  fill()
  core.check(c.bh_topology_build(self(), builtFor))
  return self()
}

function push (delivery, name, { '!': type, value }) {
  const isOpen = type === 'array' || type === 'table'
  const pushed = core.value({ type, name: Buffer.from(name), content: isOpen ? null : value })
  core.check(c.bh_delivery_push(delivery, pushed))
  if (!isOpen) return
  for (const each of value) push(delivery, ...(type === 'table' ? each : ['', each]))
  core.check(c.bh_delivery_end(delivery))
}

function delivery (given = {}) {
  only(given, 'exchange routing_key properties headers')
  const self = core.made('bh_delivery')
  const [exchange, routingKey] = [given.exchange ?? 'events', given.routing_key ?? 'order.created']
  core.check(c.bh_delivery_set_address(self, core.write(raw(exchange)), core.write(raw(routingKey))))
  for (const [name, value] of Object.entries(given.properties ?? {})) {
    const property = indexIn(PROPERTIES, name)
    if (NUMBERS.includes(name)) core.check(c.bh_delivery_set_number(self, property, big(value)))
    else core.check(c.bh_delivery_set_property(self, property, core.write(raw(value))))
  }
  for (const [name, value] of notation.entries(given.headers ?? [])) push(self, name, value)
  return self
}

function history (each, of, on) {
  const self = core.made('bh_history')
  if ('legacy_counter' in each) core.check(c.bh_history_set_legacy_counter(self, core.write(raw(each.legacy_counter))))
  for (const queue of each.wait_queues ?? []) core.check(c.bh_history_add_wait_queue(self, core.write(raw(queue))))
  core.check(c.bh_history_read(self, of, on))
  return self
}

// --- Comparisons -----------------------------------------------------------------------------------------------------

/** Comparisons with integers. */
const numbers = reads => Object.fromEntries(Object.entries(reads).map(([name, read]) => [
  name, expected => assert.equal(BigInt(read()), big(expected), name)
]))
const names = reads => Object.fromEntries(Object.entries(reads).map(([name, read]) => [
  name, expected => assert.equal(read(), expected)
]))
const texts = reads => Object.fromEntries(Object.entries(reads).map(([name, read]) => [
  name, expected => assert.equal(key(read()), key(raw(expected)), name)
]))
const flags = reads => Object.fromEntries(Object.entries(reads).map(([name, read]) => [
  name, expected => assert.equal(Boolean(read()), expected, name)
]))

/** Runs what must be refused, and compares the status, the field, and the texts in the object's error. */
function compareRefusal ({ expect }, run, error) {
  only(expect, 'status refused_by error')
  assert.throws(run, thrown => {
    assert.ok(thrown instanceof core.Refusal, String(thrown))
    assert.equal(thrown.status, expect.status)
    assert.equal(thrown.field, expect.refused_by ?? 'build')
    for (const text of [expect.error ?? []].flat()) assert.ok(error().includes(text), `${text}: ${error()}`)
    return true
  })
}

/** Names the last step, so that a refusal has a field. */
function last (field, run) {
  try {
    run()
  } catch (error) {
    if (error instanceof core.Refusal) error.field ??= field
    throw error
  }
}

function comparePreview (rows, read) {
  for (const [attempt, ...expected] of rows) {
    const at = read(big(attempt))
    const found = [0, 8, 16, 24].map(place => core.integer(at + place))
    if (expected.length > 4) found.push(BigInt(core.pointer(at + 32)))
    assert.deepEqual(found, expected.map(big), `attempt ${attempt}`)
  }
}

/** Runs the cases of a noun. Each frees its memory. */
function cases (noun, keys, run) {
  notation.cases(noun, each => {
    only(each, keys)
    try {
      run(each)
    } finally {
      core.end()
    }
  })
}

// --- Policies and topologies -----------------------------------------------------------------------------------------

cases('policy', 'name policy expect', each => {
  const [self, fill] = policy(each.policy)
  const all = () => { fill(); last('check', () => core.check(c.bh_policy_check(self))) }
  if (status(each) !== 'BH_OK') {
    assert.ok(each.expect.refused_by)
    compareRefusal(each, all, () => core.textOf('bh_policy_error', self).toString())
    return
  }
  all()
  const limits = core.filled('bh_policy_limits', 48, self)
  const read = () => core.filled('bh_policy_read', SETTINGS.size, self)
  notation.compare(each.expect, {
    ...names({
      kind: () => KINDS[core.number(read() + SETTINGS.kind)],
      jitter: () => JITTERS[core.number(read() + SETTINGS.jitter)]
    }),
    ...numbers(Object.fromEntries(LIMITS.map((name, at) => [name, () => core.integer(limits + 8 * at)]))),
    delays: rows => {
      for (const [attempt, previous, u, expected] of rows) {
        const found = c.bh_policy_delay_ms(self, big(attempt), big(previous), fraction(u))
        assert.equal(found, big(expected), `attempt ${attempt}, u ${fraction(u)}`)
      }
    },
    preview: rows => comparePreview(rows, attempt => core.filled('bh_policy_preview', 40, self, attempt))
  })
})

function rungsOf (self) {
  const at = core.filled('bh_topology_read', VIEW.size, self)
  return Array.from({ length: core.pointer(at + 36) }, (_, i) => core.integer(core.pointer(at + 32) + 8 * i))
}

function countOf (self) {
  return core.pointer(core.filled('bh_topology_read', VIEW.size, self) + 40)
}

function declared (self, onDemand) {
  const found = new Set()
  for (let i = 0; i < countOf(self); i++) {
    const at = core.filled('bh_topology_declaration', 64, self, i)
    const [kind, rung] = [core.number(at), core.integer(at + 40)]
    if (kind === 2 && rung && Boolean(core.number(at + 48)) === onDemand) found.add(rung)
  }
  return [...found]
}

function compareShares (self, of, rows) {
  const rungs = rungsOf(self)
  for (const [attempt, rung, share] of rows) {
    const at = rungs.indexOf(big(rung))
    const found = at < 0 ? 0 : c.bh_topology_share(self, of, big(attempt), at)
    assert.ok(Math.abs(found - fraction(share)) < 0.0005, `${rung} ms after failure ${attempt}: ${found}`)
  }
}

function compareBrokers (self, rows) {
  for (const [product, version, status, ...texts] of rows) {
    const found = c.bh_topology_check_broker(self, core.write(raw(product)), core.write(raw(version)))
    assert.equal(core.textOf('bh_status_name', found).toString(), status)
    for (const text of texts) assert.ok(core.textOf('bh_topology_error', self).includes(text))
  }
}

function compareDefinitions (self, expected) {
  only(expected, 'vhost json status')
  const found = c.bh_topology_export(self, core.write(raw(expected.vhost ?? '/')))
  assert.equal(core.textOf('bh_status_name', found).toString(), expected.status ?? 'BH_OK')
  if ('json' in expected) assert.deepEqual(JSON.parse(core.textOf('bh_topology_definitions', self)), expected.json)
}

cases('topology', 'name policy topology expect', each => {
  const of = rightPolicy(each.policy)
  const [self, fill] = topology(each.topology)
  const all = () => { fill(); last('build', () => core.check(c.bh_topology_build(self(), of))) }
  if (status(each) !== 'BH_OK') {
    compareRefusal(each, all, () => {
      const own = self() ? core.textOf('bh_topology_error', self()).toString() : ''
      return own || core.textOf('bh_policy_error', of).toString()
    })
    return
  }
  all()
  const { declarations, ...expect } = each.expect // whole declarations are compared in C and in the three languages
  const view = () => core.filled('bh_topology_read', VIEW.size, self())
  const compared = {
    ...texts({
      queue: () => core.bytesAt(view()),
      parked_queue: () => core.bytesAt(view() + 8)
    }),
    ...names({ strategy: () => STRATEGIES[core.number(view() + VIEW.settings)] }),
    ...numbers({ worst_lateness_ms: () => core.integer(view() + 24) }),
    rungs: expected => {
      assert.deepEqual(rungsOf(self()), expected.map(big))
      assert.deepEqual(declared(self(), false), expected.map(big))
    },
    on_demand_rungs: expected => assert.deepEqual(declared(self(), true), expected.map(big)),
    brokers: rows => compareBrokers(self(), rows),
    preview: rows => comparePreview(rows, attempt => core.filled('bh_topology_preview', 40, self(), of, attempt)),
    shares: rows => compareShares(self(), of, rows),
    definitions: expected => compareDefinitions(self(), expected)
  }
  if (declarations) assert.equal(countOf(self()), declarations.length)
  if (Object.keys(expect).length) notation.compare(expect, compared)
})

// --- Plans -----------------------------------------------------------------------------------------------------------

function randomOf (given = {}) {
  if ('hex' in given) return raw(given)
  only(given, 'u pick id')
  const bits = u => {
    const bytes = Buffer.alloc(8)
    bytes.writeBigUInt64BE(BigInt(Math.floor(u * 2 ** 53)) << 11n)
    return bytes
  }
  const { u = 0.5, pick = 0.5, id = { hex: '00112233445566778899aabbccddeeff' } } = given
  return Buffer.concat([bits(fraction(u)), bits(fraction(pick)), raw(id)])
}

function decide (plan, each, of, on, past, by) {
  const random = core.write(randomOf(each.random))
  const now = big(each.now_ms ?? 1_700_000_000_000)
  if ('frame_max' in each) core.check(c.bh_plan_set_frame_max(plan, big(each.frame_max)))
  if (each.replay) return c.bh_plan_replay(plan, of, past, on, random)
  if (each.guard) return c.bh_plan_guard(plan, of, past, by, on, now, random)
  const outcome = indexIn(OUTCOMES, each.outcome ?? 'failed')
  const error = core.write(raw(each.error ?? ''))
  return c.bh_plan_make(plan, of, past, by, on, outcome, error, big(each.retry_after_ms ?? 0), now, random)
}

/** The headers of a plan: name, type, and the value, or the name of the header that is copied. */
function headersOf (plan) {
  const count = core.pointer(core.filled('bh_plan_read', PLANNED_SIZE, plan) + 44)
  return Array.from({ length: count }, (_, i) => {
    const at = core.filled('bh_plan_header', 40, plan, i)
    const [name, type, source] = [core.bytesAt(at), core.number(at + 8), core.bytesAt(at + 32)]
    if (source.length) return [key(name), 'copy_of', key(source)]
    const letter = String.fromCharCode(type)
    const isText = letter !== 'l'
    return [key(name), letter, isText ? key(core.bytesAt(at + 12)) : core.integer(at + 24)]
  })
}

function expectedHeader ([name, value]) {
  const own = key(raw(name))
  if (typeof value === 'object' && value !== null && 'copy_of' in value) {
    return [own, 'copy_of', key(raw(value.copy_of))]
  }
  const [type, content] = notation.typed(value)
  if (type === 'array') return [own, core.TYPES.array, key(raw(content[0]))]
  return [own, core.TYPES[type], type === 'int64' ? big(content) : key(raw(content))]
}

function compareHeaders (plan) {
  const found = () => headersOf(plan)
  const sorted = list => [...list].sort((a, b) => a[0] < b[0] ? -1 : 1)
  const all = list => list.map(expectedHeader)
  return {
    headers: list => assert.deepEqual(found(), all(list)),
    headers_in_any_order: list => assert.deepEqual(sorted(found()), sorted(all(list))),
    headers_with: list => {
      for (const one of all(list)) assert.deepEqual(found().find(([name]) => name === one[0]), one)
    },
    headers_without: list => {
      for (const name of list) assert.ok(!found().some(([one]) => one === key(raw(name))), String(name))
    }
  }
}

function compareKept (plan, { delivery: given = {} }) {
  return {
    kept_properties: list => {
      const there = Object.keys(given.properties ?? {})
      const kept = there.filter(name => c.bh_plan_keeps_property(plan, indexIn(PROPERTIES, name)))
      assert.deepEqual(kept.sort(), list.filter(name => name !== 'headers').sort())
    },
    kept_headers: list => {
      const kept = given.headers.filter(([name]) => c.bh_plan_keeps_header(plan, core.write(raw(name))))
      assert.deepEqual(new Set(kept.map(([name]) => key(raw(name)))), new Set(list.map(name => key(raw(name)))))
    }
  }
}

const PLAN_KEYS = 'name delivery policy topology legacy_counter wait_queues outcome error retry_after_ms now_ms ' +
  'random frame_max guard replay expect'

cases('plan', PLAN_KEYS, each => {
  const by = rightPolicy(each.policy)
  const on = builtTopology(each.topology, by)
  const of = delivery(each.delivery)
  const past = history(each, of, on)
  const plan = core.made('bh_plan')
  const code = decide(plan, each, of, on, past, by)
  assert.equal(core.textOf('bh_status_name', code).toString(), status(each))
  if (code !== 0) return
  const copy = core.filled('bh_plan_copy', 48, plan)
  const planned = core.filled('bh_plan_read', PLANNED_SIZE, plan)
  notation.compare(each.expect, {
    ...names({
      action: () => ACTIONS[core.number(planned)],
      counts_as: () => OUTCOMES[c.bh_plan_outcome(past, by, on, indexIn(OUTCOMES, each.outcome ?? 'failed'))]
    }),
    ...numbers({
      attempts: () => core.integer(planned + 8),
      deferrals: () => core.integer(planned + 16),
      delay_ms: () => core.integer(planned + 24)
    }),
    ...flags({
      retry_after_met: () => core.number(planned + 32),
      mandatory: () => core.number(copy + 40),
      on_demand: () => core.number(copy + 44)
    }),
    ...texts({
      reason: () => core.bytesAt(planned + 36),
      id: () => core.bytesAt(copy),
      exchange: () => core.bytesAt(copy + 8),
      routing_key: () => core.bytesAt(copy + 16)
    }),
    expiration: digits => assert.equal(core.bytesAt(copy + 24).toString(), digits || ''),
    ...compareKept(plan, each),
    ...compareHeaders(plan)
  })
})
