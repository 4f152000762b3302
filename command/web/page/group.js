// One group: its queues, samples, a message's story, and what can be done with it.
import { get, post } from './api.js'
import { button, h, lookProgress, problem, set, table } from './dom.js'
import { clock, count, messages, relative } from './format.js'
import { sparkline } from './chart.js'
import { openAction } from './action.js'
import { partly } from './tonight.js'

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

function pairs (name, list) {
  if (!list.length) return null
  return [h('h3', {}, name), table(name, [['Name', ([key]) => h('code', {}, valueText(key))], ['Value', ([, value]) => h('code', {}, valueText(value))]], list)]
}

function message (queue, each) {
  const body = h('div')
  const show = async () => {
    const found = await post('message', { queue, id: `@${each.position}`, body_bytes: BODY_BYTES })
    const [it] = found.results
    if (it.id !== each.id) throw new Error('The queue has changed since: show the messages again.')
    set(body, h('pre', { tabindex: 0 }, pretty(textOf(it.body))),
      it.body_bytes > BODY_BYTES && h('p', { class: 'muted' }, `The first ${count(BODY_BYTES)} of ${count(it.body_bytes)} bytes.`))
  }
  return h('details', {}, h('summary', {}, `@${each.position} `, h('code', {}, each.id || '(no id)'), ` · ${count(each.body_bytes)} bytes`),
    h('pre', {}, each.story.trim()), button('Show the body', show), body,
    pairs('Properties', Object.entries(each.properties)), pairs('Headers', each.headers.map(([key, , value]) => [key, value])))
}

function actions (app, where, each) {
  const { may_replay: mayReplay, may_drop: mayDrop } = app.session
  const busy = app.state.jobs.some(job => job.ended_ms === 0 && job.queue.replace(/\.parked$/, '') === each.queue.replace(/\.parked$/, ''))
  if (!mayReplay && !mayDrop) return h('span', { class: 'muted small' }, 'only shown')
  if (busy) return h('a', { href: '#/jobs' }, 'an action runs')
  return h('div', { class: 'row' },
    mayReplay && h('button', { type: 'button', class: 'main', onclick: () => openAction(app, 'replay', { queue: each.queue, where }) }, 'Replay…'),
    mayDrop && h('button', { type: 'button', class: 'danger', onclick: () => openAction(app, 'drop', { queue: each.queue, where }) }, 'Drop…'))
}

export default async function group (app, main, query) {
  const kind = query.get('kind') || ''
  const reason = query.get('reason') || ''
  const where = [`kind=${kind}`, `reason=${reason}`]
  if (!app.groups) app.groups = await get('groups').catch(() => null)
  const found = app.groups?.groups?.find(each => each.error === kind && each.reason === reason)
  main.append(h('p', {}, h('a', { href: '#/' }, '← All groups')), h('h2', {}, kind || '(no error text)'))
  if (!found) {
    main.append(problem('No snapshot has this group. Its messages may have been replayed or dropped. Look again on the first screen.'))
    return
  }
  const samples = h('div', { 'aria-live': 'polite' })
  const load = queue => async () => {
    set(samples, lookProgress(app))
    try {
      const { results } = await post('samples', { queue, where, limit: 10 })
      set(samples, h('h3', {}, `The first ${messages(results.length)} in ${queue}`),
        results.length ? results.map(each => message(queue, each)) : h('p', {}, 'None is there any more: look again on the first screen.'))
    } catch (error) {
      set(samples)
      throw error
    }
  }
  const queues = h('div')
  main.append(
    h('p', {}, `${messages(found.count)}, parked as `, h('b', {}, found.reason || 'not by Backhop'), `. First failure ${relative(found.first_failure_ms)} (${clock(found.first_failure_ms)}), last ${relative(found.last_first_failure_ms)}. `,
      found.least_attempts === found.most_attempts ? `${count(found.most_attempts)} ${found.most_attempts === 1 ? 'attempt' : 'attempts'} each.` : `${count(found.least_attempts)} to ${count(found.most_attempts)} attempts.`),
    partly(app.groups).length > 0 && h('div', { class: 'card note' }, 'The look has read a part of the queues: it may be more messages. A replay or drop counts all.'),
    h('div', { class: 'card' }, sparkline(found.over_time)), queues, samples)
  let drawn = ''
  app.onState(state => {
    const key = JSON.stringify(state.jobs.map(job => [job.job, job.ended_ms]))
    if (key === drawn) return
    drawn = key
    set(queues, table('Its queues', [
      ['Queue', each => each.queue],
      ['Messages', each => count(each.count), 'number'],
      ['Look', each => button('Show messages', load(each.queue))],
      ['Act', each => actions(app, where, each)]
    ], found.queues))
  })
}
