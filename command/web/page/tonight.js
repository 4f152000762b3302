// Tonight: groups over all queues, the newest kind first.
import { get, post } from './api.js'
import { bdi, bdis, button, field, h, lookProgress, problem, redraw, select, set, table } from './dom.js'
import { clock, count, dayTime, groups, messages, queues, reasonText, relative } from './format.js'
import { sparkline } from './chart.js'
import { consumersOf, isRunning, queuesOf, sumOf, workQueue } from './state.js'

const SPANS = [
  ['1h', 'last hour'], ['6h', 'last 6 hours'], ['12h', 'last 12 hours'], ['24h', 'last 24 hours'], ['7d', 'last 7 days']
]
const ORDERS = [['new', 'newest error first'], ['many', 'most messages first']]
const NEW_MS = 3600000
const MOST_DEPTHS = 20
const MOST_NAMES = 3
const MOST_GROUPS = 20 // of a list that is shown whole
const MOST_OF_CLASS = 2 // small groups of a class in a longer list
const SMALL = 0.01 // of all messages

export const groupLink = each => `#/group?${new URLSearchParams({ kind: each.error, reason: each.reason })}`

export const classLink = name => `#/group?${new URLSearchParams({ class: name })}`

const fact = (title, value, kind = '', more = '') => h('div', {},
  h('div', { class: 'muted small' }, title),
  h('div', { class: `big ${kind}` }, count(value)),
  more && h('div', { class: 'small' }, more))

function facts (state) {
  if (!state.depths) return state.problem ? [h('div', { class: 'card problem' }, state.problem)] : []
  const parked = sumOf(state, 'parked')
  const unroutable = sumOf(state, 'unroutable')
  const parkedIn = queue => queuesOf(state, 'parked').some(each => workQueue(each.queue) === queue && each.ready > 0)
  const idle = queuesOf(state, 'work')
    .filter(each => each.consumers === 0 && (each.ready > 0 || parkedIn(each.queue)))
    .map(each => each.queue)
  const some = bdis([...idle.slice(0, MOST_NAMES), ...(idle.length > MOST_NAMES ? ['…'] : [])])
  return [
    fact('Parked', parked, parked || state.isHeld ? 'danger' : 'good',
      state.isHeld && 'without those that are held now'),
    fact('Waiting for a retry', sumOf(state, 'waiting')),
    fact('Ready in work queues', sumOf(state, 'work')),
    unroutable > 0 && fact('Unroutable', unroutable, 'danger'),
    idle.length > 0 && fact('Queues without consumers', idle.length, 'danger', some)
  ]
}

const newestFirst = (a, b) => b.first_failure_ms - a.first_failure_ms
const mostFirst = (a, b) => b.count - a.count

// Returns whether messages are still read.
export const isRead = snapshot => snapshot.is_whole === false && !snapshot.is_stopped

// Returns the queues that a look has not read to their end.
export const partly = snapshot =>
  Object.values(snapshot?.queues || {}).filter(each => each.looked_at < each.messages)

function partNote (parts, lookAtAll) {
  const bounds = bdis(parts.map(each =>
    h('span', {}, `${count(each.looked_at)} of ${count(each.messages)} in `, bdi(each.queue))))
  return h('div', { class: 'card note' },
    h('p', {}, 'Only the first messages were read: ', bounds, '. ',
      'The others may have other errors. A replay or drop always counts all messages.'),
    button('Read all', lookAtAll))
}

function stoppedNote (snapshot, lookAtAll) {
  const read = bdis(Object.values(snapshot.queues).map(each =>
    h('span', {}, `${count(each.looked_at)} of ${messages(each.messages)} in `, bdi(each.queue))))
  return h('div', { class: 'card note' },
    h('p', {}, 'The reading was stopped. These groups are a part: ',
      `${count(snapshot.queues_done)} of ${queues(snapshot.queue_count)} read to the end; `, read, '.'),
    button('Read all', lookAtAll))
}

const time = (ms, now, badge = null) => [
  h('span', { title: clock(ms) }, relative(ms, now)), ' ', badge, h('div', { class: 'muted small' }, dayTime(ms, now))]

function firstFailure (each, now) {
  const isNew = now - each.first_failure_ms < NEW_MS
  return time(each.first_failure_ms, now, isNew && h('span', { class: 'badge warn' }, 'new'))
}

function queueNames (state, { queues }) {
  const all = queues.length > 2 ? `${queues.length} queues` : bdis(queues.map(({ queue }) => workQueue(queue)))
  const idle = queues.filter(({ queue }) => consumersOf(state, queue) === 0).length
  const text = queues.length > 1 ? `no consumer on ${idle}` : 'no consumer'
  return [all, ' ', idle > 0 && h('span', { class: 'badge danger' }, text)]
}

// Returns whether an action ended after the messages were read.
const isOutdated = (state, snapshot) => state.jobs.some(job => job.ended_ms > snapshot.taken_ms)

const total = list => list.reduce((sum, each) => sum + each.count, 0)

// Returns the rows of groups. Errors with words that change would hide all other groups. So small
// groups of a class beyond the first ones are one row, unless the class is in `whole`. The rest of a
// queue is in it if it has this class alone.
function fold (list, whole) {
  if (list.length <= MOST_GROUPS) return list
  const most = Math.max(1, SMALL * total(list))
  const rows = []
  const small = new Map() // by class: how many groups are shown, and the row of the others
  for (const each of list) {
    const isSmall = each.class && (each.rest || each.count <= most) && !whole.has(each.class)
    const of = isSmall ? small.get(each.class) || { shown: 0 } : null
    if (of) small.set(each.class, of)
    if (!of || (!each.rest && of.shown++ < MOST_OF_CLASS)) rows.push(each)
    else if (of.row) of.row.others.push(each)
    else rows.push(of.row = { others: [each] })
  }
  return rows.map(row => row.others?.length === 1 ? row.others[0] : row)
}

// Returns what the row of a group has for its error. The rest of a queue's groups has several
// errors, so it links to the page of their class. If it has several classes, it has no link.
function errorCell (each, unfold) {
  if (each.others) {
    const { class: name } = each.others[0]
    const show = () => unfold(each.others[0])
    return h('div', { class: 'row' },
      h('a', { href: classLink(name) }, `All of ${name}`),
      h('button', { type: 'button', onclick: show }, `Show ${count(each.others.length)} more groups`))
  }
  if (each.rest) {
    if (each.class) return [`${each.error} `, h('a', { href: classLink(each.class) }, `All of ${each.class}`)]
    return [h('b', {}, each.error), h('div', { class: 'muted small' },
      'Further errors of a queue with very many. To see some, read only errors that contain a text.')]
  }
  return h('a', { href: groupLink(each) }, each.error || '(no error text)')
}

function list (state, snapshot, order, whole, unfold) {
  const now = Date.now()
  const sign = snapshot.is_whole === false || partly(snapshot).length ? '≥ ' : ''
  const ofGroup = cell => each => each.others ? '' : cell(each)
  if (!snapshot.groups.length) {
    return snapshot.is_whole === false ? '' : h('div', { class: 'card ok' }, 'No parked message was found.')
  }
  return table('Groups of parked messages', [
    ['Error', each => errorCell(each, unfold), 'error'],
    ['Messages', each => sign + count(each.others ? total(each.others) : each.count), 'number'],
    ['Parked over time', ofGroup(each => sparkline(each.over_time))],
    ['First failure', ofGroup(each => firstFailure(each, now)), 'time'],
    ['Latest failure', ofGroup(each => time(each.last_first_failure_ms, now)), 'time'],
    ['Queues', ofGroup(each => queueNames(state, each))],
    ['Reason', ofGroup(each => h('span', { title: reasonText(each.reason) }, each.reason || '–'))]
  ], fold([...snapshot.groups].sort(order === 'many' ? mostFirst : newestFirst), whole))
}

function heading (snapshot) {
  const found = `${messages(total(snapshot.groups))} in ${groups(snapshot.groups.length)}`
  const folded = snapshot.groups.some(each => each.error.includes('#')) ? ' # stands for any number.' : ''
  const text = isRead(snapshot)
    ? `${found} so far. ${count(snapshot.queues_done)} of ${queues(snapshot.queue_count)} read to the end.`
    : `${found}, read on ${clock(snapshot.taken_ms)}.`
  return h('p', { class: 'muted' }, text, folded)
}

// The largest parked queues and their depths, while no group is known.
function depths (state) {
  const rows = queuesOf(state, 'parked').filter(each => each.ready > 0).sort((a, b) => b.ready - a.ready)
  const more = rows.length > MOST_DEPTHS && h('li', {}, `and ${queues(rows.length - MOST_DEPTHS)} more`)
  return h('ul', {}, rows.slice(0, MOST_DEPTHS).map(each =>
    h('li', {}, `${messages(each.ready)} in `, bdi(each.queue))), more)
}

export default function tonight (app, main) {
  const numbers = h('div', { class: 'facts' })
  const place = h('div', { 'aria-live': 'polite' })
  const spanField = select(SPANS, app.span || '12h')
  const order = select(ORDERS, app.order || 'new')
  const text = h('input', { type: 'search', value: app.filter || '', placeholder: 'all errors' })
  app.wholeClasses ??= new Set()
  const read = button('Read parked messages', () => look(), 'main')
  let known = app.groups?.number || 0
  let isLooking = false
  let shownDepths = ''
  let shownQueues = ''

  const draw = () => {
    const snapshot = app.groups
    read.firstChild.textContent = snapshot?.number ? 'Read again' : 'Read parked messages'
    if (!snapshot?.number) {
      set(place, h('p', { class: 'muted' }, 'The parked messages were not read yet. ',
        'Reading them changes neither their order nor their number.'), depths(app.state))
      return
    }
    const parts = snapshot.is_whole === false ? [] : partly(snapshot)
    const all = () => look({ first: 0 })
    redraw(place,
      heading(snapshot),
      isRead(snapshot) && lookProgress(app),
      snapshot.is_stopped && stoppedNote(snapshot, all),
      app.state.jobs.some(isRunning) && h('p', { class: 'muted small' },
        'An action is running. This list may lack the messages that it holds.'),
      parts.length > 0 && partNote(parts, all),
      isOutdated(app.state, snapshot) && h('div', { class: 'card note' },
        'An action ended after these messages were read. Press "Read again".'),
      snapshot.notice && h('div', { class: 'card note' }, snapshot.notice),
      list(app.state, snapshot, order.value, app.wholeClasses, unfold))
  }
  const unfold = first => {
    app.wholeClasses.add(first.class)
    draw()
    const links = [...place.querySelectorAll('tbody a')]
    links.find(each => each.getAttribute('href') === groupLink(first))?.focus({ preventScroll: true })
  }
  const look = async (more = {}) => {
    app.span = spanField.value
    app.filter = text.value.trim()
    set(place, lookProgress(app), depths(app.state)) // before the look holds messages
    const where = app.filter ? [`error~${app.filter}`] : []
    isLooking = true
    try {
      app.groups = await post('groups', { ...more, by: 'error', over_time: app.span, where })
      known = app.groups.number
    } finally {
      isLooking = false
      draw()
    }
  }
  order.addEventListener('change', () => {
    app.order = order.value
    draw()
  })
  text.addEventListener('keydown', event => {
    if (event.key === 'Enter') look().catch(error => place.prepend(problem(error)))
  })
  main.append(h('h2', {}, 'What broke tonight?'), numbers,
    h('div', { class: 'row' },
      read,
      field('Only errors that contain, then Enter', text),
      field('Time of the charts', spanField), field('Order', order)),
    place)
  draw()
  app.onState(state => {
    set(numbers, ...facts(state))
    const depthsText = JSON.stringify(queuesOf(state, 'parked').map(each => [each.queue, each.ready]))
    if (!app.groups?.number && !state.look && !isLooking && depthsText !== shownDepths) {
      shownDepths = depthsText
      draw()
    }
    const queuesText = JSON.stringify([
      queuesOf(state, 'work').map(each => [each.queue, each.consumers]), state.jobs.map(job => job.ended_ms)])
    if (app.groups?.number && !isLooking && queuesText !== shownQueues) {
      shownQueues = queuesText
      draw()
    }
    if (state.groups_number > known) {
      known = state.groups_number
      get('groups').then(snapshot => {
        app.groups = snapshot
        draw()
      }).catch(() => {})
    }
  })
}
