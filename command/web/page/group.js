// One group: its queues, samples, a message's story, and what can be done with it.
import { get, post } from './api.js'
import { add, bdi, button, h, lookProgress, problem, redraw, set, table } from './dom.js'
import { attempts, bytes, clock, count, messages, reasonText, relative } from './format.js'
import { chart } from './chart.js'
import { openAction } from './action.js'
import { consumersOf, isBusy } from './state.js'
import { classLink, partly } from './tonight.js'

const BODY_BYTES = 65536

function textOf (base64) {
  const bytes = Uint8Array.from(atob(base64), each => each.charCodeAt(0))
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    return Array.from(bytes.slice(0, 4096), each => each.toString(16).padStart(2, '0')).join(' ')
  }
}

function pretty (text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2)
  } catch {
    return text
  }
}

const valueText = value => typeof value === 'string' ? value : JSON.stringify(value)

function pairs (title, list) {
  if (!list.length) return null
  const columns = [
    ['Name', ([key]) => h('code', {}, valueText(key))],
    ['Value', ([, value]) => h('code', {}, valueText(value))]
  ]
  return [h('h3', {}, title), table(title, columns, list)]
}

function message (app, queue, each) {
  const body = h('div')
  const show = async () => {
    const found = await post('message', { queue, id: `@${each.position}`, body_bytes: BODY_BYTES })
    const [it] = found.results
    if (it.id !== each.id) throw new Error('The queue has changed. Press "Show messages" again.')
    const bounds = `The first ${count(BODY_BYTES)} of ${bytes(it.body_bytes)}.`
    set(body, h('pre', { tabindex: 0 }, pretty(textOf(it.body))),
      it.body_bytes > BODY_BYTES && h('p', { class: 'muted' }, bounds))
  }
  const id = h('code', {}, each.id || '(no id)')
  return h('details', {},
    h('summary', {}, `@${each.position} `, id, ` · ${bytes(each.body_bytes)}`),
    h('pre', {}, each.story.trim()),
    h('div', { class: 'row' },
      button('Show the body', show), each.id && openers(app, [queue], [`id=${each.id}`], ' it')),
    body,
    pairs('Properties', Object.entries(each.properties)),
    pairs('Headers', each.headers.map(([key, , value]) => [key, value])))
}

const isAllowed = ({ may_replay: mayReplay, may_drop: mayDrop }) => mayReplay || mayDrop

// Returns the buttons that open the dialogs of a selection in these queues.
function openers (app, queues, where, of = '') {
  const opener = (name, kind, action) => h('button', {
    type: 'button',
    class: kind,
    onclick: () => openAction(app, action, { queues, where })
  }, `${name}${of}…`)
  return isAllowed(app.session) && h('div', { class: 'row' },
    app.session.may_replay && opener('Replay', 'main', 'replay'),
    app.session.may_drop && opener('Drop', 'danger', 'drop'))
}

function actions (app, where, { queue }) {
  if (!isAllowed(app.session)) return h('span', { class: 'muted small' }, 'not allowed: backhop web needs --allow')
  if (isBusy(app.state, queue)) return h('a', { href: '#/jobs' }, 'held by an action')
  return openers(app, [queue], where)
}

// Returns the buttons for all queues of a group; false: it has one queue, or an action holds one of them.
function actionsOfAll (app, where, queues) {
  const isFree = !queues.some(({ queue }) => isBusy(app.state, queue))
  return queues.length > 1 && isFree &&
    openers(app, queues.map(({ queue }) => queue), where, ` from all ${queues.length} queues`)
}

function consumersText (state, queue) {
  const consumers = consumersOf(state, queue)
  if (consumers == null) return '–'
  return consumers === 0 ? h('b', { class: 'danger' }, 'none') : count(consumers)
}

function attemptsOf ({ least_attempts: least, most_attempts: most }) {
  return least === most ? `${attempts(most)} each.` : `${count(least)} to ${attempts(most)}.`
}

function summary (found, sign = '') {
  const first = `${relative(found.first_failure_ms)} (${clock(found.first_failure_ms)})`
  const isKnown = found.reason !== reasonText(found.reason)
  return h('p', {}, `${sign}${messages(found.count)}, reason: `, h('b', {}, bdi(reasonText(found.reason))),
    found.reason && isKnown && ` (${found.reason})`,
    `. First failure ${first}, latest ${relative(found.last_first_failure_ms)}. `, attemptsOf(found))
}

function partNote () {
  return h('div', { class: 'card note' },
    'Only a part of the queues was read, so this group may have more messages. A replay or drop counts all of them.')
}

// Returns all groups of a class as one; undefined: there is none.
function joinClass (groups, name) {
  const all = groups.filter(each => each.class === name)
  const queues = new Map()
  for (const each of all.flatMap(({ queues }) => queues)) {
    queues.set(each.queue, (queues.get(each.queue) || 0) + each.count)
  }
  const sum = list => list.reduce((one, other) => one + other, 0)
  const most = key => Math.max(...all.map(each => each[key]))
  const least = key => Math.min(...all.map(each => each[key]))
  const reasons = new Set(all.map(each => each.reason))
  const { over_time: over } = all[0] || {}
  const sumAt = at => sum(all.map(each => each.over_time.parked[at]))
  return all.length
    ? {
        reason: reasons.size === 1 ? all[0].reason : 'several',
        count: sum(all.map(each => each.count)),
        first_failure_ms: least('first_failure_ms'),
        last_first_failure_ms: most('last_first_failure_ms'),
        least_attempts: least('least_attempts'),
        most_attempts: most('most_attempts'),
        over_time: over && { ...over, parked: over.parked.map((_, at) => sumAt(at)) },
        queues: [...queues].map(([queue, count]) => ({ queue, count }))
      }
    : undefined
}

// Leads from a group to all groups of its class.
function classPart (groups, found) {
  const number = groups.filter(each => each.class && each.class === found.class).length
  return number > 1 && h('p', {}, h('a', { href: classLink(found.class) }, `All of ${found.class}`),
    `: ${count(number)} groups`)
}

const classNote = () => h('div', { class: 'card note' },
  'This class may have more messages: some queues have too many different errors to count each. ' +
  'A replay or drop counts all of them.')

// Returns what an address names: a group by its error and reason, or all groups of a class.
function find (groups, query) {
  const name = query.get('class')
  const kind = query.get('kind') || ''
  const reason = query.get('reason') || ''
  return name
    ? { title: `All of ${name}`, where: [`class=${name}`], found: joinClass(groups, name) }
    : {
        title: kind || '(no error text)',
        where: [`kind=${kind}`, `reason=${reason}`],
        found: groups.find(each => each.error === kind && each.reason === reason)
      }
}

export default async function group (app, main, query) {
  if (!app.groups) app.groups = await get('groups').catch(() => null)
  const { title, where, found } = find(app.groups?.groups || [], query)
  main.append(h('p', {}, h('a', { href: '#/' }, '← All groups')), h('h2', {}, title))
  if (!found) {
    main.append(problem('This group was not found. Its messages may have been replayed or dropped. ' +
      'Read the parked messages again on the first screen.'))
    return
  }
  if (found.rest) {
    add(main, summary(found), chart(found.over_time), h('div', { class: 'card note' },
      'These messages have several errors. To see some, read only errors that contain a text on the first screen.'))
    return
  }
  const samples = h('div', { 'aria-live': 'polite' })
  const load = queue => async () => {
    set(samples, lookProgress(app))
    try {
      const { results } = await post('samples', { queue, where, limit: 10 })
      set(samples, h('h3', {}, `The first ${messages(results.length)} of this group in `, bdi(queue)),
        results.length
          ? results.map(each => message(app, queue, each))
          : h('p', {}, 'They are no longer there. Read the parked messages again on the first screen.'))
    } catch (error) {
      set(samples)
      throw error
    }
  }
  const queues = h('div')
  const isCut = query.get('class') && app.groups.groups.some(each => each.rest && !each.class)
  const isPart = partly(app.groups).length > 0
  const sign = isPart || isCut ? '≥ ' : ''
  add(main, summary(found, sign), isPart && partNote(), isCut && classNote(),
    classPart(app.groups.groups, found),
    chart(found.over_time), queues, samples)
  let drawn = ''
  app.onState(state => {
    const key = JSON.stringify([state.jobs.map(job => [job.job, job.ended_ms]),
      found.queues.map(each => consumersOf(state, each.queue))])
    if (key === drawn) return
    drawn = key
    redraw(queues, table('Queues of this group', [
      ['Queue', each => each.queue],
      ['Messages', each => sign + count(each.count), 'number'],
      ['Consumers of the work queue', each => consumersText(state, each.queue), 'number'],
      ['First messages', each => button('Show messages', load(each.queue))],
      ['Actions', each => actions(app, where, each)]
    ], found.queues), actionsOfAll(app, where, found.queues))
  })
}
